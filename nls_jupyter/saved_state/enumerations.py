"""Enumerations of cells: their members come back with what they hold and have, and no code of the user's runs for it.

cloudpickle makes each member anew of its value, without the enumeration's own `__new__` and `__init__`: what these give
a member would be lost, and so would be second names of a member, and flags of several bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import CLASS_TRACKER
from nls_jupyter.saved_state.kinds import content_of, is_of

if TYPE_CHECKING:
    import enum
    from collections.abc import Callable, Mapping, Sequence

# What members of these types are, whatever their class makes of being asked.
_CONTENTS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, lambda member: bytes.__getitem__(member, slice(None))),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex.__pos__),
    (tuple, lambda member: tuple.__getitem__(member, slice(None))),
)
# What the enumeration itself gives each member.
_GIVEN = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})
_FOR_A_MOMENT = ("__init__", "__new_member__")
# What numbers the members of those that inherit from it; cloudpickle leaves it out.
_NUMBERS = "_generate_next_value_"


@dataclass(frozen=True, slots=True)
class _Member:
    """What a member is made of: its value, and what it is as one of a plain type, if it is.

    No tuple, which the enumeration's own hands would take apart.
    """

    value: Any
    content: Any


def as_written(kind: type[enum.Enum], reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """What cloudpickle makes of an enumeration, with all names of its members, and what these have."""
    _, (bases, name, qualname, _, module, tracker, _), (state, slots), *items, give = reduced
    members: Mapping[str, Any] = content_of(kind)["_member_map_"]
    state |= {key: content_of(kind)[key] for key in (_NUMBERS,) if key in content_of(kind)}
    state = {key: state[key] for key in (*content_of(kind), *state) if key in state and key not in members}
    parts = [(key, _Member(member._value_, _content(member))) for key, member in members.items()]
    had = [(key, {k: v for k, v in vars(member).items() if k not in _GIVEN}) for key, member in members.items()]
    made_of = bases, name, qualname, module, tracker, parts
    return make, made_of, (give, state, slots, [(key, has) for key, has in had if has]), *items, complete


def _content(member: Any) -> Any:
    return next((read(member) for base, read in _CONTENTS if is_of(member, base)), None)


def make(
    bases: tuple[Any, ...],
    name: str,
    qualname: str,
    module: str,
    tracker: Any,
    members: Sequence[tuple[str, _Member]],
) -> type:
    """An enumeration that has its members and nothing else; called by the unpickler."""
    meta: Any = type(bases[-1])
    body = meta.__prepare__(name, bases)
    body["__new__"], body["__init__"] = _new, _nothing
    for key, member in members:
        body[key] = member
    made = meta.__new__(meta, name, bases, body)
    for own in _FOR_A_MOMENT:
        if own in content_of(made):
            type.__delattr__(made, own)
    made.__module__, made.__qualname__ = module, qualname
    known: type = CLASS_TRACKER.here()(tracker, made)
    return known


def _new(kind: Any, given: Any) -> Any:
    made_of: _Member = given[0] if type(given) is tuple else given
    holds, value = kind._member_type_, made_of.value
    member: Any
    if made_of.content is not None:
        base: Any = next(base for base, _ in _CONTENTS if issubclass(kind, base))
        member = base.__new__(kind, made_of.content)
    elif holds.__new__ is object.__new__:
        member = object.__new__(kind)
    else:
        member = holds.__new__(kind, *(value if type(value) is tuple else (value,)))
    member._value_ = value
    return member


def _nothing(*_: Any) -> None:
    """In the place of what the user does with a new member: that is done."""


def complete(kind: type, state: tuple[Any, ...]) -> type:
    """Give an enumeration, and its members, what they have besides; called by the unpickler."""
    give, own, slots, had = state
    made: type = give(kind, (own, slots))
    members = content_of(kind)["_member_map_"]
    for name, has in had:
        vars(members[name]).update(has)
    return made
