"""Members of enumerations: each comes back with what it holds and has, past the `__new__` and `__init__` of its class.

A member may be a text, a date, a path or a list, too. As such it is made by Python's own type, of what that holds; an
enumeration whose members are also of a type that nobody can make again is named when it is saved.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import containers, making
from nls_jupyter.saved_state.kinds import maker_of, name_of, owner_of
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    Rest = tuple[tuple[Any, ...], list[Any], dict[str, Any], dict[str, Any]]

# What the enumeration itself gives each member.
_GIVEN: Final = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a member is made of: its value, and by which type and of what it is made as one of that type.

    No tuple, which the enumeration's own hands would take apart.
    """

    value: Any
    base: Any
    args: tuple[Any, ...]


def beginning_of(member: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """The parts of its `Beginning`. Raises UnsavableError where its type cannot be made again."""
    base = _base_of(type(member))
    if base is frozenset:
        args: tuple[Any, ...] = (list(frozenset.__iter__(member)),)
    elif base is object or containers.base_in(base) is not None:
        args = ()
    elif hasattr(base, "__getnewargs__"):
        args = base.__getnewargs__(member)
    else:
        plain = owner_of(base, "__reduce_ex__") is object
        maker, args, *_ = base.__reduce__(member) if plain else base.__reduce_ex__(member, 5)
        args = args if maker is type(member) else (maker(*args),)
    return member._value_, base, args


def _base_of(kind: type) -> Any:
    """By which type its members are made."""
    maker = maker_of(kind)
    if issubclass(maker, BaseException):
        return maker
    base = containers.base_in(kind) or making.built_on(kind)
    if maker_of(base) is not maker or base is random.Random:
        raise UnsavableError(f"an enumeration whose members are also of {name_of(maker)}", kind)
    return base


def make(kind: Any, beginning: Beginning) -> Any:
    """A member that has its value, and is what else it is; called while the enumeration is made."""
    member = making.new(beginning.base, kind, *beginning.args)
    member._value_ = beginning.value
    return member


def rest_of(member: Any) -> Rest | None:
    """What it gets when its enumeration is there: what is in it, and its attributes; `None` where that is nothing."""
    base = _base_of(type(member))
    attributes, slots = making.added(base, member)
    attributes = {name: value for name, value in attributes.items() if name not in _GIVEN}
    container = containers.base_in(type(member))
    made_with = containers.made_with(container, member)
    items = containers.members_of(container, member) if container not in {None, frozenset} else []
    return (made_with, items, attributes, slots) if made_with or items or attributes or slots else None


def complete(member: Any, rest: Rest) -> None:
    """Give a member the rest; called by the unpickler."""
    made_with, items, attributes, slots = rest
    base = containers.base_in(type(member))
    if base is not None:
        containers.begin(member, base, made_with)
        containers.put(base, member, items)
    vars(member).update(attributes)
    for name, value in slots.items():
        object.__setattr__(member, name, value)
