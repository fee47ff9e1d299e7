"""The room on each Gpu while a plan is being made: who is meant to be where, and what still fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.pools import Placement
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.planning.making_room.allowances import allowances

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.pools import Pool
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


class Rooms:
    """A draft of who is on which Gpu. Memory that is being released counts as free here.

    Attributes:
        target: the draft: Gpus per placed workload.
        kept_for: whose turn comes next on a Gpu where nobody else goes before it.
        pools: the pool of each Gpu.
    """

    def __init__(self, state: NodeState, homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> None:
        self._state = state
        self._homes = homes
        self.gpus: dict[GpuUuid, Gpu] = usable_gpus(state)
        self.target: dict[WorkloadId, tuple[GpuUuid, ...]] = {}
        self.kept_for: dict[GpuUuid, WorkloadId] = {}
        self._members: dict[GpuUuid, dict[WorkloadId, Workload]] = {uuid: {} for uuid in state.gpus}
        self._requests: dict[GpuUuid, int] = dict.fromkeys(state.gpus, 0)
        self._sizes: dict[GpuUuid, int] = dict.fromkeys(state.gpus, 0)
        self._burst: dict[GpuUuid, int] = dict.fromkeys(state.gpus, 0)
        self._bursters: dict[GpuUuid, int] = dict.fromkeys(state.gpus, 0)
        self._capacity: dict[GpuUuid, int] = {uuid: gpu.capacity_bytes for uuid, gpu in state.gpus.items()}
        self._share: dict[GpuUuid, float] = dict.fromkeys(state.gpus, 1.0)
        self._openness: dict[tuple[WorkloadId, GpuUuid], bool] = {}
        self.pools: dict[GpuUuid, Pool] = {uuid: state.policy.pool_of(gpu) for uuid, gpu in state.gpus.items()}

    def add(self, workload: Workload, gpus: tuple[GpuUuid, ...]) -> None:
        """Place `workload` on `gpus` in the draft."""
        self.target[workload.id] = gpus
        for uuid in gpus:
            self._members[uuid][workload.id] = workload
            self._count(workload, uuid, 1)

    def remove(self, workload: Workload) -> None:
        """Take `workload` out of the draft."""
        for uuid in self.target.pop(workload.id):
            del self._members[uuid][workload.id]
            self._count(workload, uuid, -1)

    def _count(self, workload: Workload, uuid: GpuUuid, sign: int) -> None:
        self._requests[uuid] += sign * workload.spec.request_bytes
        self._sizes[uuid] += sign * self.size_on(workload, uuid)
        if workload.spec.may_borrow:
            self._burst[uuid] += sign * (workload.spec.limit_bytes - workload.spec.request_bytes)
            self._bursters[uuid] += sign
        self._share[uuid] = self._share_of(uuid, self._requests[uuid], self._burst[uuid])

    @staticmethod
    def size_on(workload: Workload, uuid: GpuUuid) -> int:
        """What `workload` takes on `uuid`: what it holds where it is; what it needs to come back elsewhere."""
        stays = workload.phase is Phase.RUNNING and uuid in workload.current
        return workload.size_bytes if stays else workload.return_bytes

    def members(self, uuid: GpuUuid) -> Iterable[Workload]:
        """Who is on `uuid` in the draft."""
        return list(self._members[uuid].values())

    def requests_exceed(self, uuid: GpuUuid) -> bool:
        """Whether the requests on `uuid` are more than it has."""
        return self._requests[uuid] > self._capacity[uuid]

    def sizes_exceed(self, uuid: GpuUuid) -> bool:
        """Whether what is held on `uuid`, each counted with at least its request, is more than it has."""
        return self._sizes[uuid] > self._capacity[uuid]

    def is_full(self, uuid: GpuUuid) -> bool:
        """Whether `uuid` has as many workloads as its pool allows."""
        cap = self.pools[uuid].max_workloads_per_gpu
        return cap is not None and len(self._members[uuid]) >= cap

    def may_stay(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `workload` may be on `uuid`: its home, or a Gpu where everybody is looked after by us.

        A Gpu whose memory is not known just now, or on which a process is stuck, gets nothing new and loses nobody.
        """
        gpu = self._state.gpus.get(uuid)
        if gpu is None or not gpu.healthy:
            return False
        return uuid in self._homes.get(workload.id, ()) or (workload.spec.may_borrow and not gpu.has_foreigners)

    def may_use(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `workload` may be placed on `uuid` anew."""
        key = (workload.id, uuid)
        known = self._openness.get(key)
        if known is None:
            known = uuid in self.gpus and self._is_open(workload, uuid) and self.may_stay(workload, uuid)
            self._openness[key] = known
        return known

    def _is_open(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether its pools include that of `uuid`; a home that was given to it stays one when pools change."""
        pool = self.pools[uuid]
        return uuid in self._homes.get(workload.id, ()) or (pool.enabled and pool.name in workload.spec.pools)

    def is_in_pools(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` belongs to one of its pools, which takes new ones."""
        return self.pools[uuid].enabled and self._in_pools(workload, uuid)

    def _in_pools(self, workload: Workload, uuid: GpuUuid) -> bool:
        return self.pools[uuid].name in workload.spec.pools

    def is_owed(self, workload: Workload) -> bool:
        """Whether those who are at home on its home leave its request: always, unless the pool is oversubscribed."""
        for uuid in self._homes[workload.id]:
            owners = [
                w for w in self._members[uuid].values() if uuid in self._homes.get(w.id, ()) and w.id != workload.id
            ]
            taken = sum(owner.spec.request_bytes for owner in owners)
            if taken + workload.spec.request_bytes > self._state.gpus[uuid].capacity_bytes:
                return False
        return True

    def fits(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` takes `workload` beside everybody in the draft, with all that it brings."""
        fits = self._sizes[uuid] + self.size_on(workload, uuid) <= self._capacity[uuid]
        return fits and self.fits_on_paper(workload, uuid)

    def fits_on_paper(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` takes `workload` beside the requests of everybody in the draft."""
        return (
            self._requests[uuid] + workload.spec.request_bytes <= self._capacity[uuid]
            and self.may_use(workload, uuid)
            and not self.is_full(uuid)
            and not self._is_kept_from(workload, uuid)
        )

    def _is_kept_from(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` is kept for another; who is there stays."""
        stays = workload.phase in (Phase.STARTING, Phase.RUNNING) and uuid in workload.current
        return self.kept_for.get(uuid, workload.id) != workload.id and not stays

    def holds_guest(self, guest: Workload, uuid: GpuUuid) -> bool:
        """Whether one that has lost its home may stay on `uuid`: beside everybody in the draft, and no stranger."""
        gpu = self._state.gpus.get(uuid)
        if gpu is None or not gpu.healthy or gpu.has_foreigners or self.is_full(uuid):
            return False
        room = gpu.capacity_bytes - self.size_on(guest, uuid)
        return self._requests[uuid] + guest.spec.request_bytes <= gpu.capacity_bytes and self._sizes[uuid] <= room

    def left_bytes(self, uuid: GpuUuid) -> tuple[int, int]:
        """What is left on `uuid` beside the requests, and beside what is held, of those in the draft."""
        capacity = self._capacity[uuid]
        return capacity - self._requests[uuid], capacity - self._sizes[uuid]

    def burst_bytes(self, uuid: GpuUuid) -> int:
        """How far above their requests those in the draft who may borrow could go on `uuid` by their limits."""
        return self._burst[uuid]

    def share(self, uuid: GpuUuid) -> float:
        """The part of (limit - request) that each burstable workload on `uuid` can reach at once, 0.0 to 1.0."""
        return self._share[uuid]

    def _share_of(self, uuid: GpuUuid, requests: int, burst: int) -> float:
        room = self._capacity[uuid] - requests
        if room <= 0:
            return 0.0 if burst else 1.0
        return 1.0 if room >= burst else room / burst

    def allowances(self) -> dict[WorkloadId, int]:
        """What everybody's allocators may use on each of their Gpus, by the draft as it is now."""
        capacity = {uuid: gpu.capacity_bytes for uuid, gpu in self._state.gpus.items()}
        workloads = self._state.workloads
        return allowances(((k, workloads[k].spec, gpus) for k, gpus in self.target.items()), capacity)

    def value(self) -> tuple[float, float]:
        """How well the draft spreads: the smallest share of any burstable workload, then the sum of the shares."""
        smallest, total = 1.0, 0.0
        for uuid, bursters in self._bursters.items():
            if bursters:
                share = self._share[uuid]
                total += bursters * share
                if share < smallest:
                    smallest = share
        return smallest, total

    def value_with(self, workload: Workload, uuid: GpuUuid) -> tuple[float, float]:
        """`value()` if `workload` were placed on `uuid`."""
        spec, share, bursters = workload.spec, self._share[uuid], self._bursters[uuid]
        burst = self._burst[uuid] + (spec.limit_bytes - spec.request_bytes if spec.may_borrow else 0)
        self._share[uuid] = self._share_of(uuid, self._requests[uuid] + spec.request_bytes, burst)
        self._bursters[uuid] += spec.may_borrow
        value = self.value()
        self._share[uuid], self._bursters[uuid] = share, bursters
        return value

    def best_for(self, workload: Workload) -> GpuUuid | None:
        """The Gpu that takes `workload` in full and leaves everybody the most burst; its home among equals.

        Where its user wishes it to be goes before all that.
        """
        fitting = [uuid for uuid in self.gpus if self.fits(workload, uuid)]
        if not fitting:
            return None
        if workload.wish in fitting:
            return workload.wish
        home = self._homes.get(workload.id, ())

        def rank(uuid: GpuUuid) -> tuple[float, float, bool, bool, int, int]:
            smallest, total = self.value_with(workload, uuid)
            if self.pools[uuid].placement is Placement.BINPACK:
                # No share counts here: at home first, then where most is used already.
                smallest, total = float(uuid in home), float(self._requests[uuid])
            wanted = workload.spec.pools.index(self.pools[uuid].name) if self._in_pools(workload, uuid) else 0
            return (-smallest, -total, uuid not in workload.current, uuid not in home, wanted, self.gpus[uuid].index)

        return min(fitting, key=rank)


def usable_gpus(state: NodeState) -> dict[GpuUuid, Gpu]:
    """The Gpus on which anything new may be placed."""
    stuck = stuck_gpus(state)
    return {u: g for u, g in state.gpus.items() if g.healthy and g.memory_used_bytes is not None and u not in stuck}


def is_usable(state: NodeState, gpu: Gpu) -> bool:
    """Whether anything new may be placed on `gpu`: healthy, its memory known, nothing stuck on it."""
    return gpu.healthy and gpu.memory_used_bytes is not None and gpu.uuid not in stuck_gpus(state)


def out_of_service(state: NodeState) -> dict[GpuUuid, Why]:
    """The Gpus that get nothing new until somebody acts, and why."""
    stuck = stuck_gpus(state)
    return {
        uuid: Why(Reason.STUCK) if gpu.healthy else gpu.unhealthy_reason or Why(Reason.UNHEALTHY)
        for uuid, gpu in state.gpus.items()
        if not gpu.healthy or uuid in stuck
    }


def stuck_gpus(state: NodeState) -> set[GpuUuid]:
    """Those that a process which should be gone still keeps when the time that the policy allows has passed."""
    stuck: set[GpuUuid] = set()
    timeout_s = state.policy.stop_timeout_s
    for workload in state.workloads.values():
        ending = workload.pending
        if ending is not None and ending.order is Order.END and state.at >= ending.deadline_at:
            stuck.update(workload.current)
    for uuid, gpu in state.gpus.items():
        if gpu.releasing and any(state.at >= r.since + timeout_s for r in gpu.releasing):
            stuck.add(uuid)
    return stuck


def has_room(state: NodeState, workload: Workload, gpu: Gpu) -> bool:
    """Whether `gpu` has room for `workload` in fact: nothing counts as free before the driver shows it."""
    if not is_usable(state, gpu) or borrows_beside_a_stranger(workload, gpu):
        return False
    return room_bytes(state, workload, gpu) >= workload.return_bytes


def borrows_beside_a_stranger(workload: Workload, gpu: Gpu) -> bool:
    """Whether `workload` would come to borrow where a process was seen that nobody placed.

    The next sample says whether that one is there to stay.
    """
    return bool(gpu.unplaced) and gpu.uuid not in workload.home


def room_bytes(state: NodeState, workload: Workload, gpu: Gpu) -> int:
    """What of `gpu` is free in fact for `workload`: what is on its way back, or out, still counts as taken."""
    taken = gpu.foreign_bytes + sum(r.bytes for r in gpu.releasing)
    for other in state.workloads.values():
        if gpu.uuid in other.current and other.id != workload.id:
            taken += max(other.size_bytes, other.used_bytes(gpu.uuid))
    return gpu.memory_total_bytes - taken
