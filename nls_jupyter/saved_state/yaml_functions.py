"""What cells have given to PyYAML's own loaders and dumpers: `yaml.add_constructor("!env", from_environment)`.

Each class has tables of its own, or those of a base. What is in them right after the import is PyYAML's.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state.places import Place, name_of

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

_TABLES: Final = {
    "yaml_constructors": "add_constructor",
    "yaml_multi_constructors": "add_multi_constructor",
    "yaml_representers": "add_representer",
    "yaml_multi_representers": "add_multi_representer",
}
_RESOLVERS: Final = "yaml_implicit_resolvers"


class YamlFunctions:
    """Those of this process."""

    def __init__(self) -> None:
        self._own: frozenset[Hashable] = frozenset()

    def follow(self) -> None:
        """Look at PyYAML once it is imported. Called once in a process."""
        AfterImport({"yaml": self._look}).install()

    def place(self) -> Place:
        """Each with its class, and what that is told by."""
        return Place("of YAML", self._entries, _put, lambda _, parts: f"{_shown(parts[2])} of {parts[0].__name__}")

    def _look(self, _: object) -> None:
        self._own = frozenset(key for cls in _classes() for key, _ in _content(cls, dir(cls)))

    def _entries(self) -> Iterator[tuple[Hashable, Entry]]:
        for cls in _classes():
            for key, entry in _content(cls, vars(cls)):
                if key not in self._own and _is_a_cells(*entry[-2:]):
                    yield key, entry


def _classes() -> list[Any]:
    """PyYAML's that have tables, bases first."""
    yaml: Any = sys.modules.get("yaml")
    if not hasattr(yaml, "YAMLObject"):
        return []  # it is only being imported
    found = [yaml.constructor.BaseConstructor, yaml.representer.BaseRepresenter, yaml.resolver.BaseResolver]
    for cls in found:
        found += [each for each in cls.__subclasses__() if each.__module__.startswith("yaml.") and each not in found]
    return found


def _content(cls: Any, names: Container[str]) -> Iterator[tuple[Hashable, Entry]]:
    """Of those of its tables that are among `names`."""
    for table, method in _TABLES.items():
        for key, function in getattr(cls, table).items() if table in names else ():
            yield (cls, method, key, id(function)), (cls, method, key, function)
    for first, resolvers in getattr(cls, _RESOLVERS).items() if _RESOLVERS in names else ():
        for tag, pattern in resolvers:
            yield (cls, first, tag, pattern), (cls, "add_implicit_resolver", first, tag, pattern)


def _put(cls: Any, method: str, key: Any, *given: Any) -> None:
    if method in _TABLES.values():
        getattr(cls, method)(key, *given)
    elif given not in getattr(cls, _RESOLVERS).get(key, ()):
        cls.add_implicit_resolver(*given, [key])


def _is_a_cells(key: Any, given: Any) -> bool:
    """Whether a cell has given it: something of its own, or of Python's or PyYAML's. Other modules do so again."""
    homes = [getattr(part, "__module__", "") for part in (key, given)]
    return "__main__" in homes or homes[-1].partition(".")[0] in {"yaml", "re"}


def _shown(key: Any) -> str:
    return key if isinstance(key, str) else name_of(key)
