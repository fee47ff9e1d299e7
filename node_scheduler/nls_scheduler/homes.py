"""Where each request is counted.

On a plain server homes are ours to choose, and choosing again costs nothing by itself: only a workload that cannot
burst has to follow its home.

The rule: the sum of the requests at home on a Gpu stays within its capacity, whole Gpus are kept free on paper
(best fit), and an older or more important workload is admitted first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler import elastic, topology
from nls_scheduler.consolidation import Piece, cheapest
from nls_scheduler.gangs import gangs_of, key_of
from nls_scheduler.model import Phase
from nls_scheduler.rooms import is_usable
from nls_scheduler.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.gangs import Gang, GangKey
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
    admission, gangs = _Admission(state), gangs_of(state.workloads.values())
    homeless = admission.keep(sorted(workloads, key=admission_order))
    homeless += admission.give_up_incomplete(gangs)
    result = admission.result
    waiting = []
    units = _units(sorted(homeless, key=admission_order), gangs, result)
    for position, unit in enumerate(units):
        if admission.admit_together(unit):
            continue
        waiting += unit
        starves_at = max(_waiting_since(w) for w in unit) + state.policy.starvation_s
        if state.at >= starves_at:
            for later in (w for other in units[position + 1 :] for w in other):
                result.waits[later.id] = f"room is reserved for {unit[0].spec.name}, which has waited longer"
            break
        if len(units) > position + 1:
            result.wake_at.append(starves_at)
    if waiting:
        held = "; ".join(_holders(state, result)) or "this node has no GPU in service"
        for workload in waiting:
            result.waits[workload.id] = f"no room for {_demand(workload)}: {held}"
    else:
        admission.grow()
    return result


def _units(homeless: list[Workload], gangs: Mapping[GangKey, Gang], result: Homes) -> list[list[Workload]]:
    """Who is admitted with whom: a gang at its first member's turn, all or none; of one that cannot start, nobody."""
    units: dict[object, list[Workload]] = {}
    for workload in homeless:
        key = key_of(workload.spec)
        if key is not None and not gangs[key].may_start:
            result.waits[workload.id] = gangs[key].why_not()
        else:
            units.setdefault(workload.id if key is None else key, []).append(workload)
    return list(units.values())


def _demand(workload: Workload) -> str:
    spec = workload.spec
    gpus = "one GPU" if spec.gpu_count == 1 else f"each of {spec.gpu_count} GPUs"
    gang = "" if spec.gang is None else f" for each of the {spec.gang_size} members of gang {spec.gang} at once"
    return f"{format_bytes(spec.request_bytes)} on {gpus}{gang}"


def _waiting_since(workload: Workload) -> float:
    return workload.submitted_at if workload.waiting_since is None else workload.waiting_since


