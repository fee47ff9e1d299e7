"""Facts, in the past tense. Each carries `at`, the time it became known (seconds of the clock of decisions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.gpu import Claims, Gpu
    from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.policy import Policy
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all facts."""

    at: float


@dataclass(frozen=True, slots=True)
class GpusDiscovered(Event):
    """The node's Gpus as they are now; one that is missing has vanished, or is `left_out` by this daemon's start."""

    gpus: tuple[Gpu, ...]
    left_out: frozenset[GpuUuid] = frozenset()

    def why_gone(self, gpu: GpuUuid) -> Reason:
        """Why a Gpu that was there is missing."""
        return Reason.LEFT_OUT if gpu in self.left_out else Reason.VANISHED


@dataclass(frozen=True, slots=True)
class PolicyChanged(Event):
    """New numbers for the rules."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class GpusClaimed(Event):
    """What the cluster's scheduler has given away on this node, all of it as of now."""

    claims: Claims


@dataclass(frozen=True, slots=True)
class DaemonRestarted(Event):
    """The daemon has read its journal; what happened meanwhile is not known yet.

    `forgetful`: the journal was lost, so that supervisors of unknown workloads may be about to bring them back.
    """

    forgetful: bool = False


@dataclass(frozen=True, slots=True)
class DaemonStoodStill(Event):
    """The daemon has heard nobody for `seconds` until now: what came meanwhile is yet to be read."""

    seconds: float


@dataclass(frozen=True, slots=True)
class PlacedUse:
    """What one process of a workload uses on a Gpu."""

    workload: WorkloadId
    process: ProcessId
    bytes: int | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One Gpu's memory at one moment, with each process put down to its workload.

    Attributes:
        memory_used_bytes: by everybody; `None` when the driver did not say.
        placed: processes of workloads (descendants included).
        unplaced: bytes of every other process, `None` for hidden ones; no mapping at all when the driver does not list
            processes: then whatever the placed ones do not account for is a stranger's.
    """

    memory_used_bytes: int | None
    placed: tuple[PlacedUse, ...] = ()
    unplaced: Mapping[ProcessId, int | None] | None = None
    utilisation: float | None = None


@dataclass(frozen=True, slots=True)
class MemorySampled(Event):
    """The driver was asked; a Gpu that is missing gave no answer."""

    readings: Mapping[GpuUuid, GpuReading]


@dataclass(frozen=True, slots=True)
class TimerFired(Event):
    """The time that SetTimer asked for has come."""


@dataclass(frozen=True, slots=True)
class WorkloadEvent(Event):
    """A fact about one workload."""

    workload: WorkloadId


@dataclass(frozen=True, slots=True)
class WorkloadSubmitted(WorkloadEvent):
    """Somebody asks for a GPU.

    Attributes:
        context_bytes: what a CUDA context takes here, about.
        given_home: see `Workload.given_home`.
    """

    spec: WorkloadSpec
    context_bytes: int = 0
    given_home: tuple[GpuUuid, ...] | None = None


@dataclass(frozen=True, slots=True)
class HomeAssigned(WorkloadEvent):
    """The cluster's scheduler counts its request on these Gpus; none: it no longer says where."""

    gpus: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True)
class WorkloadAdopted(WorkloadEvent):
    """A supervisor has brought back a workload that the daemon no longer knew, with its running GPU process.

    Attributes:
        command_id: the last command it received, from an earlier daemon; ids go on after it.
        process: its GPU process.
        gpus: where that is.
        executing: whether a cell runs.
        saved_bytes: what is saved of its Gpu memory; `None`: nothing.
        frozen_bytes: what of it stands still in host memory, so that it holds nothing on `gpus`; `None`: it runs.
        uses: what the driver has just shown of its processes, which counted as nobody's until now.
        given_home: see `Workload.given_home`.
    """

    spec: WorkloadSpec
    context_bytes: int
    command_id: CommandId
    process: ProcessId
    gpus: tuple[GpuUuid, ...]
    executing: bool
    saved_bytes: int | None
    uses: Mapping[GpuUuid, tuple[PlacedUse, ...]]
    given_home: tuple[GpuUuid, ...] | None = None
    frozen_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRespecified(WorkloadEvent):
    """It asks for something else now."""

    spec: WorkloadSpec


@dataclass(frozen=True, slots=True)
class WorkloadReleased(WorkloadEvent):
    """It needs no GPU any more; its record ends when its process has."""

    reason: str


@dataclass(frozen=True, slots=True)
class SupervisorLost(WorkloadEvent):
    """The process that looked after it is gone, and its GPU process with it."""

    reason: str


@dataclass(frozen=True, slots=True)
class SuspendRequested(WorkloadEvent):
    """Its user wants it off the Gpu until its next cell or a resume."""

    reason: str


@dataclass(frozen=True, slots=True)
class ResumeRequested(WorkloadEvent):
    """Its user wants it back; also gives a failed workload another try."""


