"""What the driver shows of the process that asks, for a GPU process that wants to know what its own context takes."""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any

import pynvml

from nls_scheduler.drivers.pids import in_first_namespace

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid


def own_memory_bytes(uuid: GpuUuid) -> int | None:
    """All that this process has on a Gpu or a slice of one; `None` where the driver does not tell.

    In a pid namespace of its own it does not: the pids that it would show there are not ours.
    """
    handle = _handle(os.getpid(), uuid)
    if handle is None:
        return None
    with contextlib.suppress(pynvml.NVMLError):
        shown = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return next((process.usedGpuMemory for process in shown if process.pid == os.getpid()), None)
    return None


@functools.cache
def _handle(pid: int, uuid: GpuUuid) -> Any:
    """Asked for once in each process: after a fork the parent's is worth nothing."""
    del pid
    if not in_first_namespace():
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None
