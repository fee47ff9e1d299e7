"""What Gpus, workloads, orders and processes are known by. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

GpuUuid = NewType("GpuUuid", str)
WorkloadId = NewType("WorkloadId", str)
CommandId = NewType("CommandId", int)


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process, never known by its bare pid.

    Attributes:
        pid: in the daemon's pid namespace.
        start_time: clock ticks since boot, field 22 of /proc/PID/stat.
    """

    pid: int
    start_time: int
