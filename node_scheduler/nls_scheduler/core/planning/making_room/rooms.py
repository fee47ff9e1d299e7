"""The room on each Gpu while a plan is being made: who is meant to be where, and what still fits."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gangs import spared_bytes
from nls_scheduler.core.model.pools import Placement
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room.allowances import allowances, share_of
from nls_scheduler.core.planning.making_room.occupancy import Occupancy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

_ALIKE: Final = 1e-4
"""Shares that differ by less are equal: they are found no more exactly than that."""
_DIGITS: Final = 9
"""Sums of shares that differ by less are equal: they are added up in different orders."""


class Rooms:
    """A draft of who is on which Gpu. Memory that is being released counts as free here.

    Attributes:
        target: the draft: Gpus per placed workload.
        kept_for: whose turn comes next on a Gpu where nobody else goes before it.
        pools: the pool of each Gpu.
        promises_more: whether more is promised of any of them than there is.
    """

    def __init__(self, state: NodeState, homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> None:
        self._state = state
        self._homes = homes
        self.gpus: Mapping[GpuUuid, Gpu] = state.usable
        self.kept_for: dict[GpuUuid, WorkloadId] = {}
        capacity = {uuid: gpu.capacity_bytes for uuid, gpu in state.gpus.items()}
        self._planned = Occupancy(capacity, lambda workload, _: workload.spec.request_bytes, self.size_on)
        self.target = self._planned.places
        self._left_on_paper, self._left = self._planned.left
        self._spread: dict[GpuUuid, tuple[float, int, int] | None] = dict.fromkeys(state.gpus)
        self._known_shares: tuple[float, list[tuple[float, GpuUuid]]] | None = None
        self._open: dict[WorkloadId, frozenset[GpuUuid]] = {}
        self._shared: dict[tuple[str, ...], frozenset[GpuUuid]] = {}
        self._in_service = {uuid: not gpu.has_foreigners for uuid, gpu in state.gpus.items() if gpu.healthy}
        self.pools = state.pools
        self.promises_more = any(pool.oversubscribe > 1.0 for pool in self.pools.values())

    def add(self, workload: Workload, gpus: tuple[GpuUuid, ...]) -> None:
        """Place `workload` on `gpus` in the draft."""
        self._planned.put(workload, gpus)
        self._forget_shares(gpus)

    def add_all(self, placed: Collection[tuple[Workload, tuple[GpuUuid, ...]]]) -> None:
        """Place all of them in the draft."""
        self._planned.put_all(placed)
        self._forget_shares(tuple(self._spread))

    def remove(self, workload: Workload) -> None:
        """Take `workload` out of the draft."""
        self._forget_shares(self._planned.take(workload))

    def move(self, workload: Workload, gpus: tuple[GpuUuid, ...]) -> None:
        """Place `workload` on `gpus` in the draft, and no longer where it is there."""
        self.remove(workload)
        self.add(workload, gpus)

    @contextmanager
    def less_on_paper(self, taken: Mapping[GpuUuid, int]) -> Iterator[None]:
        """Meanwhile so much less is left beside the requests."""
        if not taken:
            yield
            return
        for sign in (-1, 1):
            for uuid, size_bytes in taken.items():
                self._left_on_paper[uuid] += sign * size_bytes
            self._forget_shares(tuple(taken))
            if sign < 0:
                yield

    def _forget_shares(self, gpus: tuple[GpuUuid, ...]) -> None:
        self._known_shares = None
        for uuid in gpus:
            self._spread[uuid] = None

    @staticmethod
    def size_on(workload: Workload, uuid: GpuUuid) -> int:
        """What `workload` takes on `uuid`: what it holds where it is; what it needs to come back elsewhere."""
        stays = workload.phase is Phase.RUNNING and uuid in workload.current
        return workload.size_bytes if stays else workload.return_bytes

    def members(self, uuid: GpuUuid) -> Sequence[Workload]:
        """Who is on `uuid` in the draft."""
        return list(self._planned.members(uuid))

    def requests_exceed(self, uuid: GpuUuid) -> bool:
        """Whether the requests on `uuid` are more than it has."""
        return self._left_on_paper[uuid] < 0

    def sizes_exceed(self, uuid: GpuUuid) -> bool:
        """Whether what is held on `uuid`, each counted with at least its request, is more than it has."""
        left_bytes = self._left[uuid]
        return left_bytes < 0 and left_bytes + spared_bytes(self.members(uuid), lambda w: self.size_on(w, uuid)) < 0

    def is_full_for(self, workload: Workload, uuid: GpuUuid, beside: int = 0) -> bool:
        """Whether `uuid` has, with so many more, as many as its pool has there to burst; at home may be more."""
        cap = self.pools[uuid].max_workloads_per_gpu
        is_full = cap is not None and len(self._planned.members(uuid)) + beside >= cap
        return is_full and uuid not in self._homes.get(workload.id, ())

    def may_stay(self, workload: Workload) -> bool:
        """Whether `workload` may be where it is: at home, or in its pools where everybody is looked after by us.

        A Gpu whose memory is not known just now, or on which a process is stuck, gets nothing new and loses nobody.
        """
        home, there, spec = self._homes.get(workload.id, ()), self._in_service, workload.spec
        for uuid in workload.current:
            lent = uuid in there and there[uuid] and spec.may_borrow and self.pools[uuid].name in spec.pools
            if uuid not in there or not (uuid in home or lent):
                return False
        return True

    def may_use(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `workload` may be placed on `uuid` anew."""
        return uuid in self.open_to(workload)

    def open_to(self, workload: Workload) -> frozenset[GpuUuid]:
        """The Gpus on which `workload` may be placed anew: its home, and those of its pools that may be lent to it."""
        known = self._open.get(workload.id)
        if known is None:
            home = frozenset(self._homes.get(workload.id, ())).intersection(self.gpus)
            known = self._lent(workload.spec.pools) | home if workload.spec.may_borrow else home
            if workload.stands_on is not None:
                known = known.intersection(workload.stands_on)
            self._open[workload.id] = known
        return known

    def _lent(self, names: tuple[str, ...]) -> frozenset[GpuUuid]:
        """The Gpus of these pools that anybody may borrow: everybody there is looked after by us."""
        known = self._shared.get(names)
        if known is None:
            free = (uuid for uuid, gpu in self.gpus.items() if not gpu.has_foreigners)
            known = self._shared[names] = frozenset(uuid for uuid in free if self.pools[uuid].is_open_to(names))
        return known

    def is_owed(self, workload: Workload) -> bool:
        """Whether those who are at home on its home leave its request: always, unless the pool is oversubscribed.

        There it may be kept for another, whose turn it is.
        """
        homes = self._homes
        for uuid in homes[workload.id]:
            if uuid in self.kept_for and not self.may_share_turn(workload, uuid):
                return False
            left_bytes = self._state.gpus[uuid].capacity_bytes - workload.spec.request_bytes
            for other in self._planned.members(uuid):
                if uuid in homes.get(other.id, ()) and other.id != workload.id:
                    left_bytes -= other.spec.request_bytes
            if left_bytes < 0:
                return False
        return True

    def may_share_turn(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether the turn that `uuid` is kept for is its own, or one for a burst beside which its request is owed."""
        whose = self._state.workloads[self.kept_for[uuid]]
        requests = whose.spec.request_bytes + workload.spec.request_bytes
        for_burst = not whose.within_request and requests <= self._state.gpus[uuid].capacity_bytes
        return whose.id == workload.id or for_burst

    def fits(self, workload: Workload, uuid: GpuUuid, beside: Sequence[Workload] = ()) -> bool:
        """Whether `uuid` takes `workload` with all that it brings, beside those in the draft and who is still there."""
        if beside and self.is_full_for(workload, uuid, len(beside)):
            return False
        left = self._left[uuid] - sum(other.size_bytes for other in beside)
        return self.fits_on_paper(workload, uuid) and left >= self.size_on(workload, uuid)

    def has_room_again(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `workload`, which was on `uuid`, fits there beside everybody in the draft."""
        return self._planned.has_room(workload, uuid)

    def fits_on_paper(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` takes `workload` beside the requests of everybody in the draft."""
        return (
            self._left_on_paper[uuid] >= workload.spec.request_bytes
            and self.may_use(workload, uuid)
            and not self.is_full_for(workload, uuid)
            and not self._is_kept_from(workload, uuid)
        )

    def takes_in_full(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `workload` has room on `uuid` if it is at home there: nobody in the draft has to leave or yield."""
        return uuid in self.gpus and not self._is_kept_from(workload, uuid) and self.has_room_again(workload, uuid)

    def _is_kept_from(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether `uuid` is kept for another; who is there stays."""
        stays = workload.stays and uuid in workload.current
        return self.kept_for.get(uuid, workload.id) != workload.id and not stays

    def holds_guest(self, guest: Workload, uuid: GpuUuid) -> bool:
        """Whether one that has lost its home may stay on `uuid`: beside everybody in the draft, and no stranger."""
        gpu = self._state.gpus.get(uuid)
        if gpu is None or not gpu.healthy or gpu.has_foreigners or self.is_full_for(guest, uuid):
            return False
        return self.has_room_again(guest, uuid)

    def left_bytes(self, uuid: GpuUuid) -> tuple[int, int]:
        """What is left on `uuid` beside the requests, and beside what is held, of those in the draft."""
        return self._left_on_paper[uuid], self._left[uuid]

    def burst_bytes(self, uuid: GpuUuid) -> int:
        """How far above their requests those in the draft who may borrow could go on `uuid` by their limits."""
        return (self._spread[uuid] or self._spread_on(uuid))[2]

    def share(self, uuid: GpuUuid) -> float:
        """The part of (limit - request) that each burstable workload on `uuid` can reach at once, 0.0 to 1.0."""
        return (self._spread[uuid] or self._spread_on(uuid))[0]

    def _spread_on(self, uuid: GpuUuid) -> tuple[float, int, int]:
        """Of those on `uuid` who may borrow: the share of each, how many they are, and `burst_bytes`."""
        specs = [w.spec for w in self._planned.members(uuid)]
        bursts = [spec.burst_bytes for spec in specs if spec.may_borrow]
        burst = sum(bursts)
        spread = self._spread[uuid] = share_of(self._left_on_paper[uuid], burst), len(bursts), burst
        return spread

    def allowances(self) -> dict[WorkloadId, int]:
        """What everybody's allocators may use on each of their Gpus, by the draft as it is now."""
        workloads = self._state.workloads
        return allowances(((k, workloads[k].spec, gpus) for k, gpus in self.target.items()), self._left_on_paper)

    def value(self) -> tuple[float, float]:
        """How well the draft spreads: the smallest share of any burstable workload, then the sum of the shares."""
        total, shares = self._shares()
        return shares[0][0] if shares else 1.0, total

    def values_with(self, workload: Workload, gpus: Iterable[GpuUuid]) -> Iterator[tuple[GpuUuid, float, float]]:
        """`value()` if `workload` were on each of `gpus`, one after another, and not where it is."""
        total, shares = self._shares()
        where, left, least_there = None, 0.0, 1.0
        if current := self.target.get(workload.id):
            (where,) = current
            least_there, left = self._with(where, workload, -1)
        for uuid in gpus:
            share, added = self._with(uuid, workload, 1)
            others = (known for known, other in shares if other not in (uuid, where))
            yield uuid, min(share, least_there, next(others, 1.0)), round(total + left + added, _DIGITS)

    def takes_from_nobody_with_less(self, workload: Workload, gpu: GpuUuid) -> bool:
        """Whether all shares, compared from the smallest on, are no worse with `workload` on `gpu` and not where it is.

        So every move for burst, of one or of several, goes the same way, and none undoes another.
        """
        (where,) = self.target[workload.id]
        before: list[float] = []
        after: list[float] = []
        for uuid, sign in ((where, -1), (gpu, 1)):
            share, bursters, _ = self._spread[uuid] or self._spread_on(uuid)
            before += [share] * bursters
            after += [self._with(uuid, workload, sign)[0]] * (bursters + sign * workload.spec.may_borrow)
        pairs = zip(sorted(after), sorted(before), strict=True)
        differs = next((new - old for new, old in pairs if abs(new - old) > _ALIKE), 0.0)
        return differs >= 0.0

    def _with(self, uuid: GpuUuid, workload: Workload, sign: int) -> tuple[float, float]:
        """If `workload` came to `uuid`, or left: the share there (1.0 without anybody) and how the sum of all grows."""
        spec, (share, bursters, burst) = workload.spec, self._spread[uuid] or self._spread_on(uuid)
        others = bursters + sign * spec.may_borrow
        if not others:
            return 1.0, -bursters * share
        grown = burst + sign * spec.burst_bytes * spec.may_borrow
        new = share_of(self._left_on_paper[uuid] - sign * spec.request_bytes, grown)
        return new, others * new - bursters * share

    def alike(self, gpus: Iterable[GpuUuid]) -> Collection[Sequence[GpuUuid]]:
        """Those of `gpus` together on which another one has the same share, whoever it is."""
        kinds: dict[tuple[object, ...], list[GpuUuid]] = {}
        for uuid in gpus:
            kinds.setdefault((self._left_on_paper[uuid], self._spread[uuid] or self._spread_on(uuid)), []).append(uuid)
        return kinds.values()

    def _shares(self) -> tuple[float, list[tuple[float, GpuUuid]]]:
        """The sum of all shares, and that of each Gpu where anybody bursts, the smallest first."""
        if self._known_shares is None:
            total, shares = 0.0, []
            for uuid, known in self._spread.items():
                share, bursters, _ = known or self._spread_on(uuid)
                if bursters:
                    total += bursters * share
                    shares.append((share, uuid))
            self._known_shares = round(total, _DIGITS), sorted(shares)
        return self._known_shares

    def best_for(self, workload: Workload, hurried: Container[WorkloadId]) -> GpuUuid | None:
        """The Gpu that takes `workload` in full and leaves those there the largest share; its home among equals.

        So the shares of all, compared from the smallest on, are the best that they can be. Where there is room in fact
        goes before that, and where its user wishes it to be before everything. Away from home nobody waits for the end
        of another's cell, but for those of `hurried`, who have a deadline.
        """
        left, request_bytes = self._left_on_paper, workload.spec.request_bytes
        fitting = [uuid for uuid in self.gpus if left[uuid] >= request_bytes and self.fits(workload, uuid)]
        if not fitting:
            return None
        home = self._homes.get(workload.id, ())
        waits = {uuid: self.waits_on(workload, uuid) for uuid in fitting}
        fitting = [u for u in fitting if u in home or not (waits[u] and self._cell_is_in_the_way(workload, u, hurried))]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        if workload.wish in fitting:
            return workload.wish

        def rank(uuid: GpuUuid) -> tuple[object, ...]:
            share, added = self._with(uuid, workload, 1)
            if self.pools[uuid].placement is Placement.BINPACK:
                # No share counts here: at home first, then where most is used already.
                share, added = float(uuid in home), float(self.gpus[uuid].capacity_bytes - self._left_on_paper[uuid])
            name, pools = self.pools[uuid].name, workload.spec.pools
            wanted = pools.index(name) if name in pools else 0
            there = uuid not in workload.current, uuid not in home, wanted, self.gpus[uuid].index
            return (waits[uuid], -share, -round(added, _DIGITS), *there)

        return min(fitting, key=rank)

    def waits_on(self, workload: Workload, uuid: GpuUuid) -> bool:
        """Whether what is on `uuid`, or on its way back there, leaves no room for `workload` in fact."""
        return room_bytes(self._state, workload, self.gpus[uuid]) < workload.return_bytes

    def _cell_is_in_the_way(self, workload: Workload, uuid: GpuUuid, hurried: Container[WorkloadId]) -> bool:
        """Whether it fits on `uuid` only when somebody has left who is to leave when a cell has ended."""
        target, there = self.target, (w for w in self._state.on(uuid) if w.executing and w.id not in hurried)
        leavers = (w for w in there if w.id != workload.id and uuid not in target.get(w.id, ()))
        return self._left[uuid] - sum(self.size_on(w, uuid) for w in leavers) < self.size_on(workload, uuid)


def out_of_service(state: NodeState) -> dict[GpuUuid, Why]:
    """The Gpus that get nothing new until somebody acts, and why."""
    return {
        uuid: Why(Reason.STUCK) if gpu.healthy else gpu.unhealthy_reason or Why(Reason.UNHEALTHY)
        for uuid, gpu in state.gpus.items()
        if not gpu.healthy or uuid in state.stuck
    }


def why_unusable(state: NodeState, gpus: tuple[GpuUuid, ...]) -> Why:
    """Why nothing new may be placed on any of `gpus`."""
    known = out_of_service(state)
    out = tuple([uuid for uuid in gpus if uuid in known or uuid not in state.gpus])
    return Why(Reason.OUT_OF_SERVICE, gpus=out) if out else Why(Reason.USE_UNTOLD, gpus=gpus)


def has_room(state: NodeState, workload: Workload, gpu: Gpu, *, beside_bytes: int = 0) -> bool:
    """Whether `gpu` has room for `workload` in fact: nothing counts as free before the driver shows it.

    `beside_bytes`: of who else comes before it.
    """
    if gpu.uuid not in state.usable or borrows_beside_a_stranger(workload, gpu):
        return False
    return room_bytes(state, workload, gpu) >= workload.return_bytes + beside_bytes


def owed_bytes(
    state: NodeState,
    gpu: GpuUuid,
    target_of: Callable[[WorkloadId], tuple[GpuUuid, ...]],
    to_come: Collection[Workload],
) -> int:
    """What those wait for on `gpu` who come before one of `to_come`.

    Who is owed its request comes before who brings more, and at home before who borrows: that one would be sent away
    again for it. `target_of` says where somebody is to be.
    """
    above = any(not workload.within_request for workload in to_come)
    if not above and all(gpu in workload.home for workload in to_come if gpu in target_of(workload.id)):
        return 0
    coming = {workload.id for workload in to_come}
    others = (w for w in state.workloads.values() if not w.present and w.within_request and w.id not in coming)
    return sum(w.return_bytes for w in others if gpu in target_of(w.id) and (above or gpu in w.home))


def borrows_beside_a_stranger(workload: Workload, gpu: Gpu) -> bool:
    """Whether `workload` would come to borrow where a process was seen that nobody placed.

    The next sample says whether that one is there to stay.
    """
    return bool(gpu.unplaced) and gpu.uuid not in workload.home


def room_bytes(state: NodeState, workload: Workload, gpu: Gpu) -> int:
    """What of `gpu` is free in fact for `workload`: what is on its way back, or out, still counts as taken."""
    own = state.workloads.get(workload.id)
    own_bytes = 0 if own is None else own.takes_bytes.get(gpu.uuid, 0)
    return gpu.memory_total_bytes - state.taken_bytes(gpu.uuid) + own_bytes
