"""The code of functions, with the name of its file: cloudpickle leaves that out since 3.1.3.

Cells are told apart by it: in tracebacks, by `inspect.getsource`, and by whoever compiles a function anew.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable


def reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """As cloudpickle takes it apart, for a pickler of either side."""
    make, parts = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return named_code, (make, parts, code.co_filename)


def named_code(make: Callable[..., types.CodeType], parts: tuple[Any, ...], filename: str) -> types.CodeType:
    """Called by the unpickler."""
    return make(*parts).replace(co_filename=filename)
