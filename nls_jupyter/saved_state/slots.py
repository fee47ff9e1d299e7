"""Instances with slots: what is in these comes back past whatever their class does about them.

pickle asks for each slot by its name, and sets it by that. So it never comes by a slot of a base that the class hides
behind another slot, a property or a value, and cannot set any of a class that refuses to be changed.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import content_of, line_of, owner_of
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    # The class that has a slot, its name, and what is in it.
    Held = list[tuple[type, str, Any]]
    Slots = dict[tuple[type, str], Any]

_WAYS: Final = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def in_the_way_of_pickle(kind: type) -> Slots:
    """All slots of a class of which pickle misses some, or may not set any; nothing of another one.

    Nor of one with a way of pickling of its own.
    """
    if any(owner_of(kind, way) not in {object, None} for way in _WAYS):
        return {}
    return _slots_of(kind) if hides_any(kind) or owner_of(kind, "__setattr__") is not object else {}


def hides_any(kind: type) -> bool:
    """Whether a class has something else under the name of any of its bases' slots."""
    return any(owner_of(kind, name) is not base for base, name in _slots_of(kind))


def _slots_of(kind: type) -> Slots:
    return {
        (base, name): slot
        for base in line_of(kind)
        if "__slots__" in content_of(base)
        for name, slot in content_of(base).items()
        if type(slot) is types.MemberDescriptorType
    }


def reduce(slots: Slots, thing: Any) -> Any:
    """As `object.__reduce_ex__` does it, but for the slots."""
    make, args, state, items, pairs = thing.__reduce_ex__(5)
    attributes = state[0] if type(state) is tuple else state
    held = [(base, name, slot.__get__(thing)) for (base, name), slot in slots.items() if _is_set(slot, thing)]
    return make, args, (attributes, held), items, pairs, fill


def _is_set(slot: Any, thing: Any) -> bool:
    try:
        slot.__get__(thing)
    except AttributeError:
        return False
    return True


def fill(thing: Any, content: tuple[dict[str, Any] | None, Held]) -> None:
    """Give an instance its attributes and slots; called by the unpickler."""
    attributes, held = content
    if attributes:
        vars(thing).update(attributes)
    for base, name, value in held:
        content_of(base)[name].__set__(thing, value)


def refuse_private(kind: type) -> None:
    """Raises UnsavableError for a class of cells whose only slot is a text: cloudpickle looks for that by this name."""
    name = content_of(kind).get("__slots__")
    if type(name) is str and name.startswith("__") and name not in content_of(kind):
        raise UnsavableError("a class whose only slot is private", kind, f"write it as __slots__ = ({name!r},)")
