"""Names that `%who` does not list: what `%pylab` imports, by the hundred, and what extensions push."""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.manifest import is_ipythons
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

_NONE = object()
# Before a module's name: not what it has, but the module.
_ITSELF = "module "


class HiddenNames:
    """Those of a shell. Made when the process starts: what is hidden then is there in each.

    Modules, and what a module has under the same name, are imported again, and so are the very same objects.
    """

    def __init__(self, shell: Any) -> None:
        self._names, self._hidden = shell.user_ns, shell.user_ns_hidden
        self._before = dict(self._hidden)
        self._modules: dict[str, str] = {}

    def aspect(self) -> Aspect:
        """What comes from modules."""
        return Aspect("hidden names", self._imported, self._import_again)

    def place(self) -> Place:
        """All others."""
        return Place("hidden name", self._others, self._put)

    def _imported(self) -> dict[str, list[str]] | None:
        found: dict[str, list[str]] = {}
        for name in self._looked_up():
            if name in self._modules:
                found.setdefault(self._modules[name], []).append(name)
        return found or None

    def _import_again(self, names_of: Mapping[str, Iterable[str]]) -> None:
        """Raises RuntimeError with all that is not there any more."""
        lost = []
        for module, names in names_of.items():
            imported = importlib.import_module(module.removeprefix(_ITSELF))
            for name in names:
                if module.startswith(_ITSELF):
                    self._put(name, imported)
                elif name in vars(imported):
                    self._put(name, vars(imported)[name])
                else:
                    lost.append(f"{module} has no {name}")
        if lost:
            raise RuntimeError("; ".join(lost))

    def _others(self) -> Iterator[tuple[Hashable, Entry]]:
        for name, value in self._looked_up().items():
            if name not in self._modules:
                yield name, (name, value)

    def _put(self, name: str, value: Any) -> None:
        self._names[name] = self._hidden[name] = value

    def _looked_up(self) -> dict[str, Any]:
        """What is hidden now; `_modules` says where from: those where others come from are looked at first."""
        found = {
            name: value
            for name, value in list(self._hidden.items())
            if self._before.get(name, _NONE) is not value
            and self._names.get(name, _NONE) is value
            and not is_ipythons(name)
        }
        for name, value in found.items():
            if not _is_from(self._modules.get(name, ""), name, value):
                self._modules.pop(name, None)
                likely = dict.fromkeys(self._modules.values())
                itself = _ITSELF + value.__name__ if isinstance(value, types.ModuleType) else ""
                where = [itself] if itself else [*likely, *sys.modules]
                self._modules |= next(({name: module} for module in where if _is_from(module, name, value)), {})
        return found


def _is_from(module: str, name: str, value: Any) -> bool:
    if module.startswith(_ITSELF):
        return sys.modules.get(module.removeprefix(_ITSELF)) is value
    has = getattr(sys.modules.get(module), "__dict__", {})
    return module != "__main__" and has.get(name, _NONE) is value
