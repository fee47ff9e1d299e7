"""What the body of a class's statement had, as far as the class that came of it tells."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import ABC_CONTENT
from nls_jupyter.saved_state.kinds import line_of, name_of
from nls_jupyter.saved_state.looks import ATOMS
from nls_jupyter.saved_state.tolerant import children_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MADE_LATER: Final = ("__abstractmethods__", ABC_CONTENT.name)
# Since Python 3.13.
_LAST: Final = "__static_attributes__"
_MOST_LOOKED_AT: Final = 10_000
_MADE_BY_PYTHON: Final = (types.GetSetDescriptorType, types.MemberDescriptorType)
_VARIABLE_OF_METHODS: Final = "__class__"


def empty(kind: type, known: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """What a class is made with before its values are there: its slots, and `None` for all others."""
    return {**_body(kind, known, dict.fromkeys(state)), **known}


def whole(kind: type, known: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """As `empty`, with all values that do not lead to the class, which is made of them."""
    back = _leading_to(state, lambda node: node is kind, {types.CellType})
    values = {name: value for name, value in state.items() if name not in back}
    body = {**_body(kind, known, values), **known, "__qualname__": name_of(kind)}
    if (cell := _variable_of_methods(kind, body.values())) is not None:
        body["__classcell__"] = cell
    return body


def leading_to_instances(kind: type, state: Mapping[str, Any]) -> set[str]:
    """The names of what leads to an instance of a class, past what that class itself has."""
    instances: dict[type, bool] = {}

    def is_one(node: Any) -> bool:
        known = instances.get(type(node))
        if known is None:
            known = instances[type(node)] = any(base is kind for base in line_of(type(node)))
        return known

    return _leading_to(state, is_one, set(), kind)


def is_made_by_python(kind: type, value: Any) -> bool:
    """Whether it stands for a slot, for the attributes, or for the weak references of an instance."""
    return isinstance(value, _MADE_BY_PYTHON) and value.__objclass__ is kind


def _leading_to(state: Mapping[str, Any], is_there: Callable[[Any], bool], closed: set[type], *past: Any) -> set[str]:
    """The names of what leads there, or of which nobody can tell; not by what is of the types that are `closed`."""
    left = _MOST_LOOKED_AT
    names: set[str] = set()
    for name, value in state.items():
        todo, seen = [value], {*map(id, past)}
        while todo:
            node = todo.pop()
            if id(node) in seen or type(node) in ATOMS:
                continue
            seen.add(id(node))
            left -= 1
            if is_there(node) or left < 0:
                names.add(name)
                break
            if type(node) not in closed:
                todo += children_of(node, without_globals=True)
    return names


def _body(kind: type, known: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Up to what has been set later: never before `__slots__`, as a class made anew has all that the first one had."""
    body: dict[str, Any] = {}
    names = list(vars(kind))
    least = names.index("__slots__") if "__slots__" in names else -1
    for at, (name, value) in enumerate(vars(kind).items()):
        is_over = name in _MADE_LATER or (name == "__doc__" and value is None)
        if is_made_by_python(kind, value) or (is_over and at > least):
            break
        if name in known:
            body[name] = known[name]
        elif name == "__slots__":
            body[name] = tuple(slot for slot, made in vars(kind).items() if is_made_by_python(kind, made))
        elif name in values and name not in _MADE_LATER:
            body[name] = values[name]
        if name == _LAST and at > least:
            break
    return body


def _variable_of_methods(kind: type, values: Any) -> types.CellType | None:
    """The variable by which methods know their class (`super()`), which has it as soon as the class is made."""
    for value in values:
        for function in _functions_of(value):
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            if (cell := cells.get(_VARIABLE_OF_METHODS)) is not None and _content(cell) is kind:
                return cell
    return None


def _functions_of(value: Any) -> list[types.FunctionType]:
    if type(value) is property:
        return [found for one in (value.fget, value.fset, value.fdel) for found in _functions_of(one)]
    if type(value) in {classmethod, staticmethod}:
        return _functions_of(value.__func__)
    return [value] if type(value) is types.FunctionType else []


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not bound
        return None
