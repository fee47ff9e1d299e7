"""Which workload a process on a Gpu belongs to. Reads /proc; called from the poller's thread only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.core.model.events import GpuReading, PlacedUse
from nls_scheduler.processes.guardian import is_guardian
from nls_scheduler.processes.proc import ancestors, look_up, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.ports import GpuSample


@dataclass(frozen=True, slots=True)
class Known:
    """What the state knew when the sample was taken.

    Attributes:
        processes: GPU processes, and those that ended and are still being released.
        owners: user id of each workload that is there.
        sizes: request and limit of each, in bytes.
        tenants: see `WorkloadSpec.tenant`.
    """

    processes: Mapping[ProcessId, WorkloadId]
    owners: Mapping[WorkloadId, int]
    sizes: Mapping[WorkloadId, tuple[int, int]] = field(default_factory=dict)
    tenants: Mapping[WorkloadId, str] = field(default_factory=dict)

    @classmethod
    def of(cls, state: NodeState) -> Known:
        """A snapshot for the poller's thread."""
        processes = {r.process: r.workload for gpu in state.gpus.values() for r in gpu.releasing}
        processes |= {w.process: w.id for w in state.workloads.values() if w.process is not None}
        workloads = state.workloads.values()
        sizes = {w.id: (w.spec.request_bytes, w.spec.limit_bytes) for w in workloads}
        tenants = {w.id: w.spec.tenant for w in workloads}
        return cls(processes, {w.id: w.spec.owner for w in workloads}, sizes, tenants)


def _no_tenant(pid: int) -> str:
    """On a plain server a user id says all."""
    del pid
    return ""


class Attribution:
    """Puts each process down to its workload: its GPU process, a descendant of it or of its guardian, or who names it.

    A dead process can no longer be asked, so what was found out about it while it lived is kept as long as the driver
    shows it.
    """

    def __init__(self, tenant_of: Callable[[int], str] = _no_tenant) -> None:
        """`tenant_of` says whose process a pid is; see `WorkloadSpec.tenant`."""
        self._tenant_of = tenant_of
        self._found: dict[ProcessId, WorkloadId] = {}

    def readings(self, samples: Mapping[GpuUuid, GpuSample], known: Known) -> dict[GpuUuid, GpuReading]:
        """Each Gpu's sample with its processes attributed."""
        seen = {process for sample in samples.values() for process in sample.processes or ()}
        found = {process: workload for process in seen if (workload := self._workload(process, known)) is not None}
        self._found = found
        return {uuid: _reading(sample, found) for uuid, sample in samples.items()}

    def _workload(self, process: ProcessId, known: Known) -> WorkloadId | None:
        if process in known.processes:
            return known.processes[process]
        before = self._found.get(process)
        if before in known.owners:
            return before
        record = look_up(process.pid)
        if record is None or record.id != process:
            return None
        for ancestor in ancestors(record.parent_pid):
            if ancestor.id in known.processes:
                return known.processes[ancestor.id]
            if is_guardian(ancestor.id.pid) and (ward := _ward_of(ancestor.id.pid, known)) is not None:
                return ward  # an orphan that its guardian has adopted
        named = workload_of(process.pid)
        # Anybody may set a variable; only the workload's own user may use it to speak for the workload.
        if named is None or known.owners.get(named) != record.uid:
            return None
        return named if known.tenants.get(named, "") == self._tenant_of(process.pid) else None


def _ward_of(guardian: int, known: Known) -> WorkloadId | None:
    """The workload whose GPU process is a child of this guardian."""
    living = ((look_up(process.pid), process, workload) for process, workload in known.processes.items())
    wards = (w for record, process, w in living if record and record.id == process and record.parent_pid == guardian)
    return next(wards, None)


def _reading(sample: GpuSample, found: Mapping[ProcessId, WorkloadId]) -> GpuReading:
    if sample.processes is None:
        # Whose memory it is cannot be said; that is not the same as nobody's.
        return GpuReading(sample.memory_used_bytes, (), None, sample.utilisation)
    placed = tuple(
        PlacedUse(found[process], process, size) for process, size in sample.processes.items() if process in found
    )
    unplaced = {process: size for process, size in sample.processes.items() if process not in found}
    return GpuReading(sample.memory_used_bytes, placed, unplaced, sample.utilisation)
