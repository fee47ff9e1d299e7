"""What `cupy.cuda.runtime` offers and a simulated Gpu can answer."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from nls_scheduler.drivers.simulated import SIMULATION_VARIABLE, SimulatedGpu

if TYPE_CHECKING:
    from collections.abc import Mapping


# CUDA's own numbers.
errorMemoryAllocation: Final = 2  # noqa: N816 - CuPy's name
_ERRORS: Final = {
    errorMemoryAllocation: "cudaErrorMemoryAllocation: out of memory",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
}


class CUDARuntimeError(RuntimeError):
    """A call that no visible simulated Gpu can serve, named as CUDA names it; `status` is CUDA's number."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(_ERRORS[status])

    def __reduce__(self) -> tuple[type[CUDARuntimeError], tuple[int]]:
        return type(self), (self.status,)


_visible: dict[tuple[str | None, str | None], tuple[SimulatedGpu, ...]] = {}
_thread = threading.local()


def gpus() -> tuple[SimulatedGpu, ...]:
    """The simulated Gpus that this process may use, in CUDA's order."""
    key = (os.environ.get(SIMULATION_VARIABLE), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if key not in _visible:
        _visible[key] = SimulatedGpu.visible(os.environ) or ()
    return _visible[key]


def gpu(device: int) -> SimulatedGpu:
    """The simulated Gpu behind a device number. Raises `CUDARuntimeError`."""
    shown = gpus()
    if not shown:
        raise CUDARuntimeError(100)
    if not 0 <= device < len(shown):
        raise CUDARuntimeError(101)
    return shown[device]


def getDeviceCount() -> int:  # noqa: N802 - CuPy's name
    """How many Gpus this process sees. Raises `CUDARuntimeError` when it is none."""
    gpu(0)
    return len(gpus())


def getDevice() -> int:  # noqa: N802 - CuPy's name
    """The calling thread's current device."""
    return int(getattr(_thread, "device", 0))


def setDevice(device: int) -> None:  # noqa: N802 - CuPy's name
    """Make `device` current for the calling thread."""
    gpu(device)
    _thread.device = device


def deviceSynchronize() -> None:  # noqa: N802 - CuPy's name
    """Nothing runs behind the caller's back on a simulated Gpu; like CUDA it creates the context."""
    gpu(getDevice()).attach()


def memGetInfo() -> tuple[int, int]:  # noqa: N802 - CuPy's name
    """Free and total bytes of the current device; like CUDA it creates the context."""
    current = gpu(getDevice())
    current.attach()
    return current.memory_info()


def getDeviceProperties(device: int) -> Mapping[str, object]:  # noqa: N802 - CuPy's name
    """Name (bytes, as in CuPy) and memory of a device."""
    shown = gpu(device)
    return {"name": shown.name.encode(), "totalGlobalMem": shown.memory_info()[1]}
