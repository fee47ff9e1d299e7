"""What `nls doctor` asks the NVIDIA driver."""

from __future__ import annotations

from typing import NamedTuple

import pynvml

from nls_scheduler.drivers.nvml_fields import LOST, field, is_cut, is_shareable, memory_of, why


class Surveyed(NamedTuple):
    """One whole Gpu, for `nls doctor`.

    Attributes:
        name: `None`: it is lost.
        persistent: persistence mode; `None`: not told.
        has_memory: whether the driver tells its memory.
        is_shareable: whether its compute mode lets several processes use it without MPS.
    """

    name: str | None
    persistent: bool | None
    has_memory: bool = True
    is_shareable: bool = True


def survey() -> list[Surveyed]:
    """All whole Gpus.

    Opens and closes the library by itself. Raises OSError with a reason.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise OSError(why(error)) from error
    try:
        return [_surveyed(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise OSError(why(error)) from error
    finally:
        field(pynvml.nvmlShutdown)


def _surveyed(index: int) -> Surveyed:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        mode = field(pynvml.nvmlDeviceGetPersistenceMode, handle)
        name = field(pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU"
        # Of a Gpu that is cut into slices it is told to administrators only.
        has_memory = is_cut(handle) or memory_of(handle) is not None
        return Surveyed(name, None if mode is None else bool(mode), has_memory, is_shareable(handle))
    except pynvml.NVMLError as error:
        if error.value in LOST:
            return Surveyed(None, None)
        raise


def driver_version() -> str | None:
    """The NVIDIA driver's version such as `580.65.06`, or `None` where there is no working driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    version: str | None = field(pynvml.nvmlSystemGetDriverVersion)
    field(pynvml.nvmlShutdown)
    return version
