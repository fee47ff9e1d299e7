"""Kernels that CuPy compiles at their first call: saved as they were written, and compiled again.

What they keep of it are addresses in the driver, by types of arguments: with these, the next call would be one to where
nothing is. CuPy 14.2: `cupy/_core/_kernel.pyx`, `cupyx/jit/_interface.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import CUPY_JIT
from nls_jupyter.saved_state.kinds import is_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Their classes and the reducer of all of them, as far as CuPy's modules are imported."""
    cupy = sys.modules.get("cupy")
    kinds = (getattr(cupy, "ElementwiseKernel", None), getattr(cupy, "ufunc", None), CUPY_JIT.here(None))
    yield from ((kind, _reduce) for kind in kinds if isinstance(kind, type))


def _reduce(kernel: Any) -> Any:
    """As pickle does it, with empty dicts in the place of those of compiled code; Cython has a tuple of attributes."""
    make, args, *rest = kernel.__reduce_ex__(5)
    return make, tuple(map(_uncompiled, args)), *map(_uncompiled, rest)


def _uncompiled(part: Any) -> Any:
    if type(part) is tuple:
        return tuple(map(_uncompiled, part))
    if type(part) is not dict:
        return part
    if any(map(_is_compiled, part.values())):
        return {}
    return {
        key: {} if type(found) is dict and any(map(_is_compiled, found.values())) else found
        for key, found in part.items()
    }


def _is_compiled(found: Any) -> bool:
    compiled = getattr(sys.modules.get("cupy.cuda.function"), "Function", None)
    return compiled is not None and any(is_of(each, compiled) for each in (found if type(found) is tuple else (found,)))
