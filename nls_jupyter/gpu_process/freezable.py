"""What of this process its GPU's driver cannot freeze: memory that it shares, with the host or with other processes.

Asked in mid-cell, before anything is begun; whatever is found is certain. What nobody can know from here is left to the
driver: handles of memory that something else than CuPy, Numba and PyTorch has made or opened, NCCL without PyTorch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.between.seams import TORCH_SHARED, TORCH_SHARED_STORAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

_IS_MANAGED: Final = 8
"""CU_POINTER_ATTRIBUTE_IS_MANAGED of cuda.h."""
_MAPS: Final = Path("/proc/self/maps")
MANAGED: Final = "it uses managed memory, which is the GPU's and the host's at once"
NCCL: Final = "it has joined others by NCCL"


class Freezable:
    """Looks after this process from the start on: who has handed out a handle of its memory cannot be asked later."""

    def __init__(self, maps: Path = _MAPS) -> None:
        self._maps = maps
        self._by: str | None = None
        self._imports = AfterImport({"cupy": self._follow_cupy, "numba.cuda.cudadrv.driver": self._follow_numba})

    def install(self) -> None:
        """Follow libraries as soon as they are imported."""
        self._imports.install()

    def remove(self) -> None:
        """Follow no more of them."""
        self._imports.remove()

    def why_not(self) -> str | None:
        """Why the driver cannot freeze it now, as a clause for its user; `None`: nothing is known against it.

        Takes no context and creates none, in any thread.
        """
        if _uses_managed_memory(self._maps):
            return MANAGED
        by = self._by or ("PyTorch" if _shares_tensors() else None)
        if by is not None:
            return f"it shares memory of the GPU with another process ({by})"
        return NCCL if _has_joined() else None

    def _follow_cupy(self, cupy: ModuleType) -> None:
        """CuPy 13.6 to 14.2; whoever imports these functions by name before CuPy's own import ends is not followed."""
        for name in ("ipcGetMemHandle", "ipcOpenMemHandle"):
            self._note(getattr(cupy.cuda, "runtime", None), name, "CuPy")

    def _follow_numba(self, driver: ModuleType) -> None:
        """Numba 0.59 to 0.68, and numba-cuda, which puts its own in the same place."""
        for name in ("get_ipc_handle", "open_ipc_handle"):
            self._note(getattr(driver, "Context", None), name, "Numba")

    def _note(self, owner: Any, name: str, who: str) -> None:
        call: Callable[..., Any] | None = getattr(owner, name, None)
        if call is None:
            return

        @functools.wraps(call)
        def noted(*args: Any, **options: Any) -> Any:
            result = call(*args, **options)
            self._by = who
            return result

        setattr(owner, name, noted)


def _uses_managed_memory(maps: Path) -> bool:
    """Whether any part of `/dev/nvidia-uvm` that is mapped is what the driver calls managed.

    Managed ranges are made by mapping that file; but for them only the driver's own semaphores are mapped from it
    (`uvm_mmap` in NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-uvm/uvm.c). So an H100 with driver 580 had it.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return False  # it is not even loaded
    return any(_is_managed(driver, address) for address in _mapped(maps))


def _mapped(maps: Path) -> Iterator[int]:
    with maps.open("rb") as lines:
        for line in lines:
            if line.rstrip().endswith(b"/nvidia-uvm"):
                yield int(line.partition(b"-")[0], 16)


def _is_managed(driver: ctypes.CDLL, address: int) -> bool:
    """An error says that it is none of the user's, or nothing at all."""
    managed = ctypes.c_uint64()  # the driver writes one byte, and takes no notice of more
    code = driver.cuPointerGetAttribute(ctypes.byref(managed), _IS_MANAGED, ctypes.c_uint64(address))
    return code == 0 and bool(managed.value)


def _shares_tensors() -> bool:
    """Whether a tensor on a GPU that lives has gone to another process, or came from one.

    `torch.multiprocessing.reductions` keeps a weak reference to each, those of tensors on the CPU among them (2.4 to
    2.13); it may be that another thread adds some.
    """
    known = TORCH_SHARED.here(None)
    storages = () if known is None else [TORCH_SHARED_STORAGE.here()(each.cdata) for each in [*known.values()]]
    return any(storage is not None and storage.device.type == "cuda" for storage in storages)


def _has_joined() -> bool:
    """NCCL and the driver's freezing exclude each other in practice."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    return "nccl" in str(distributed.get_backend())
