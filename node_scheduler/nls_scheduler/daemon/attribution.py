"""Which workload a process on a Gpu belongs to. Reads /proc; called from the poller's thread only."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from nls_scheduler.core.model.events import GpuReading, PlacedUse
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.processes.guardian import is_guardian
from nls_scheduler.processes.proc import ancestors, look_up, workload_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.ports import GpuSample

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Known:
    """What the state knew when the sample was taken.

    Attributes:
        processes: GPU processes, and those that ended and are still being released.
        owners: user id of each workload that is there.
        sizes: request and limit of each, in bytes.
        tenants: see `WorkloadSpec.tenant`.
        places: the Gpus of each GPU process that runs.
    """

    processes: Mapping[ProcessId, WorkloadId]
    owners: Mapping[WorkloadId, int]
    sizes: Mapping[WorkloadId, tuple[int, int]] = field(default_factory=dict)
    tenants: Mapping[WorkloadId, str] = field(default_factory=dict)
    places: Mapping[ProcessId, Collection[GpuUuid]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: NodeState) -> Known:
        """A snapshot for the poller's thread."""
        processes = {r.process: r.workload for gpu in state.gpus.values() for r in gpu.releasing}
        processes |= {w.process: w.id for w in state.workloads.values() if w.process is not None}
        workloads = state.workloads.values()
        sizes = {w.id: (w.spec.request_bytes, w.spec.limit_bytes) for w in workloads}
        tenants = {w.id: w.spec.tenant for w in workloads}
        places = {w.process: w.current for w in workloads if w.process is not None and w.phase is Phase.RUNNING}
        return cls(processes, {w.id: w.spec.owner for w in workloads}, sizes, tenants, places)


class _Found(NamedTuple):
    """Whose a process is.

    Attributes:
        workload: the workload.
        through: the GPU process that it is or belongs to; `None` where its own variable says so.
    """

    workload: WorkloadId
    through: ProcessId | None


def _no_tenant(pid: int) -> str:
    """On a plain server a user id says all."""
    del pid
    return ""


class Attribution:
    """Puts each process down to its workload: its GPU process, a descendant of it or of its guardian, or who names it.

    One that has gone to another Gpu than its workload's, as programs do that set `CUDA_VISIBLE_DEVICES` themselves, was
    placed there by nobody. A dead process can no longer be asked, so what was found out about it while it lived is kept
    as long as the driver shows it.
    """

    def __init__(self, tenant_of: Callable[[int], str] = _no_tenant) -> None:
        """`tenant_of` says whose process a pid is; see `WorkloadSpec.tenant`."""
        self._tenant_of = tenant_of
        self._found: dict[ProcessId, _Found] = {}
        self._astray: set[tuple[ProcessId, GpuUuid]] = set()

    def readings(self, samples: Mapping[GpuUuid, GpuSample], known: Known) -> dict[GpuUuid, GpuReading]:
        """Each Gpu's sample with its processes attributed."""
        seen = {process for sample in samples.values() for process in sample.processes or ()}
        self._found = {process: found for process in seen if (found := self._whose(process, known)) is not None}
        readings, astray = {}, set()
        for uuid, sample in samples.items():
            there = [process for process in sample.processes or () if process in self._found]
            placed = {p: self._found[p].workload for p in there if self._belongs(p, uuid, known)}
            readings[uuid] = _reading(sample, placed)
            astray |= {(process, uuid) for process in there if process not in placed}
        for process, uuid in sorted(astray - self._astray):
            log.warning(
                "process %d of %s uses %s, which it was not given", process.pid, self._found[process].workload, uuid
            )
        self._astray = astray
        return readings

    def _belongs(self, process: ProcessId, uuid: GpuUuid, known: Known) -> bool:
        through = self._found[process].through
        return through is None or uuid in known.places.get(through, (uuid,))

    def _whose(self, process: ProcessId, known: Known) -> _Found | None:
        if process in known.processes:
            return _Found(known.processes[process], process)
        before = self._found.get(process)
        if before is not None and before.workload in known.owners:
            return before
        record = look_up(process.pid)
        if record is None or record.id != process:
            return None
        for ancestor in ancestors(record.parent_pid):
            if ancestor.id in known.processes:
                return _Found(known.processes[ancestor.id], ancestor.id)
            if is_guardian(ancestor.id.pid) and (ward := _ward_of(ancestor.id.pid, known)) is not None:
                return _Found(known.processes[ward], ward)  # an orphan that its guardian has adopted
        named = workload_of(process.pid)
        # Anybody may set a variable; only the workload's own user may use it to speak for the workload.
        if named is None or known.owners.get(named) != record.uid:
            return None
        return _Found(named, None) if known.tenants.get(named, "") == self._tenant_of(process.pid) else None


def _ward_of(guardian: int, known: Known) -> ProcessId | None:
    """The GPU process that is a child of this guardian."""
    living = ((look_up(process.pid), process) for process in known.processes)
    return next((p for record, p in living if record and record.id == p and record.parent_pid == guardian), None)


def _reading(sample: GpuSample, found: Mapping[ProcessId, WorkloadId]) -> GpuReading:
    if sample.processes is None:
        # Whose memory it is cannot be said; that is not the same as nobody's.
        return GpuReading(sample.memory_used_bytes, (), None, sample.utilisation)
    placed = tuple(
        PlacedUse(found[process], process, size) for process, size in sample.processes.items() if process in found
    )
    unplaced = {process: size for process, size in sample.processes.items() if process not in found}
    return GpuReading(sample.memory_used_bytes, placed, unplaced, sample.utilisation)
