"""Enumerations of cells: their members come back with what they hold and have, and no code of the user's runs for it.

cloudpickle makes each member anew of its value, without the enumeration's own `__new__` and `__init__`: what these give
a member would be lost, and so would be second names of a member, and flags of several bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import CLASS_BY_REFERENCE, CLASS_CONTENT, CLASS_NUMBER, CLASS_TRACKER, GIVE_TO_CLASS
from nls_jupyter.saved_state import annotated, enumerated, unheard
from nls_jupyter.saved_state.kinds import content_of, line_of, module_of, name_of
from nls_jupyter.saved_state.looks import importable

if TYPE_CHECKING:
    import enum
    from collections.abc import Mapping, Sequence

_FOR_A_MOMENT = ("__init__", "__new_member__")
# What it has as soon as it is made.
_MADE_WITH_IT = frozenset({"__module__", "_member_names_", "_member_map_", "_member_type_", "_value2member_map_"})


def reduce(kind: type[enum.Enum]) -> Any:
    """How an enumeration of cells is made: with all names of its members, and what these have.

    Its metaclass, which may be somebody's own, is not asked what is in it.
    """
    if CLASS_BY_REFERENCE.here()(kind):
        return NotImplemented
    state, slots = CLASS_CONTENT.here()(kind)
    state.update(annotated.kept_by_class(kind))
    content = content_of(kind)
    members: Mapping[str, Any] = content["_member_map_"]
    left_out = {*members, *_MADE_WITH_IT}
    state = {key: state[key] for key in (*content, *state) if key in state and key not in left_out}
    # A member is made by its own name before it gets others.
    keys = dict.fromkeys(key for name, member in members.items() for key in (member._name_, name) if key in members)
    parts = [(key, enumerated.beginning_of(members[key])) for key in keys]
    rest = [(key, has) for key, member in members.items() if (has := enumerated.rest_of(member)) is not None]
    found = content["_value2member_map_"].items()
    also = [(value, one._name_) for value, one in found if one._name_ in members and value is not one._value_]
    names = kind.__name__, name_of(kind), module_of(kind)
    made_of = type(kind), kind.__bases__, names, CLASS_NUMBER.here()(kind), parts
    give = GIVE_TO_CLASS.here()
    return make, made_of, (give, state, slots, rest, also), None, None, complete


def make(
    meta: type[enum.EnumType],
    bases: tuple[Any, ...],
    names: tuple[str, str, str],
    tracker: Any,
    members: Sequence[tuple[str, tuple[Any, Any, tuple[Any, ...]]]],
) -> type:
    """An enumeration that has its members and nothing else; called by the unpickler.

    By a library's metaclass, which the enumeration's own inherits from, if that is of cells.
    """
    name, qualname, module = names
    body = _of_a_library(meta, "__prepare__").__get__(None, meta)(name, bases)
    body["__new__"], body["__init__"] = _new, _nothing
    for key, member in members:
        body[key] = enumerated.Beginning(*member)
    with unheard.by_the_users(bases):
        made = _of_a_library(meta, "__new__").__get__(None, meta)(meta, name, bases, body)
    for own in _FOR_A_MOMENT:
        if own in content_of(made):
            type.__delattr__(made, own)
    made.__module__, made.__qualname__ = module, qualname
    known: type = CLASS_TRACKER.here()(tracker, made)
    return known


def _of_a_library(meta: type, method: str) -> Any:
    return next(content_of(base)[method] for base in line_of(meta) if method in content_of(base) and importable(base))


def _new(kind: Any, given: Any) -> Any:
    """A tuple's member is given in a tuple."""
    return enumerated.make(kind, given[0] if type(given) is tuple else given)


def _nothing(*_: Any) -> None:
    """In the place of what the user does with a new member: that is done."""


def complete(kind: type, state: tuple[Any, ...]) -> type:
    """Give an enumeration, and its members, what they have besides; called by the unpickler."""
    give, own, slots, rest, also = state
    made: type = give(kind, (own, slots))
    members = content_of(kind)["_member_map_"]
    for name, has in rest:
        enumerated.complete(members[name], has)
    for value, name in also:
        content_of(kind)["_value2member_map_"].setdefault(value, members[name])
    return made
