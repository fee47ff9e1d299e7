"""What the driver tells of a device, field by field: some of it is missing on some."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
log = logging.getLogger(__name__)

LOST: Final = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
_WHY: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "There is no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found): install one, or, in a container, "
        "start it with access to the GPUs."
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded: `modprobe nvidia`, or restart the machine."
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "The NVIDIA driver's library and kernel module have different versions: restart the machine."
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "This user may not talk to the NVIDIA driver: check the rights of /dev/nvidia*.",
}


def why(error: pynvml.NVMLError) -> str:
    """Why NVML does not work at all, as a sentence."""
    return _WHY.get(error.value, f"The NVIDIA driver does not work: {error}.")


def devices() -> Iterator[tuple[Any, Any]]:
    """Handles of all Gpus and `None`; of one in MIG mode, its slices and the Gpu's own; twice `None`: it is lost."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = field(pynvml.nvmlDeviceGetHandleByIndex, index, missing=True)
        if handle is None or not is_cut(handle):
            yield handle, None
            continue
        for slot in range(field(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = field(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot, missing=True)
            if part is not None:
                yield part, handle


def is_shareable(handle: Any) -> bool:
    """Whether several processes may use it at once, without MPS."""
    mode = field(pynvml.nvmlDeviceGetComputeMode, handle, missing=True)
    return mode in (None, pynvml.NVML_COMPUTEMODE_DEFAULT)


def is_cut(handle: Any) -> bool:
    """Whether it is in MIG mode."""
    mode = field(pynvml.nvmlDeviceGetMigMode, handle)
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def name_of(handle: Any) -> str:
    """What it is called, or that it is one of NVIDIA's."""
    return field(pynvml.nvmlDeviceGetName, handle, missing=True) or "NVIDIA GPU"


def memory_of(handle: Any) -> tuple[int, int] | None:
    """Bytes that can be handed out, and bytes in use; neither counts what the driver reserves where it says that."""
    exact = field(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if exact is not None:
        return exact.total - exact.reserved, exact.used
    rough = field(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if rough is None else (rough.total, rough.used)


def field(ask: Callable[..., T], *arguments: Any, missing: bool = False) -> T | None:
    """What the driver answers, or `None` where it does not. Raises NVMLError for a lost Gpu unless `missing`."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in LOST and not missing:
            raise
        log.debug("the driver did not say: %s", error)
        return None
