"""Where each request is counted.

On a plain server homes are ours to choose, and choosing again costs nothing by itself: only a workload that cannot
burst has to follow its home.

The rule: the sum of the requests at home on a Gpu stays within its capacity, whole Gpus are kept free on paper
(best fit), and an older or more important workload is admitted first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.rooms import is_usable
from nls_scheduler.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nls_scheduler.model import GpuUuid, NodeState, Workload, WorkloadId

    _Free = dict[GpuUuid, int]
    _HomeOf = dict[WorkloadId, tuple[GpuUuid, ...]]


@dataclass(slots=True)
class Homes:
    """The result: `homes` of the admitted; why the others wait; who was given another home, and for whom."""

    homes: dict[WorkloadId, tuple[GpuUuid, ...]] = field(default_factory=dict)
    waits: dict[WorkloadId, str] = field(default_factory=dict)
    moved_for: dict[WorkloadId, WorkloadId] = field(default_factory=dict)
    wake_at: list[float] = field(default_factory=list)


def admission_order(workload: Workload) -> tuple[int, float, str]:
    """Priority first, then arrival, then id."""
    return (-workload.spec.priority, workload.submitted_at, workload.id)


def assign_homes(state: NodeState, workloads: Iterable[Workload]) -> Homes:
    """Homes for `workloads` (those that are neither released nor failed)."""
    admission = _Admission(state)
    homeless = sorted(admission.keep(sorted(workloads, key=admission_order)), key=admission_order)
    result = admission.result
    waiting = []
    for position, workload in enumerate(homeless):
        if admission.admit(workload):
            continue
        waiting.append(workload)
        starves_at = _waiting_since(workload) + state.policy.starvation_s
        if state.at >= starves_at:
            for later in homeless[position + 1 :]:
                result.waits[later.id] = f"room is reserved for {workload.spec.name}, which has waited longer"
            break
        if len(homeless) > position + 1:
            result.wake_at.append(starves_at)
    if waiting:
        held = "; ".join(_holders(state, result)) or "this node has no GPU in service"
        for workload in waiting:
            gpus = "one GPU" if workload.spec.gpu_count == 1 else f"each of {workload.spec.gpu_count} GPUs"
            result.waits[workload.id] = f"no room for {format_bytes(workload.spec.request_bytes)} on {gpus}: {held}"
    return result


def _waiting_since(workload: Workload) -> float:
    return workload.submitted_at if workload.waiting_since is None else workload.waiting_since


class _Admission:
    """One round: what is still free on paper, and who has got what."""

    def __init__(self, state: NodeState) -> None:
        self.result = Homes()
        self._state = state
        self._pools = {uuid: state.policy.pool_of(gpu) for uuid, gpu in state.gpus.items()}
        self._oversubscribed = {uuid for uuid, pool in self._pools.items() if pool.oversubscribe > 1.0}
        self._free = {
            uuid: self._pools[uuid].home_capacity_bytes(gpu) for uuid, gpu in state.gpus.items() if gpu.healthy
        }
        self._usable = {uuid for uuid, gpu in state.gpus.items() if is_usable(state, gpu)}
        self._present = dict.fromkeys(state.gpus, 0)
        for workload in state.workloads.values():
            for uuid in workload.current:
                if uuid in self._present:
                    self._present[uuid] += workload.size_bytes
        self._too_large: dict[tuple[int, tuple[str, ...], bool], int] = {}

    def keep(self, ordered: list[Workload]) -> list[Workload]:
        """Keep the homes that still hold; return who has none. A process that cannot move keeps its own."""
        homeless = []
        for workload in sorted(ordered, key=lambda w: (w.spec.movable or not w.present, not w.home)):
            bound = workload.present and not workload.spec.movable
            homes = self.result.homes
            holds = bool(workload.home) and all(self._fits(workload, uuid, self._free, homes) for uuid in workload.home)
            if not holds and not (bound and all(uuid in self._state.gpus for uuid in workload.home)):
                homeless.append(workload)
                continue
            for uuid in workload.home:
                self._free.setdefault(uuid, 0)
            self._give(workload, workload.home, self._free, homes)
        return homeless

    def admit(self, workload: Workload) -> bool:
        """A home for `workload`, if need be by giving others another one. False: it has to wait."""
        home = self._best_fit(workload, self._free, self.result.homes)
        if home is not None:
            self._give(workload, home, self._free, self.result.homes)
            return True
        # Where one this large found no room, a larger one finds none either.
        spec = workload.spec
        kind, request = (spec.gpu_count, spec.pools, spec.can_take_turns), spec.request_bytes
        if request >= self._too_large.get(kind, request + 1):
            return False
        if self._repack(workload):
            return True
        self._too_large[kind] = request
        return False

    def _best_fit(self, workload: Workload, free: _Free, homes: _HomeOf) -> tuple[GpuUuid, ...] | None:
        """The Gpus of the first of its pools that have room: the fullest; then where it is; then the least present."""
        found = (self._best_fit_in(pool, workload, free, homes) for pool in workload.spec.pools)
        return next((home for home in found if home is not None), None)

    def _best_fit_in(self, pool: str, workload: Workload, free: _Free, homes: _HomeOf) -> tuple[GpuUuid, ...] | None:
        gpus, count = self._state.gpus, workload.spec.gpu_count
        fitting = [
            (room, uuid not in workload.current, self._present[uuid], gpus[uuid].index, uuid)
            for uuid, room in free.items()
            if uuid in self._usable and self._is_open(pool, uuid) and self._fits(workload, uuid, free, homes)
        ]
        if len(fitting) < count:
            return None
        best = [min(fitting)] if count == 1 else sorted(fitting)[:count]
        return tuple(uuid for *_, uuid in sorted(best, key=lambda fit: fit[3]))

    def _is_open(self, pool: str, uuid: GpuUuid) -> bool:
        own = self._pools[uuid]
        return own.name == pool and own.enabled

    def _fits(self, workload: Workload, uuid: GpuUuid, free: _Free, homes: _HomeOf) -> bool:
        """Whether its request may be counted on `uuid`; where more is promised, each must still fit in its turn."""
        if uuid not in self._oversubscribed:
            return free.get(uuid, -1) >= workload.spec.request_bytes
        if free.get(uuid, -1) < self._cost(workload, uuid):
            return False
        others = [self._state.workloads[w] for w, home in homes.items() if uuid in home and w != workload.id]
        there = [*others, workload]
        firm = sum(w.spec.request_bytes for w in there if not w.spec.can_take_turns)
        largest = max((w.spec.request_bytes for w in there if w.spec.can_take_turns), default=0)
        return firm + largest <= self._state.gpus[uuid].capacity_bytes

    def _cost(self, workload: Workload, uuid: GpuUuid) -> int:
        """Who cannot take turns leaves that much less to promise: what remains of the Gpu is oversubscribed."""
        if uuid not in self._oversubscribed or workload.spec.can_take_turns:
            return workload.spec.request_bytes
        return round(workload.spec.request_bytes * self._pools[uuid].oversubscribe)

    def _give(self, workload: Workload, home: tuple[GpuUuid, ...], free: _Free, homes: _HomeOf) -> None:
        homes[workload.id] = home
        for uuid in home:
            free[uuid] -= self._cost(workload, uuid)

    def _repack(self, newcomer: Workload) -> bool:
        """Admit `newcomer` by giving others another home: bursters first, who need not move for it."""
        needed = newcomer.spec.request_bytes * newcomer.spec.gpu_count
        if sum(room for room in self._free.values() if room > 0) < needed:
            return False
        admitted = [self._state.workloads[w] for w in self.result.homes]
        bursters = [w for w in admitted if w.spec.may_borrow]
        movable = [w for w in admitted if w.spec.movable]
        choices = [bursters] if len(movable) == len(bursters) else [bursters, movable]
        return any(self._pack_again(newcomer, candidates) for candidates in choices)

    def _pack_again(self, newcomer: Workload, candidates: list[Workload]) -> bool:
        """First the newcomer, then the candidates by decreasing size, each at its old home where that has room."""
        old = self.result.homes
        moving = {workload.id for workload in candidates}
        free, trial = dict(self._free), {w: home for w, home in old.items() if w not in moving}
        for workload in candidates:
            for uuid in old[workload.id]:
                free[uuid] += self._cost(workload, uuid)
        home = self._best_fit(newcomer, free, trial)
        if home is None:
            return False
        self._give(newcomer, home, free, trial)
        for workload in sorted(candidates, key=lambda w: (-w.spec.request_bytes, *admission_order(w))):
            own = old[workload.id]
            fits = all(self._fits(workload, uuid, free, trial) for uuid in own)
            new_home = own if fits else self._best_fit(workload, free, trial)
            if new_home is None:
                return False
            self._give(workload, new_home, free, trial)
        moved = [w.id for w in candidates if trial[w.id] != old[w.id]]
        self.result.moved_for.update(dict.fromkeys(moved, newcomer.id))
        self.result.homes.update(trial)
        self._free = free
        return True


def _holders(state: NodeState, result: Homes) -> list[str]:
    """Who holds each Gpu on paper, as sentences."""
    names: dict[GpuUuid, list[str]] = {uuid: [] for uuid in state.gpus}
    for workload_id, home in result.homes.items():
        for uuid in home:
            names[uuid].append(state.workloads[workload_id].spec.name)
    held = []
    for gpu in sorted(state.gpus.values(), key=lambda g: g.index):
        if gpu.unplaced_bytes:
            names[gpu.uuid].append(f"other processes ({format_bytes(gpu.unplaced_bytes)})")
        if not gpu.healthy:
            held.append(f"{gpu.label} is out of service")
        elif names[gpu.uuid]:
            held.append(f"{gpu.label} is held by {' and '.join(names[gpu.uuid])}")
    return held


def why_no_room(before: NodeState, after: NodeState, adopted: WorkloadId) -> str | None:
    """Why a workload with a process cannot be taken up where it is; `None`: `after` keeps everybody's guarantee."""
    workload = after.workloads[adopted]
    for uuid in workload.current:
        now = sum(w.spec.request_bytes for w in after.workloads.values() if uuid in w.current)
        if now > after.gpus[uuid].memory_total_bytes:
            return f"the requests on {after.gpus[uuid].label} would be more than it has"
    if not workload.home:
        return "its request fits on no GPU on paper"
    homeless = [w for w in before.workloads.values() if w.home and not after.workloads[w.id].home]
    return f"{homeless[0].spec.name} would lose its guarantee" if homeless else None
