"""Types that ctypes makes from others: arrays, pointers, functions. They are made again, as those that it knows.

Their objects pickle themselves, with a copy of their memory.
"""

from __future__ import annotations

import operator
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.kinds import module_of
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


# The numbers of ctypes have these, in the order of their bytes of this machine and in the other one.
_NATIVE, _SWAPPED = ("__ctype_le__", "__ctype_be__")[:: 1 if sys.byteorder == "little" else -1]


def reduce(kind: Any) -> Any:
    """How such a type is made; `None` for all others. Raises UnsavableError for one that a class statement has made."""
    ctypes = sys.modules.get("ctypes")
    if ctypes is None:
        return None
    for made in (ctypes.c_int, ctypes.Structure, ctypes.Union):
        if kind is type(made):  # which nobody can import
            return type, (made,)
    if type(kind) is type(ctypes.c_int):
        native = getattr(kind, _NATIVE, kind)
        return (getattr, (native, _SWAPPED)) if getattr(native, _SWAPPED, native) is kind is not native else None
    if issubclass(kind, ctypes.Array):
        if kind._type_ * kind._length_ is kind:
            return operator.mul, (kind._type_, kind._length_)
        raise UnsavableError("a class of arrays of ctypes", kind)
    if type(kind) is type(ctypes.POINTER(ctypes.c_int)) and ctypes.POINTER(kind._type_) is kind:
        return ctypes.POINTER, (kind._type_,)
    if type(kind) is type(ctypes.CFUNCTYPE(None)) and hasattr(kind, "_argtypes_"):
        signature = (kind._restype_, *kind._argtypes_)
        return (ctypes.CFUNCTYPE, signature) if ctypes.CFUNCTYPE(*signature) is kind else None
    return None


def is_field(found: Any) -> bool:
    """Whether it is what a structure or union of ctypes has for each of its `_fields_`."""
    ctypes, kind = sys.modules.get("ctypes"), type(found)
    named = kind.__name__ == "CField"
    return ctypes is not None and named and module_of(kind) in {module_of(type(ctypes.Structure)), "ctypes"}


def given_once(kind: type, body: Collection[str]) -> set[str]:
    """What of a body's names its class cannot be given again."""
    return {"_fields_"} & {*body} if has_memory(kind) else set()


def has_memory(kind: type) -> bool:
    """Whether its objects are memory of ctypes'."""
    ctypes = sys.modules.get("ctypes")
    return ctypes is not None and issubclass(kind, ctypes.Array.__base__)


def reduce_memory(note: Callable[[str], None], thing: Any) -> Any:
    """As it pickles itself."""
    if thing._b_base_ is not None or not thing._b_needsfree_:
        note("memory of ctypes that is a part of another object's comes back as a copy")
    return NotImplemented
