"""One round of giving homes: who keeps one, who gets one, who waits. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.values import computed_once
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes import elastic, repacking
from nls_scheduler.core.planning.homes.displacing import displace, displace_few
from nls_scheduler.core.planning.homes.paper import Paper, admission_order, counts, held_by, no_room
from nls_scheduler.core.planning.making_room.occupancy import Occupancy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.gangs import Gang, GangKey
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.queue_ledger import Ledger, Obstacle


@dataclass(slots=True)
class _AsHomesStand:
    """What has been found since a home changed last: by `WorkloadSpec.demand`, and who has one by queue."""

    version: int = -1
    by_leaf: dict[str, list[Workload]] | None = None
    offered: dict[object, frozenset[GpuUuid]] = field(default_factory=dict)
    held_back: dict[object, Why | None] = field(default_factory=dict)


class Admission(Paper):
    """One round.

    Attributes:
        displaced: who has lost a home to somebody whose queue is owed it.
        exchanged: how often others had to change or lose a home for somebody.
        units: all that are in line, where no queues take turns.
        harms: what it would mean to be displaced, of those of whom it was asked.
        _too_large: the least that found no room, by kind: a larger one of the same kind finds none either.
        _unpackable: the least for which others' other homes made none.
        _in_vain: the first who found no home, of those who ask for the same.

    Room that is kept for one that has waited long is not usable for those behind it in the line; what is kept only for
    such as are beyond their queue's fair share is, for those within theirs.
    """

    def __init__(self, state: NodeState) -> None:
        super().__init__(state)
        self.displaced: list[Workload] = []
        self.exchanged = 0
        self.units: Sequence[list[Workload]] = ()
        self.harms: dict[WorkloadId, tuple[object, ...]] = {}
        self._too_large: dict[tuple[object, ...], int] = {}
        self._unpackable: dict[tuple[object, ...], int] = {}
        self._in_vain: dict[tuple[object, frozenset[GpuUuid], bool], WorkloadId] = {}
        self._reserved: dict[GpuUuid, Workload] = {}
        self._owed: dict[GpuUuid, Workload] = {}
        self._unreserved = self._all_usable
        self._usable_for: dict[WorkloadId, frozenset[GpuUuid]] = {}
        self._found = _AsHomesStand()

    def keep_given(self, ordered: list[Workload]) -> None:
        """The homes that a cluster's scheduler chose; where they are more than a Gpu has, the last ones wait.

        Whose process keeps it where it is has its home there, whatever has been said since.
        """
        for workload in sorted(ordered, key=lambda w: (not w.is_bound, not w.home)):
            home = workload.current if workload.is_bound else workload.given_home or ()
            unknown = [uuid for uuid in home if uuid not in self.state.gpus]
            if not home or unknown:
                kind = Reason.HOME_ELSEWHERE if unknown else Reason.NO_HOME_YET
                self.result.waits[workload.id] = Why(kind, gpus=tuple(unknown[:1]))
                continue
            in_service = (uuid for uuid in home if self.state.gpus[uuid].healthy)
            full = [uuid for uuid in in_service if not self.has_home_room(workload, uuid)]
            if full and not workload.is_bound:
                self.result.waits[workload.id] = self._why_home_is_full(workload, full)
                continue
            self.give(workload, home)

    def _why_home_is_full(self, workload: Workload, full: list[GpuUuid]) -> Why:
        """That the cluster's scheduler counts more there than there is; or who is there that it does not count."""
        for gpu in (self.state.gpus[uuid] for uuid in full):
            given = (w.spec.request_bytes for w in self.state.workloads.values() if gpu.uuid in (w.given_home or ()))
            if sum(given) + sum(owner.bytes for owner in gpu.owners) > gpu.memory_total_bytes:
                return Why(Reason.HOME_OVERFULL, gpus=tuple(full))
        held = (held_by(self.state.gpus[uuid], self.on_paper.members(uuid)) for uuid in full)
        return no_room(workload.spec, tuple(why for why in held if why is not None))

    def keep(self, ordered: list[Workload]) -> list[Workload]:
        """Keep the homes that still hold; return who has none. A process that cannot move keeps its own, before all.

        Of the others, who has not reported since a restart may be elsewhere by now, and comes after who has.
        """
        homeless, kept, unheard = [workload for workload in ordered if not workload.home], [], self.state.unreported
        at_home = [workload for workload in ordered if workload.home]
        for workload in sorted(at_home, key=lambda w: (not w.is_bound, w.id in unheard)):
            home = self._still_fits(workload)
            bound = workload.is_bound and all(u in self.state.gpus for u in workload.home)
            if home is None and not bound:
                homeless.append(workload)
                self.looked_at.places = self.looked_at.costs = True
                continue
            self.give(workload, home or workload.home)
            kept.append(workload)
        for workload in kept:
            self._follow_pools(workload)
            self._follow_wish(workload)
            self._stay_after_all(workload)
        elastic.keep_where_it_fits(self, kept)
        return homeless

    def _still_fits(self, workload: Workload) -> tuple[GpuUuid, ...] | None:
        """Its home, or what is left of an elastic one's; `None`: it has none."""
        spec, home = workload.spec, workload.home
        if not workload.present and workload.stands_on is None and not self._is_in_its_pools(workload, home):
            return None  # nothing of it is there: it comes back where it asks to be, and where anybody may
        if not spec.resizable:
            asked = len(home) in spec.gpu_counts or workload.present
            return home if asked and self.has_room_at(workload, home) else None
        left = tuple([uuid for uuid in home if self.has_home_room(workload, uuid)])
        return left[: spec.gpu_counts[0]] if len(left) >= spec.gpu_count else None

    def _is_in_its_pools(self, workload: Workload, home: tuple[GpuUuid, ...]) -> bool:
        return all(uuid not in self.pools or self.pools[uuid].is_open_to(workload.spec.pools) for uuid in home)

    def _follow_pools(self, workload: Workload) -> None:
        """Who asks for other pools than it is in goes to one of them, once there is room beside all others' homes."""
        if self._is_in_its_pools(workload, self.result.homes[workload.id]):
            return
        self.looked_at.places = True  # it is another matter once nothing of it is there
        if workload.phase is Phase.STARTING or not workload.spec.movable or workload.stands_at_home:
            return
        checkpoint = self.checkpoint()
        self.take(workload)
        elsewhere = self.best_fit(workload)
        if elsewhere is None:
            self.roll_back(checkpoint)
        else:
            self.give(workload, elsewhere)

    def _follow_wish(self, workload: Workload) -> None:
        """Its home goes where its user wishes it to be, if it may be there beside all others'."""
        wish = workload.wish
        if wish is None or workload.phase is Phase.STARTING or not workload.spec.movable:
            return
        checkpoint, home = self.checkpoint(), self.take(workload)
        stays_in_pool = self.is_of_its_pool(home, wish)
        if self.is_offered(workload, wish) if stays_in_pool else self.may_have_home(workload, (wish,)):
            self.give(workload, (wish,))
        else:
            self.roll_back(checkpoint)

    def _stay_after_all(self, workload: Workload) -> None:
        """Who has to go where its home is now, for others, stays where it is once that has room beside all homes."""
        home, spec = self.result.homes[workload.id], workload.spec
        if spec.may_borrow or not spec.movable or workload.phase is not Phase.RUNNING or workload.current == home:
            return
        self.looked_at.places = True
        if workload.wish is None and workload.given_home is None:
            self.change_homes((workload, workload.current))

    def give_up_incomplete(self, gangs: Mapping[GangKey, Gang]) -> list[Workload]:
        """Take the homes of gangs that are not whole, or do not all have one; who is on a Gpu keeps its own.

        One that has become too large for its homes has others, where there are any: not where they were given.
        """
        homes, without = self.result.homes, []
        for gang in gangs.values():
            can_run = gang.started or gang.may_start
            if gang.whole and can_run and all(w.id in homes for w in gang.members):
                if not gang.started:
                    self._spread_out(gang.members)
                continue
            homeless = next((w for w in gang.members if w.id not in homes), None)
            why = gang.why_not_without(homeless) if homeless is not None and gang.may_start else gang.why_not()
            for workload in gang.members:
                if workload.id not in homes or workload.present:
                    continue
                self.take(workload)
                if workload.given_home is None:
                    without.append(workload)
                else:
                    self.result.waits[workload.id] = why
        return without

    def admit_in_turn(self, unit: list[Workload]) -> bool:
        """As `admit_together`: what is kept for those before `unit` is not usable for it, now and later."""
        for workload in unit:
            self.usable = self._usable_for.setdefault(workload.id, self._unreserved)
        only_lent = self._reserved.keys() - self._owed.keys()
        if only_lent and (self.ledger is None or self.ledger.is_within_share(unit)):
            self.usable |= only_lent
        admitted = self.admit_together(unit)
        self.usable = self._all_usable
        return admitted

    def in_vain(self) -> dict[object, WorkloadId]:
        """The first who has found no home beside all that have one and all that is kept for others, by the demand."""
        return {demand: first for (demand, usable, _), first in self._in_vain.items() if usable == self._unreserved}

    def reserve_for(self, unit: list[Workload]) -> None:
        """Keep for `unit` every Gpu that it may get one day; nothing is kept for one that could never be admitted.

        Nor is one kept of a pool out of which its own queue keeps it.
        """
        empty = self._empty
        could = {u for w in unit for u in empty.offered(w) if self.pools[u].is_open_to(self.pools_for(w))}
        is_owed = self.ledger is None or self.ledger.is_within_share(unit)
        if could <= (self._owed if is_owed else self._reserved).keys():
            return
        checkpoint = empty.checkpoint()
        if empty.admit_together(unit):
            for_it = dict.fromkeys(could, unit[0])
            self._reserved = {**for_it, **self._reserved}
            self._unreserved = self._all_usable.difference(self._reserved)
            if is_owed:
                self._owed = {**for_it, **self._owed}
        empty.roll_back(checkpoint)

    @computed_once
    def _empty(self) -> Admission:
        """This round as if nobody had a home."""
        empty = Admission(self.state)
        empty.looked_at = self.looked_at
        return empty

    def kept_for(self, workload: Workload) -> Workload | None:
        """For whom the room is kept that `workload` would have; `None`: there is none."""
        if not self._reserved:
            return None
        kept = self.offered(workload) - self._usable_for.get(workload.id, self._all_usable)
        return (self._reserved | self._owed)[min(kept)] if kept else None

    def offered(self, workload: Workload) -> frozenset[GpuUuid]:
        """The Gpus that can become a home of `workload`, which has none, whatever of them is kept for others."""
        pinned = workload.pinned_to
        found = self._as_homes_stand().offered
        known = found.get(workload.spec.demand)
        if known is None:
            usable, self.usable = self.usable, self._all_usable
            known = found[workload.spec.demand] = frozenset(u for u in self.usable if self.is_offered(workload, u))
            self.usable = usable
        return known if pinned is None else known.intersection(pinned)

    def admitted_in(self, ledger: Ledger, leaf: str) -> Sequence[Workload]:
        """Who has a home and counts in that queue."""
        found = self._as_homes_stand()
        if found.by_leaf is None:
            found.by_leaf = {}
            for workload in self.admitted():
                found.by_leaf.setdefault(ledger.leaf(workload), []).append(workload)
        return found.by_leaf.get(leaf, ())

    def _as_homes_stand(self) -> _AsHomesStand:
        if self._found.version != self.on_paper.version:
            self._found = _AsHomesStand(self.on_paper.version)
        return self._found

    def admit_together(self, unit: list[Workload]) -> bool:
        """A home for each of `unit`, or for none of them."""
        if len(unit) == 1:
            return self.admit(unit[0])
        checkpoint, displaced = self.checkpoint(), list(self.displaced)
        in_vain = dict(self._too_large), dict(self._unpackable)
        ordered = sorted(unit, key=lambda w: (-w.spec.gpu_count, -w.spec.request_bytes, *admission_order(w)))
        if not all(map(self.admit, ordered)):
            self.roll_back(checkpoint)
            (self._too_large, self._unpackable), self.displaced = in_vain, displaced
            if self.ledger is None or not displace_few(self, ordered):
                return False
            self._note_exchange()
            for workload in ordered:
                self._note_admitted(workload)
        self._bring_together(unit)
        self._spread_out(unit)
        return True

    def _bring_together(self, unit: list[Workload]) -> None:
        """Members that are alike and need a Gpu each have those that are closest together."""
        homes, first = self.result.homes, unit[0]
        demands = {(w.spec.gpu_count, w.spec.request_bytes, w.spec.pools) for w in unit}
        if len(demands) > 1 or first.spec.gpu_count > 1 or len({homes[w.id] for w in unit}) < len(unit):
            return
        packed = self.in_order(homes[w.id][0] for w in unit)
        for workload in unit:
            self.take(workload)
        for workload, uuid in zip(unit, repacking.closer(self, first, packed), strict=True):
            self.give(workload, (uuid,))

    def _spread_out(self, unit: Sequence[Workload]) -> None:
        """Members that need more than their requests are not at home where they could never be all at once.

        So as far as there is another place beside the homes of others.
        """
        if all(workload.within_request for workload in unit) or any(w.given_home is not None for w in unit):
            return
        self.looked_at.costs = True
        capacity = {uuid: gpu.capacity_bytes for uuid, gpu in self.state.gpus.items()}
        needed = Occupancy(capacity, lambda workload, _: workload.return_bytes)
        for workload in unit:
            needed.put(workload, self.result.homes[workload.id])
        if min(needed.left[0].values()) >= 0:
            return
        checkpoint = self.checkpoint()
        for workload in unit:
            self.take(workload)
            needed.take(workload)
        for workload in sorted(unit, key=lambda w: (-w.return_bytes, *admission_order(w))):
            home = self.best_fit(workload, among=[uuid for uuid in capacity if needed.has_room(workload, uuid)])
            if home is None:
                self.roll_back(checkpoint)
                return
            self.give(workload, home)
            needed.put(workload, home)

    def admit(self, workload: Workload) -> bool:
        """A home for `workload`, if need be by giving others another one, or none. False: it has to wait."""
        is_like_others = not workload.current and workload.pinned_to is None and workload.spec.gang is None
        alike = (workload.spec.demand, self.usable, self.starves(workload)) if is_like_others else None
        if alike is not None and alike in self._in_vain:
            return False
        if not self._admit(workload):
            if alike is not None:
                self._in_vain[alike] = workload.id
            return False
        self._note_admitted(workload)
        return True

    def _note_admitted(self, workload: Workload) -> None:
        """Others may find room now who found none, and elastic ones of its queue give back what is above its limits."""
        self._in_vain.clear()
        if elastic.keep_within_limit(self, workload):
            self._note_exchange()

    def _admit(self, workload: Workload) -> bool:
        spec, pools = workload.spec, tuple(self.pools_for(workload))
        kind = self._kind(workload, pools)
        if pools and spec.request_bytes < self._too_large.get(kind, inf):
            if self._finds_room(workload):
                return True
            self._too_large[kind] = spec.request_bytes
            if spec.request_bytes < self._unpackable.get(kind, inf):
                if self.admit_by_packing(workload):
                    self._note_exchange(makes_room=False)
                    return True
                known = kind in self._unpackable
                self._unpackable[kind] = spec.request_bytes
                if not known:
                    self._look_for_the_smallest(kind)
        if self.ledger is None:
            return False
        kind = (*kind, spec.pools, spec.priority, self.ledger.leaf(workload))
        if spec.request_bytes >= self._too_large.get(kind, inf):
            return False
        if displace(self, workload):
            self._note_exchange()
            return True
        self._too_large[kind] = spec.request_bytes
        return False

    def _kind(self, workload: Workload, pools: tuple[str, ...]) -> tuple[object, ...]:
        """What makes two who ask for as much find room in the same way. `pools`: see `pools_for`."""
        takes_turns = bool(self.oversubscribed) and workload.spec.can_take_turns
        return (workload.fewest_gpus, pools, takes_turns, workload.pinned_to, self.usable, self.starves(workload))

    def _finds_room(self, workload: Workload) -> bool:
        """A home beside the others' homes."""
        if repacking.settle_where_it_is(self, workload):
            return True
        roomy = max(self.free.values(), default=0) >= workload.spec.request_bytes
        return roomy and (repacking.settle_in(self, workload) or self.readmit(workload))

    def _look_for_the_smallest(self, kind: tuple[object, ...]) -> None:
        """Where even the smallest of the line finds no room, nobody has to be tried in between."""
        alone = [unit[0] for unit in self.units if len(unit) == 1 and unit[0].id not in self.result.homes]
        alone.sort(key=attrgetter("spec.request_bytes"))
        smallest = next((w for w in alone if self._kind(w, tuple(self.pools_for(w))) == kind), None)
        if smallest is None or smallest.spec.request_bytes >= self._too_large.get(kind, inf):
            return
        if any(self.best_fit(smallest, count) is not None for count in counts(smallest)):
            return
        checkpoint, searched = self.checkpoint(), self.searched
        if not self.admit_by_packing(smallest, repacking.may_be_repacked):
            self._too_large[kind] = self._unpackable[kind] = smallest.spec.request_bytes
            return
        self.roll_back(checkpoint)
        self.searched = searched

    def _note_exchange(self, *, makes_room: bool = True) -> None:
        """There may be room now for those who found none: beside others, and if it `makes_room`, by other homes."""
        self._too_large.clear()
        if makes_room:
            self._unpackable.clear()
        self.exchanged += 1

    def readmit(self, workload: Workload) -> bool:
        """A home for `workload` beside the others, who keep theirs. False: there is no room."""
        for count in counts(workload):
            home = self.best_fit(workload, count)
            if home is not None:
                self.give(workload, home)
                return True
        return False

    def readmit_together(self, unit: Sequence[Workload]) -> bool:
        """As `readmit`, for all of `unit` or for none of them."""
        return self.tried(*(partial(self.readmit, workload) for workload in unit))

    def admit_by_packing(
        self, newcomer: Workload, repack: Callable[[Paper, Workload], bool] = repacking.repack
    ) -> bool:
        """Admit `newcomer` where elastic ones have more than their fewest, or by giving others another home."""
        ways = (repacking.settle_beside_all, elastic.shrink, repack, elastic.shrink_and_repack)
        return bool(self.pools_for(newcomer)) and any(way(self, newcomer) for way in ways)

    def is_held_back(self, workload: Workload) -> Why | None:
        """Why its queue lets it into none of its pools; `None`: only room is missing."""
        if self.ledger is None:
            return None
        found, demand = self._as_homes_stand().held_back, workload.spec.demand
        if demand not in found:
            found[demand] = self._held_back(self.ledger, workload)
        return found[demand]

    def obstacle(self, ledger: Ledger, workload: Workload, pool: str) -> Obstacle | None:
        """Which rule keeps it out of `pool`, together with all of its gang who wait and can be in no other one."""
        homes = self.result.homes
        fellows = (w for w in self.fellows(workload) if w.id not in homes and {*w.spec.pools} == {pool})
        return ledger.obstacle(workload, pool, fellows=fellows)

    def fellows(self, workload: Workload) -> list[Workload]:
        """The others of its gang that take part."""
        key = key_of(workload.spec)
        return [] if key is None else [w for w in self.state.gangs[key].members if w.id != workload.id]

    def _held_back(self, ledger: Ledger, workload: Workload) -> Why | None:
        if never := ledger.beyond_limits([workload.spec, *(w.spec for w in self.fellows(workload))]):
            return Why(Reason.HELD_BACK, because=never)
        obstacles = [self.obstacle(ledger, workload, pool) for pool in workload.spec.pools]
        rules = tuple(obstacle.why for obstacle in obstacles if obstacle is not None)
        return Why(Reason.HELD_BACK, because=rules) if len(rules) == len(obstacles) else None