@dataclass(frozen=True, slots=True)
class KeepRequested(WorkloadEvent):
    """Its user holds it until then, whether or not a cell runs; `None`: no longer."""

    until: float | None


@dataclass(frozen=True, slots=True)
class MigrateRequested(WorkloadEvent):
    """Its user wants it on that Gpu: a wish, which guarantees come before."""

    gpu: GpuUuid


@dataclass(frozen=True, slots=True)
class CellStarted(WorkloadEvent):
    """A cell runs, or waits for the GPU."""


@dataclass(frozen=True, slots=True)
class CellFinished(WorkloadEvent):
    """The cell has ended, or no longer waits."""


@dataclass(frozen=True, slots=True)
class StateSaved(WorkloadEvent):
    """What it holds was saved; `saved_bytes` is what of it lives in Gpu memory, without the CUDA context."""

    saved_bytes: int


@dataclass(frozen=True, slots=True)
class VariablesLost(WorkloadEvent):
    """Its kernel was told to end, and not all that was to outlive it could be kept.

    `missing`: names of variables; `lost_cells`: cells that are not in what is kept.
    """

    reason: str
    missing: tuple[str, ...] = ()
    lost_cells: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessExited(WorkloadEvent):
    """Its GPU process is gone: asked for or not. `reason` says how, or why; no process: a stop found none.

    `code`: its exit status, 0 where it ended well, 128 + n where signal n ended it; `None`: not told.
    """

    process: ProcessId | None
    reason: str | Why
    code: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadReported(WorkloadEvent):
    """Its supervisor has connected again and says how it is.

    Attributes:
        command_id: the last command that it has answered.
        process: its GPU process, if there is one.
        ready: whether that can be used.
        executing: whether a cell runs or waits.
        saved_bytes: what it needs on a Gpu to come back; `None`: nothing is saved.
        received: the last command that it has got, if that is known: a journal may have lost its end.
        frozen_bytes: what of its process stands still in host memory; `None`: the process is not frozen.
        gpus: where its process is, or is being started; empty: it has none, or its supervisor does not tell.
        doing: the order that it carries out: `start`, `suspend` or another; empty: none, or that is not told.
    """

    command_id: CommandId
    process: ProcessId | None
    ready: bool
    executing: bool
    saved_bytes: int | None
    received: CommandId | None = None
    frozen_bytes: int | None = None
    gpus: tuple[GpuUuid, ...] = ()
    doing: str = ""


@dataclass(frozen=True, slots=True)
class FreezeTested(WorkloadEvent):
    """Its supervisor has found out whether its process can be frozen. `refusal`: why not; `None`: it can be."""

    refusal: str | None


@dataclass(frozen=True, slots=True)
class MemoryWanted(WorkloadEvent):
    """An allocation has failed within its limit; its cell waits for the answer.

    Attributes:
        number: the answer names it; a larger one supersedes it.
        gpu: where.
        bytes: what was to be allocated.
        held_bytes: what the process holds there already, context included.
    """

    number: int
    gpu: GpuUuid
    bytes: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class CommandEvent(WorkloadEvent):
    """The answer to one command."""

    command_id: CommandId


@dataclass(frozen=True, slots=True)
class ProcessStarted(CommandEvent):
    """StartProcess: the process exists, and is not ready yet."""

    process: ProcessId


@dataclass(frozen=True, slots=True)
class ProcessReady(CommandEvent):
    """StartProcess: the saved state, if any, is back; it can be used.

    Attributes:
        missing: names that are not back.
        lost_cells: cells that had completed, and that the saved state does not hold.
    """

    missing: tuple[str, ...] = ()
    lost_cells: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFailed(CommandEvent):
    """StartProcess: there is no usable process, and none is left behind."""

    reason: str


@dataclass(frozen=True, slots=True)
class ProcessSuspended(CommandEvent):
    """SuspendProcess: everything that can be saved is saved, and the process has ended."""

    saved_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryTrimmed(CommandEvent):
    """TrimMemory: allocators have given back what they cached, or there was nothing to give."""


@dataclass(frozen=True, slots=True)
class CellInterrupted(CommandEvent):
    """InterruptCell: the cell was told. `reached` is false where there was none any more."""

    reached: bool = True


@dataclass(frozen=True, slots=True)
class SuspendFailed(CommandEvent):
    """SuspendProcess: the process goes on. `busy`: only because a cell had just started."""

    reason: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class ProcessFrozen(CommandEvent):
    """FreezeProcess: the process lives, and nothing of it is on a Gpu; `frozen_bytes` of it are in host memory."""

    frozen_bytes: int


@dataclass(frozen=True, slots=True)
class FreezeFailed(CommandEvent):
    """FreezeProcess: the process goes on as before, and keeps its memory."""

    reason: str | Why


@dataclass(frozen=True, slots=True)
class ProcessThawed(CommandEvent):
    """ThawProcess: the process has its memory again, and goes on."""


@dataclass(frozen=True, slots=True)
class ThawFailed(CommandEvent):
    """ThawProcess: the process stands still as before, nothing of it is on a Gpu."""

    reason: str | Why
