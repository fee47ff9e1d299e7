"""By what libraries allocate memory of GPUs, and what puts classes of RAPIDS in the place of pandas' and others'."""

from __future__ import annotations

import functools
import sys
from typing import Any

from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.looks import importable
from nls_jupyter.saved_state.manifest import NotKeptError


def of_allocators() -> tuple[Aspect, ...]:
    """All of these, each where its library is imported."""
    return (
        # Before the names: without it, these lead to other classes of pandas' and scikit-learn's.
        *(
            Aspect(name, functools.partial(_accelerated, name), lambda name: _of(name).install(), name, early=True)
            for name in ("cudf.pandas", "cuml.accel")
        ),
        Aspect(
            "CuPy's allocator", _cupy_allocator, lambda kept: _of("cupy").cuda.set_allocator(kept), "cupy", early=True
        ),
        Aspect("PyTorch's allocator", _torch_allocator, lambda _: None, "torch", always=True),
        # Not asked right after the import, which would initialize CUDA in a process that stands by.
        Aspect("RMM's memory resource", _rmm_resource, lambda _: None, "rmm", always=True),
    )


def _of(module: str) -> Any:
    return sys.modules[module]


def _accelerated(name: str) -> str | None:
    """The name of that module where it has put its classes in the place of a library's."""
    module = sys.modules.get(name)
    is_on = getattr(module, "enabled", lambda: getattr(module, "LOADED", False))
    return name if is_on() else None


def _cupy_allocator() -> Any:
    """A function of a library's, such as cuDF sets when it is imported; of a pool of CuPy's nothing can be read."""
    cupy = _of("cupy")
    allocator = cupy.cuda.get_allocator()
    if getattr(allocator, "__self__", None) is cupy.get_default_memory_pool():
        return None
    if not hasattr(allocator, "__qualname__") or not importable(allocator):
        raise NotKeptError("nobody can make again what cupy.cuda.set_allocator was given: run its cell again")
    return allocator


def _torch_allocator() -> None:
    torch = _of("torch")
    if torch.cuda.is_initialized() and torch.cuda.get_allocator_backend() == "pluggable":
        raise NotKeptError("nobody can ask which one it is: tensors come back by PyTorch's own")


def _rmm_resource() -> None:
    rmm = _of("rmm")
    accelerators = (_accelerated("cudf.pandas"), _accelerated("cuml.accel"))  # which set it again
    if not any(accelerators) and not isinstance(rmm.mr.get_current_device_resource(), rmm.mr.CudaMemoryResource):
        raise NotKeptError("RMM does not tell what it was initialized with: run that cell again")
