"""What Gpus, workloads, orders and processes are known by. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NewType

GpuUuid = NewType("GpuUuid", str)
WorkloadId = NewType("WorkloadId", str)
CommandId = NewType("CommandId", int)

MOST_TOLD: Final = CommandId(2**62)
"""A supervisor may say anything: the last command that it says it has had is taken for no later one. As many ids again
are left for orders, which supervisors answer by a number below 2**63."""


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process, never known by its bare pid.

    Attributes:
        pid: in the daemon's pid namespace.
        start_time: clock ticks since boot, field 22 of /proc/PID/stat.
    """

    pid: int
    start_time: int
