"""A small NumPy-backed stand-in for CuPy on simulated Gpus: for demo, tests and examples.

Memory counts against the simulated Gpu, temporary results included, and allocations beyond it raise
`cuda.memory.OutOfMemoryError` where CuPy would. Users reach it as `from nls_jupyter import xp`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nls_jupyter.simulated_cupy import cuda, random
from nls_jupyter.simulated_cupy.arrays import TABLE, ndarray
from nls_jupyter.simulated_cupy.functions import REEXPORTS

# Named as in CuPy, so that whoever puts another pool in its place does the same here.
_default_memory_pool = cuda.MemoryPool()
cuda.set_allocator(_default_memory_pool.malloc)

__all__ = ["cuda", "get_array_module", "get_default_memory_pool", "ndarray", "random"]


def get_default_memory_pool() -> cuda.MemoryPool:
    """The pool that arrays get their memory from."""
    return _default_memory_pool


def get_array_module(*args: object) -> Any:
    """This package when an argument is on a simulated Gpu, else NumPy."""
    import nls_jupyter.simulated_cupy as package

    return package if any(isinstance(arg, ndarray) for arg in args) else np


def __getattr__(name: str) -> Any:
    if name in TABLE:
        return TABLE[name]
    if name in REEXPORTS:
        return getattr(np, name)
    raise AttributeError(
        f"The simulated xp has no {name!r}: it is a small stand-in for CuPy, for demo and tests. "
        "On a real GPU xp is CuPy itself."
    )


def __dir__() -> list[str]:
    return sorted([*__all__, *TABLE, *REEXPORTS])
