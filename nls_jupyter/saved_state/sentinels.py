"""Objects without content, or with a name at most, that a library keeps and tells from all others by who they are.

`dataclasses.MISSING`, or a bare `object()`: a copy of one would be taken for a value, so a new process has its own. So
it is with what Python tells of itself (`sys.float_info`), of which no copy can be made.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import content_of, is_of, module_of
from nls_jupyter.saved_state.looks import importable, is_written_in_python, slots_of
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.reducers import load_exported
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Reduce = Callable[[Any], Any]

_CALLED: Final = frozenset({"name", "module", "__module__", "__doc__"})


def may_be(kind: type) -> bool:
    """Whether some of this type can be sentinels: of an installed class whose instances consist of attributes."""
    if kind in {object, types.MappingProxyType} or is_of_the_interpreter(kind):
        return True
    is_code = is_written_in_python(kind) and not is_the_users_module(module_of(kind)) and importable(kind)
    return is_code and slots_of(kind) is not None


def is_of_the_interpreter(kind: type) -> bool:
    """Whether it is the type of what Python tells of itself (`sys.float_info`), which nobody can import or call."""
    return kind.__base__ is tuple and "n_sequence_fields" in content_of(kind) and not importable(kind)


def reduce_type(kind: type) -> Any:
    """How such a type is found again; `None` for all others. Raises UnsavableError for one of which nobody has one."""
    if not is_of_the_interpreter(kind):
        return None
    module, name = module_of(kind), kind.__name__
    if type(_at(module, name)) is kind:
        return type_at, (module, name)
    raise UnsavableError(f"a type of Python's, {name}, that cannot be imported", kind)


def type_at(module: str, name: str) -> type:
    """The type of what a module has under a name; called by the unpickler."""
    return type(load_exported(module, name))


def is_one(thing: Any) -> bool:
    """Whether `thing`, of such a type, is one."""
    return _place_of(thing) is not None


def by_name(kind: type, otherwise: Reduce | None) -> Reduce | None:
    """How an object of `kind` is saved, where it may be a sentinel."""
    if not may_be(kind):
        return otherwise

    def reduce(thing: Any) -> Any:
        if (place := _place_of(thing)) is not None:
            return load_exported, place
        return NotImplemented if otherwise is None else otherwise(thing)

    return reduce


def _place_of(thing: Any) -> tuple[str, str] | None:
    """The module and the name under which it is found in every process."""
    if not _has_no_content(thing):
        return None
    places = (*_places(len(sys.modules)).get(id(thing), ()), *_in_classes_of(module_of(type(thing))).get(id(thing), ()))
    return next(((module, path) for module, path in places if _at(module, path) is thing), None)


def _at(module: str, path: str) -> Any:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = vars(found).get(name) if found is not None else None
    return found


def _has_no_content(thing: Any) -> bool:
    if is_of(thing, types.MappingProxyType):
        return not thing
    if is_of_the_interpreter(type(thing)):
        return True
    state: Any = object.__getstate__(thing)
    if type(state) is tuple:
        state = {**(state[0] or {}), **state[1]}
    return not state or (state.keys() <= _CALLED and all(type(value) in {str, type(None)} for value in state.values()))


@functools.lru_cache(maxsize=1)
def _places(_: int) -> Mapping[int, list[tuple[str, str]]]:
    """Where all installed modules have what may be one, by identity: looked for again when there are other modules."""
    kinds: dict[type, bool] = {}
    places: dict[int, list[tuple[str, str]]] = {}
    for module, found in list(sys.modules.items()):
        if not is_of(found, types.ModuleType):
            continue
        for name, value in list(vars(found).items()):
            kind = type(value)
            known = kinds.get(kind)
            if known is None:
                known = kinds[kind] = may_be(kind)
            if known and not is_the_users_module(module):
                places.setdefault(id(value), []).append((module, name))
    return places


@functools.lru_cache(maxsize=64)
def _in_classes_of(module: str) -> Mapping[int, list[tuple[str, str]]]:
    """Where the classes of one module have what may be one."""
    places: dict[int, list[tuple[str, str]]] = {}
    for name, kind in list(vars(sys.modules.get(module, types)).items()):
        if is_of(kind, type) and module_of(kind) == module:
            for attribute, value in list(content_of(kind).items()):
                if may_be(type(value)):
                    places.setdefault(id(value), []).append((module, f"{name}.{attribute}"))
    return places