def _bound(workload: Workload) -> bool:
    """Whether its process keeps it where it is."""
    return workload.present and not (workload.spec.movable or workload.spec.resizable)


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
        for workload in sorted(ordered, key=lambda w: (not _bound(w), not w.home)):
            homes = self.result.homes
            home = self._still_fits(workload)
            if home is None and not (_bound(workload) and all(uuid in self._state.gpus for uuid in workload.home)):
                homeless.append(workload)
                continue
            for uuid in home or workload.home:
                self._free.setdefault(uuid, 0)
            self._give(workload, home or workload.home, self._free, homes)
        return homeless

    def _still_fits(self, workload: Workload) -> tuple[GpuUuid, ...] | None:
        """Its home, or the Gpu that its user wishes, or what is left of an elastic one's; `None`: it has none."""
        homes, wish = self.result.homes, workload.wish
        waits = workload.phase is not Phase.STARTING and workload.spec.movable
        if wish is not None and waits and self._is_offered(workload, wish, self._free, homes):
            return (wish,)
        left = tuple(uuid for uuid in workload.home if self._fits(workload, uuid, self._free, homes))
        if workload.spec.resizable:
            return left[: elastic.most(workload.spec)] if len(left) >= workload.spec.gpu_count else None
        return left if left and left == workload.home else None

    def give_up_incomplete(self, gangs: Mapping[GangKey, Gang]) -> list[Workload]:
        """Take the homes of gangs that are not whole, or do not all have one; who is on a Gpu keeps its own."""
        homes, without = self.result.homes, []
        for gang in gangs.values():
            if gang.whole and all(w.id in homes for w in gang.members):
                continue
            for workload in gang.members:
                if workload.id in homes and not workload.present:
                    self._take_back(workload)
                    without.append(workload)
        return without

    def admit_together(self, unit: list[Workload]) -> bool:
        """A home for each of `unit`, or for none of them."""
        if len(unit) == 1:
            return self.admit(unit[0])
        before = dict(self._free), dict(self.result.homes), dict(self.result.moved_for), dict(self._too_large)
        for workload in sorted(unit, key=lambda w: (-w.spec.gpu_count, -w.spec.request_bytes, *admission_order(w))):
            if not self.admit(workload):
                self._free, self.result.homes, self.result.moved_for, self._too_large = before
                return False
        self._bring_together(unit)
        return True

    def _bring_together(self, unit: list[Workload]) -> None:
        """Members that are alike and need a Gpu each have those that are closest together."""
        homes, first = self.result.homes, unit[0]
        demands = {(w.spec.gpu_count, w.spec.request_bytes, w.spec.pools) for w in unit}
        if len(demands) > 1 or first.spec.gpu_count > 1 or len({homes[w.id] for w in unit}) < len(unit):
            return
        packed = [homes[w.id][0] for w in unit]
        for workload in unit:
            self._take_back(workload)
        found = self._best_fit(first, self._free, homes, len(unit)) or packed
        for workload, uuid in zip(unit, found, strict=True):
            self._give(workload, (uuid,), self._free, homes)

    def admit(self, workload: Workload) -> bool:
        """A home for `workload`, if need be by giving others another one. False: it has to wait."""
        for count in elastic.counts(workload.spec):
            home = self._best_fit(workload, self._free, self.result.homes, count)
            if home is not None:
                if not self._finds_a_cheaper(workload, home):
                    self._give(workload, home, self._free, self.result.homes)
                return True
        # Where one this large found no room, a larger one finds none either.
        spec = workload.spec
        kind, request = (spec.gpu_count, spec.pools, spec.can_take_turns), spec.request_bytes
        if request >= self._too_large.get(kind, request + 1):
            return False
        if self._shrink_others(workload) or self._repack(workload):
            return True
        self._too_large[kind] = request
        return False

    def _best_fit(
        self, workload: Workload, free: _Free, homes: _HomeOf, count: int | None = None
    ) -> tuple[GpuUuid, ...] | None:
        """The Gpus of the first of its pools that have room: the fullest; then where it is; then the least present."""
        wanted = workload.spec.gpu_count if count is None else count
        found = (self._best_fit_in(pool, workload, free, homes, wanted) for pool in workload.spec.pools)
        return next((home for home in found if home is not None), None)

    def _best_fit_in(
        self, pool: str, workload: Workload, free: _Free, homes: _HomeOf, count: int
    ) -> tuple[GpuUuid, ...] | None:
        """Of several Gpus, first those that are closest together."""
        gpus = self._state.gpus
        fitting = [
            (room, uuid not in workload.current, self._present[uuid], gpus[uuid].index, uuid)
            for uuid, room in free.items()
            if uuid in self._usable and self._is_open(pool, uuid) and self._fits(workload, uuid, free, homes)
        ]
        if len(fitting) < count:
            return None
        if count == 1:
            return (min(fitting)[-1],)
        best = topology.closest([uuid for *_, uuid in sorted(fitting)], count, gpus)
        return None if best is None else tuple(sorted(best, key=lambda uuid: gpus[uuid].index))

    def _is_offered(self, workload: Workload, uuid: GpuUuid, free: _Free, homes: _HomeOf) -> bool:
        """Whether `uuid` can become a home of `workload` now."""
        open_to_it = uuid in self._usable and any(self._is_open(pool, uuid) for pool in workload.spec.pools)
        return open_to_it and self._fits(workload, uuid, free, homes)

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

    def _take_back(self, workload: Workload) -> None:
        for uuid in self.result.homes.pop(workload.id):
            self._free[uuid] += self._cost(workload, uuid)

    def grow(self) -> None:
        """Elastic ones get what nobody else wants, in order of admission."""
        homes = self.result.homes
        elastics = [w for key in homes if (w := self._state.workloads[key]).spec.elastic]
        for workload in sorted(elastics, key=admission_order):
            home = homes[workload.id]
            missing = elastic.most(workload.spec) - len(home)
            extra = self._extra(workload, home) if missing > 0 else []
            if extra:
                self._take_back(workload)
                whole = (*home, *extra[:missing])
                order = tuple(sorted(whole, key=lambda uuid: self._state.gpus[uuid].index))
                self._give(workload, order, self._free, homes)

    def _extra(self, workload: Workload, home: tuple[GpuUuid, ...]) -> list[GpuUuid]:
        gpus, at = self._state.gpus, self._state.at
        extra = []
        for uuid in gpus:
            whole = gpus[uuid].parent is None
            if uuid in home or not whole or not self._is_offered(workload, uuid, self._free, self.result.homes):
                continue
            grows_at = elastic.grows_at(self._state, workload, gpus[uuid])
            if grows_at is not None and grows_at <= at:
                extra.append(gpus[uuid])
            elif grows_at is not None:
                self.result.wake_at.append(grows_at)
        return [gpu.uuid for gpu in elastic.nearest([gpus[uuid] for uuid in home if uuid in gpus], extra)]

    def _shrink_others(self, newcomer: Workload) -> bool:
        """Admit `newcomer` on Gpus that elastic ones have above their fewest; no more is taken than it needs."""
        homes, given = self.result.homes, []
        before = dict(homes), dict(self._free)
        home = None
        for giver in elastic.givers(self._state.workloads, homes, newcomer):
            for uuid in self._to_give(giver, newcomer):
                self._give_up(giver, uuid)
                given.append((giver, uuid))
                home = self._best_fit(newcomer, self._free, homes)
                if home is not None:
                    break
            if home is not None:
                break
        if home is None:
            self.result.homes, self._free = before
            return False
        self._give(newcomer, home, self._free, homes)
        for giver, uuid in given:
            if self._fits(giver, uuid, self._free, homes):
                self._take_back_and_give(giver, (*homes[giver.id], uuid))
        changed = {giver.id for giver, _ in given if homes[giver.id] != before[0][giver.id]}
        self.result.moved_for.update(dict.fromkeys(changed, newcomer.id))
        return True

    def _to_give(self, giver: Workload, newcomer: Workload) -> list[GpuUuid]:
        """What `giver` has above its fewest: Gpus first that would then take `newcomer`."""
        home = self.result.homes[giver.id]

        def rank(uuid: GpuUuid) -> tuple[bool, int]:
            room = self._free[uuid] + self._cost(giver, uuid)
            return room < newcomer.spec.request_bytes, -self._state.gpus[uuid].index

        return sorted(home, key=rank)[: elastic.spare(giver, home)]

    def _give_up(self, giver: Workload, uuid: GpuUuid) -> None:
        self._take_back_and_give(giver, tuple(other for other in self.result.homes[giver.id] if other != uuid))

    def _take_back_and_give(self, workload: Workload, home: tuple[GpuUuid, ...]) -> None:
        self._take_back(workload)
        order = tuple(sorted(home, key=lambda uuid: self._state.gpus[uuid].index))
        self._give(workload, order, self._free, self.result.homes)

    def _repack(self, newcomer: Workload) -> bool:
        """Admit `newcomer` by giving others another home: the fewest bytes moved, or else whatever fits."""
        needed = newcomer.spec.request_bytes * newcomer.spec.gpu_count
        if sum(room for room in self._free.values() if room > 0) < needed:
            return False
        admitted = [self._state.workloads[w] for w in self.result.homes]
        bursters = [w for w in admitted if w.spec.may_borrow]
        movable = [w for w in admitted if w.spec.movable]
        choices = [bursters] if len(movable) == len(bursters) else [bursters, movable]
        before = self._free, dict(self.result.homes), dict(self.result.moved_for)
        # The search for the cheapest way costs more than a packing: only where there is a way at all.
        if not any(self._pack_again(newcomer, candidates) for candidates in choices):
            return False
        if not self._oversubscribed:
            packed = self._free, self.result.homes, self.result.moved_for
            self._free, self.result.homes, self.result.moved_for = before
            if not self._consolidate(newcomer, movable):
                self._free, self.result.homes, self.result.moved_for = packed
        return True

    def _finds_a_cheaper(self, newcomer: Workload, home: tuple[GpuUuid, ...]) -> bool:
        """Admit `newcomer` elsewhere than where it fits, if fewer bytes have to leave there: homes are exchanged."""
        if len(home) > 1 or newcomer.spec.may_borrow or newcomer.present or self._oversubscribed:
            return False
        if not self._to_leave(newcomer, home[0])[1]:
            return False
        bursters = [self._state.workloads[w] for w in self.result.homes]
        return self._consolidate(newcomer, [w for w in bursters if w.spec.may_borrow], home)

    def _to_leave(self, newcomer: Workload, uuid: GpuUuid) -> tuple[int, int]:
        """The cost of sending away who only borrows where `newcomer` would be at home, in `consolidation`'s terms."""
        there = [w for w in self._state.workloads.values() if uuid in w.current]
        borrowers = [w for w in there if w.spec.may_borrow and self.result.homes.get(w.id, (uuid,)) != (uuid,)]
        excess = sum(w.spec.request_bytes for w in borrowers) + newcomer.spec.request_bytes
        excess -= self._state.gpus[uuid].capacity_bytes
        works, moved = 0, 0
        for borrower in sorted(borrowers, key=lambda w: (w.executing, w.moved_bytes, w.id)):
            if excess <= 0:
                break
            excess -= borrower.spec.request_bytes
            works, moved = works + borrower.executing, moved + borrower.moved_bytes
        return works, moved

    def _consolidate(self, newcomer: Workload, movable: list[Workload], first: tuple[GpuUuid, ...] = ()) -> bool:
        """Several Gpus: those that are closest together go before fewer bytes, as somebody moves in any case."""
        usable = {uuid for uuid in self._free if uuid in self._usable}
        free = {uuid: self._free[uuid] for uuid in usable}
        pieces = [self._piece(w, usable) for w in sorted(movable, key=lambda w: (-w.submitted_at, w.id))]
        pieces = sorted((p for p in pieces if p.gpu in usable), key=lambda p: p.cost)
        size, count = newcomer.spec.request_bytes, newcomer.spec.gpu_count
        clearable = dict(free)
        for piece in pieces:
            clearable[piece.gpu] += piece.size_bytes
        for pool in newcomer.spec.pools:
            ranked = [u for u in usable if self._is_open(pool, u) and clearable[u] >= size]
            ranked.sort(key=lambda u: (u not in first, -free[u], self._state.gpus[u].index))
            leaving = {uuid: self._to_leave(newcomer, uuid) for uuid in ranked}
            by_link: dict[topology.Link, list[tuple[GpuUuid, ...]]] = {}
            for link, gpus in topology.sets(ranked, count, self._state.gpus):
                by_link.setdefault(link, []).append(gpus)
            for sets in by_link.values():
                answer = cheapest(free, pieces, size, sets, leaving)
                if answer is not None:
                    self._exchange(newcomer, answer.gpus, answer.moves)
                    return True
        return False

    def _piece(self, workload: Workload, usable: set[GpuUuid]) -> Piece:
        """One that is not on its home, or has no process, changes its home for nothing."""
        home = self.result.homes[workload.id]
        follows = workload.present and workload.current == home
        others = (u for u in usable if u not in home and any(self._is_open(p, u) for p in workload.spec.pools))
        cost = (int(workload.executing), workload.moved_bytes) if follows else (0, 0)
        return Piece(workload.id, home[0], workload.spec.request_bytes, cost, frozenset(others))

    def _exchange(self, newcomer: Workload, gpus: tuple[GpuUuid, ...], moves: Mapping[WorkloadId, GpuUuid]) -> None:
        for moved in moves:
            self._take_back(self._state.workloads[moved])
        for moved, uuid in moves.items():
            self._give(self._state.workloads[moved], (uuid,), self._free, self.result.homes)
        order = tuple(sorted(gpus, key=lambda uuid: self._state.gpus[uuid].index))
        self._give(newcomer, order, self._free, self.result.homes)
        self.result.moved_for.update(dict.fromkeys(moves, newcomer.id))

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
