"""Orders, in the imperative. Each ends in an event, failure included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.workload import Order


@dataclass(frozen=True, slots=True)
class Command:
    """Base of all orders."""


@dataclass(frozen=True, slots=True)
class SetTimer(Command):
    """Answer with TimerFired at `at`; replaces the timer before it."""

    at: float


@dataclass(frozen=True, slots=True)
class ReportRefusal(Command):
    """To the daemon itself: the plan led to an order that would break a promise, a defect of ours; it is not given.

    Attributes:
        workload: who would have got it.
        order: which one.
        why: which promise, for people.
    """

    workload: WorkloadId
    order: Order
    why: str


@dataclass(frozen=True, slots=True)
class WorkloadCommand(Command):
    """An order to one workload's supervisor.

    Attributes:
        command_id: the answer names it.
        reason: why, for its user.
        cause: the workload that made it necessary, if one did.
    """

    command_id: CommandId
    workload: WorkloadId
    reason: Why
    cause: WorkloadId | None


@dataclass(frozen=True, slots=True)
class StartProcess(WorkloadCommand):
    """Start the GPU process on `gpus` and bring the saved state back.

    Answers: ProcessStarted, then ProcessReady; StartFailed; or ProcessExited.
    """

    gpus: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True)
class SuspendProcess(WorkloadCommand):
    """Save everything, then end the GPU process. Never in mid-cell. Answers: ProcessSuspended or SuspendFailed."""


@dataclass(frozen=True, slots=True)
class FreezeProcess(WorkloadCommand):
    """Have the driver take the GPU process's memory to host memory, in mid-cell: the process lives and stands still.

    Answers: ProcessFrozen, or FreezeFailed within `timeout_s`; or ProcessExited.

    Attributes:
        timeout_s: how long that may take.
        beside_bytes: what others that are being frozen may still take of host memory: it is refused if there is no room
            for both.
    """

    timeout_s: float
    beside_bytes: int


@dataclass(frozen=True, slots=True)
class ThawProcess(WorkloadCommand):
    """Have the driver bring a frozen process's memory back to `gpus`, where it was: its cell goes on.

    Answers: ProcessThawed, or ThawFailed within `timeout_s`; or ProcessExited.
    """

    gpus: tuple[GpuUuid, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class TrimMemory(WorkloadCommand):
    """Give back memory that allocators cache but nobody uses. Answer: MemoryTrimmed."""


@dataclass(frozen=True, slots=True)
class InterruptCell(WorkloadCommand):
    """Interrupt the running cell: the Gpu is needed, and the process is stopped after `grace_s`.

    Answer: CellInterrupted, when it has been told. What ends the wait is CellFinished, or the deadline.
    """

    grace_s: float


@dataclass(frozen=True, slots=True)
class EndProcess(WorkloadCommand):
    """To the daemon itself, for a supervisor that did not obey StopProcess: kill the process. Answer: ProcessExited.

    Attributes:
        process: the GPU process; `None` when it never reported one.
    """

    process: ProcessId | None


@dataclass(frozen=True, slots=True)
class StopProcess(WorkloadCommand):
    """End the GPU process; what was saved before stands. Answer: ProcessExited.

    Attributes:
        grace_s: for commands between SIGTERM and SIGKILL; a notebook may interrupt its cell and save in this time.
    """

    grace_s: float
