"""Constructs of `typing` that cells make: pickle looks for each by its name in a module, where a new process has none.

Names of types, variables of types, aliases (`type X = ...`), and classes of typed dicts, whose metaclass refuses to be
called with the bases that they have in the end. Overloads are kept by `typing` for all.
"""

from __future__ import annotations

import copyreg
import keyword
import sys
import typing
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import CLASS_TRACKER, OVERLOADS
from nls_jupyter.saved_state.looks import importable
from nls_jupyter.saved_state.places import Place
from nls_jupyter.saved_state.reducers import set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from nls_jupyter.saved_state.places import Entry

_VARIABLES: Final = (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple)
_VARIANCE: Final = ("covariant", "contravariant", "infer_variance")
_ALIAS: Any = getattr(typing, "TypeAliasType", None)  # since Python 3.12


def handlers() -> Mapping[type, Callable[[Any], Any]]:
    """Reducers per exact type, as a library's."""
    return {
        typing.NewType: _reduce_new_type,
        **dict.fromkeys(_VARIABLES, _reduce_variable),
        **({_ALIAS: _reduce_alias} if _ALIAS is not None else {}),
    }


def _reduce_new_type(found: Any) -> Any:
    if importable(found):
        return NotImplemented
    return copyreg.__newobj__, (typing.NewType,), dict(vars(found)), None, None, set_attributes  # type: ignore[attr-defined]


def _is_found(thing: Any) -> bool:
    """Whether a module that can be imported has it under its name."""
    if thing.__module__ in {"__main__", None}:
        return False
    module = sys.modules.get(thing.__module__)
    return module is not None and vars(module).get(thing.__name__) is thing


def _reduce_variable(found: Any) -> Any:
    if _is_found(found):
        return NotImplemented
    kind: Any = type(found)
    options: dict[str, Any] = {name: True for name in _VARIANCE if getattr(found, f"__{name}__", False)}
    if (bound := getattr(found, "__bound__", None)) is not None:
        options["bound"] = bound
    if hasattr(found, "has_default"):
        if sys.version_info < (3, 13):  # that has given it one
            kind = getattr(sys.modules["typing_extensions"], kind.__name__)
        if found.has_default():
            options["default"] = found.__default__
    constraints = getattr(found, "__constraints__", ())
    return make_variable, (kind, found.__name__, constraints, options, found.__module__)


def make_variable(kind: Any, name: str, constraints: tuple[Any, ...], options: dict[str, Any], module: str) -> Any:
    """A variable of types; called by the unpickler."""
    made = kind(name, *constraints, **options)
    made.__module__ = module
    return made


def _reduce_alias(found: Any) -> Any:
    name, value, variables = found.__name__, found.__value__, found.__type_params__
    if _is_found(found):
        return NotImplemented
    if variables or not name.isidentifier() or keyword.iskeyword(name):
        return make_alias, (name, value, variables, found.__module__)
    content: list[Any] = []
    return make_empty_alias, (name, content, found.__module__), (content, value), None, None, fill_alias


def make_alias(name: str, value: Any, variables: tuple[Any, ...], module: str) -> Any:
    """An alias; called by the unpickler."""
    names = _namespace(module, make=_ALIAS, args=(name, value), variables=variables)
    return eval("make(*args, type_params=variables)", names)  # noqa: S307 - it takes its module from whoever calls


def make_empty_alias(name: str, content: list[Any], module: str) -> Any:
    """One that gets its value later, as that may lead back to it; called by the unpickler."""
    namespace = _namespace(module, **{f"_{name}": content})
    exec(f"type {name} = _{name}[0]", namespace)  # noqa: S102 - only this statement makes one without a value
    return namespace[name]


def _namespace(module: str, **names: Any) -> dict[str, Any]:
    return {"__name__": module, **names}


def fill_alias(_: Any, state: tuple[list[Any], Any]) -> None:
    """Give an alias the value that it looks for when it is asked for it; called by the unpickler."""
    content, value = state
    content.append(value)


def is_typed_dict(kind: type) -> bool:
    """Whether it is the class of a typed dict."""
    modules = (sys.modules.get(name) for name in ("typing", "typing_extensions"))
    return any(module.is_typeddict(kind) for module in modules if module is not None)


def make_typed_dict(meta: type, name: str, bases: tuple[type, ...], body: dict[str, Any], tracker: Any) -> type:
    """The class of a typed dict, without what it says of its items; called by the unpickler."""
    known: type = CLASS_TRACKER.here()(tracker, type.__new__(meta, name, bases, dict(body)))
    return known


def overloads() -> Place:
    """What cells have told `typing.overload`, which keeps it by name and line."""
    return Place("overload", _overloads, typing.overload, lambda key, _: f"{key[0]}, line {key[1]}")


def _overloads() -> Iterator[tuple[Hashable, Entry]]:
    for name, by_line in OVERLOADS.here().get("__main__", {}).items():
        for line, function in by_line.items():
            yield (name, line), (function,)
