"""A newcomer's home where the least has to move for it, if need be by giving others another home. Pure.

Homes cost nothing to exchange on a plain server, moves do. So before anything is exchanged everybody who may burst is
taken to be at home where it is now, with all that it holds there; then those leave that cost the least, and what an
exchange costs on paper is what really moves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from nls_scheduler.core.model import topology
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.values import computed_once
from nls_scheduler.core.planning.homes.paper import counts, pinned_to
from nls_scheduler.core.planning.making_room.cheapest_moves import BUDGET, Piece
from nls_scheduler.core.planning.making_room.make_room import Demand, make_room, without

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Paper

_SETS: Final = 8
"""So many sets of Gpus are tried for one that needs several."""
_FEW: Final = 4
"""On more Gpus than that a search in haste hardly ever finds a way where only a thorough packing finds one."""

_LEAVE_LESS: Final = 3
"""Where all are placed anew, never less than a third of them leave if they are many (of 2,300 in random histories)."""


def settle_in(paper: Paper, newcomer: Workload) -> bool:
    """A home beside all the others', where the least has to move in fact; False: there is no such room.

    Who may borrow and has room somewhere makes nobody move: its home is a matter of paper, and the fullest is best. An
    elastic one has as many Gpus as are to be had moving nobody, and only the fewest of them where somebody has to move.
    """
    if newcomer.present or paper.oversubscribed or paper.best_fit(newcomer) is None:
        return False
    there = _in_fact(paper)
    paper.looked_at.costs = True
    unmoved = there.unmoved_by(newcomer)
    if newcomer.spec.may_borrow and not unmoved.isdisjoint(there.open_to(newcomer)):
        return False
    for count in counts(newcomer):
        home = paper.best_fit(newcomer, count, among=unmoved)
        if home is not None:
            paper.give(newcomer, home)
            return True
        if _settle_beside_all(paper, newcomer, there, count):
            return True
    return _consolidate(paper, newcomer, there)


def settle_beside_all(paper: Paper, newcomer: Workload) -> bool:
    """A home where nobody who is on a Gpu has to go, although there is none beside the others' homes as they are."""
    if newcomer.present or paper.oversubscribed or not _is_enough(paper, newcomer):
        return False
    there = _in_fact(paper)
    return any(_settle_beside_all(paper, newcomer, there, count) for count in counts(newcomer))


def _is_enough(paper: Paper, newcomer: Workload) -> bool:
    """Whether all that is left on paper together is what `newcomer` asks for."""
    return sum([room for room in paper.free.values() if room > 0]) >= newcomer.spec.request_bytes * newcomer.fewest_gpus


def closer(paper: Paper, newcomer: Workload, gpus: tuple[GpuUuid, ...]) -> tuple[GpuUuid, ...]:
    """As many Gpus that are closer together than `gpus`, or these; nobody moves for them if nobody does for these."""
    there, index = _in_fact(paper), paper.state.gpus
    among = {*gpus, *there.unmoved_by(newcomer)} if there.beside_all(newcomer).issuperset(gpus) else None
    found = paper.best_fit(newcomer, len(gpus), among=among) or gpus
    links = [topology.CLOSEST_FIRST.index(topology.worst_link([index[uuid] for uuid in way])) for way in (gpus, found)]
    return found if links[1] < links[0] else gpus


def _settle_beside_all(paper: Paper, newcomer: Workload, there: _There, count: int) -> bool:
    """A home where nobody who is on a Gpu has to go: who is off has its own elsewhere, which costs nobody anything."""
    in_fact, request_bytes = there.beside_all(newcomer), newcomer.spec.request_bytes
    for pool in paper.pools_for(newcomer, count):
        gpus = [uuid for uuid in paper.open_gpus(newcomer, pool) if uuid in in_fact]
        for beside in there.besides if len(gpus) >= count else ():
            if beside.spare_bytes < request_bytes * count:
                continue
            cleared = beside.cleared
            ranked = sorted((u for u in gpus if cleared[u] >= request_bytes), key=cleared.__getitem__)
            demand = Demand(request_bytes, _sets(paper, ranked, count), {})
            answer = make_room(beside.left, beside.pieces, demand, budget=0, whatever_moves=True) if ranked else None
            if answer is not None:
                change = there.change(answer.gpus, answer.moves)
                moved = [key for key in change.moved if not paper.state.workloads[key].present]
                _change_homes(paper, newcomer, replace(change, moved=moved))
                return True
    return False


def _sets(paper: Paper, ranked: Sequence[GpuUuid], count: int) -> list[tuple[GpuUuid, ...]]:
    """Those of `count` Gpus of `ranked` that are tried, the closest first."""
    if count == 1:
        return [(uuid,) for uuid in ranked]
    return [gpus for _, gpus in islice(topology.sets(ranked, count, paper.state.gpus), _SETS)]


def repack(paper: Paper, newcomer: Workload) -> bool:
    """Admit `newcomer` by giving others another home: the fewest bytes moved, or else whatever fits.

    Only where few leave their Gpus for that, as long as it has not waited long.
    """
    way = _way(paper, newcomer)
    if way is None:
        return False
    packed, there = way
    if _moves_too_many(paper, newcomer, packed):
        if there is None:  # what is searched for only once is not told: a moment later nobody would know it
            paper.result.spared_by.add(newcomer.id)
        return False
    # The search for the cheapest way costs more than a packing: only where there is a way at all.
    search = not paper.oversubscribed and (there is None or len(there.free) <= _FEW or _has_just_come(paper, newcomer))
    if not search or not _consolidate(paper, newcomer, there or _in_fact(paper), spares=True):
        _change_homes(paper, newcomer, packed)
    return True


def may_be_repacked(paper: Paper, newcomer: Workload) -> bool:
    """Whether `repack` would admit `newcomer`; nothing is searched for the cheapest way, and nothing changed."""
    way = _way(paper, newcomer)
    return way is not None and not _moves_too_many(paper, newcomer, way[0])


def _way(paper: Paper, newcomer: Workload) -> tuple[_Change, _There | None] | None:
    """A packing of all with `newcomer`, if one is found; with where all are in fact, if more than a simple one was."""
    if not _is_enough(paper, newcomer):
        return None
    there = _in_fact(paper)
    tries = (_packed_again(paper, newcomer, candidates) for candidates in there.choices)
    packed = next((found for found in tries if found is not None), None)
    if packed is not None:
        return packed, None
    present = sum([workload.present for workload in there.choices[-1].workloads])
    too_many = present > _LEAVE_LESS * _most_moved(paper, newcomer)
    if paper.oversubscribed or too_many or not _may_search(paper, newcomer):
        return None
    packed = _packed_anew(paper, newcomer, there)
    return None if packed is None else (packed, there)


def _may_search(paper: Paper, newcomer: Workload) -> bool:
    """Whether more is tried for one that no simple packing admits: for the first in a round, and for who has just come.

    Who waits is mostly one for whom there is no way, and would be searched one after every event.
    """
    first, paper.searched = not paper.searched, True
    return first or _has_just_come(paper, newcomer)


def _has_just_come(paper: Paper, newcomer: Workload) -> bool:
    comes = newcomer.waiting_since == paper.at
    if comes:
        paper.looked_at.until = paper.at
    return comes


@dataclass(frozen=True, slots=True)
class _Change:
    """Other homes for others, and with them one for the newcomer.

    Attributes:
        homes: the new ones.
        moved: who of them has to go where for the newcomer; the others of them have a home where they are already.
    """

    home: tuple[GpuUuid, ...]
    homes: Mapping[WorkloadId, tuple[GpuUuid, ...]]
    moved: Collection[WorkloadId]


def _moves_too_many(paper: Paper, newcomer: Workload, change: _Change) -> bool:
    """Whether more would leave their Gpus than may for one who has not waited long."""
    state, homes = paper.state, {**paper.result.homes, **change.homes}
    leave = [key for key in change.moved if state.workloads[key].current not in ((), homes[key])]
    return len(leave) > _most_moved(paper, newcomer)


def _most_moved(paper: Paper, newcomer: Workload) -> float:
    """So many may leave their Gpus for it; without bound once it has waited long."""
    return inf if paper.starves(newcomer) else paper.state.policy.max_moved_for_one * newcomer.fewest_gpus


def _change_homes(paper: Paper, newcomer: Workload, change: _Change) -> None:
    changed = [paper.state.workloads[key] for key in change.homes]
    for workload in changed:
        paper.take(workload)
    for workload in changed:
        paper.give(workload, change.homes[workload.id])
    paper.give(newcomer, change.home)
    paper.result.moved_for.update(dict.fromkeys(change.moved, newcomer.id))


def _packed_again(paper: Paper, newcomer: Workload, candidates: _Candidates) -> _Change | None:
    """First the newcomer, then the candidates by decreasing size, each at its old home where that has room."""
    if not paper.oversubscribed:  # what is left is all that counts
        with paper.on_paper.having_left(candidates.cleared) as count:
            return _put_again(paper, newcomer, candidates, count)
    checkpoint = paper.on_paper.checkpoint()
    try:
        for workload in candidates.workloads:
            paper.on_paper.take(workload)
        return _put_again(paper, newcomer, candidates, paper.on_paper.put)
    finally:
        paper.on_paper.roll_back(checkpoint)


def _put_again(
    paper: Paper, newcomer: Workload, candidates: _Candidates, put: Callable[[Workload, tuple[GpuUuid, ...]], None]
) -> _Change | None:
    """As `_packed_again`, once the candidates are nowhere."""
    home = paper.best_fit(newcomer)
    if home is None:
        return None
    put(newcomer, home)
    new: dict[WorkloadId, tuple[GpuUuid, ...]] = {}
    for workload, own in zip(candidates.workloads, candidates.homes, strict=True):
        new_home = own
        if not paper.has_room_at(workload, own):
            elsewhere = paper.best_fit(workload, pools=paper.pools_for(workload, counts(workload)[-1], own))
            if elsewhere is None:
                return None
            new_home = new[workload.id] = elsewhere
        put(workload, new_home)
    homes = {w.id: new[w.id] for w in candidates.in_order if w.id in new}
    return _Change(home, homes, homes.keys())


def _in_fact(paper: Paper) -> _There:
    """Once for all newcomers for whom nothing has changed."""
    paper.looked_at.places = True
    known = paper.in_fact
    if not isinstance(known, _There) or not known.holds():
        known = paper.in_fact = _There(paper)
    return known


class _Candidates(NamedTuple):
    """Who may be given another home.

    Attributes:
        in_order: who came first is first.
        workloads: the largest first, and of those alike who came first.
        homes: where each of `workloads` is at home.
        cleared: what is left on each Gpu on paper without them.
    """

    in_order: Sequence[Workload]
    workloads: Sequence[Workload]
    homes: Sequence[tuple[GpuUuid, ...]]
    cleared: Mapping[GpuUuid, int]


class _Beside(NamedTuple):
    """Who may have a home elsewhere, and what is left on each Gpu with them and without them, by their requests.

    `spare_bytes`: what is left on all together.
    """

    left: Mapping[GpuUuid, int]
    cleared: Mapping[GpuUuid, int]
    pieces: Sequence[Piece]
    spare_bytes: int


class _There:
    """Everybody with a home, each where it is in fact.

    Attributes:
        place: of each, the Gpus on which it is taken to be at home.
        free: what is left on each usable Gpu beside all that is held there.
        promised: what is left there beside the requests of those who are taken to be at home there.
    """

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self._of = dict(paper.result.homes), paper.usable
        self._version = paper.on_paper.version
        self._open: dict[tuple[str, ...], frozenset[GpuUuid]] = {}
        self.free = {uuid: paper.state.gpus[uuid].capacity_bytes for uuid in paper.free if uuid in paper.usable}
        self.promised = dict(self.free)
        self._admitted = paper.admitted()
        self.place = {workload.id: self._place_of(workload) for workload in self._admitted}
        for workload in self._admitted:
            for uuid in self.place[workload.id]:
                if uuid in self.free:
                    self.free[uuid] -= self.size_bytes(workload)
                    self.promised[uuid] -= workload.spec.request_bytes

    def holds(self) -> bool:
        """Whether the same have the same homes still, and may have new ones on the same Gpus."""
        homes, usable = self._of
        if self._version != self.paper.on_paper.version and homes == self.paper.result.homes:
            self._version = self.paper.on_paper.version
        return self._version == self.paper.on_paper.version and usable == self.paper.usable

    def _place_of(self, workload: Workload) -> tuple[GpuUuid, ...]:
        """Where it is, if its home may be there as well; where it is to be, for all others."""
        home = self.paper.result.homes[workload.id]
        stays = workload.stays and workload.given_home is None
        if not stays or not workload.spec.may_borrow or workload.current == home:
            return home
        (uuid,) = workload.current
        return workload.current if uuid in self.open_to(workload) else home

    def open_to(self, workload: Workload) -> frozenset[GpuUuid]:
        """The usable Gpus of its pools."""
        pools, paper = tuple(self.paper.pools_for(workload)), self.paper
        if pools not in self._open:
            self._open[pools] = frozenset(u for u in self.free if any(paper.is_open(pool, u) for pool in pools))
        return self._open[pools]

    def is_at(self, workload: Workload) -> bool:
        """Whether it is in fact on the Gpu where it is taken to be at home, and not on its way out."""
        return workload.stays and workload.current == self.place[workload.id]

    def is_away(self, workload: Workload) -> bool:
        """Whether its home is elsewhere than where it is."""
        return workload.current != self.paper.result.homes[workload.id]

    def size_bytes(self, workload: Workload) -> int:
        """What it takes there: all that it holds, or its request on paper."""
        return workload.size_bytes if self.is_at(workload) else workload.spec.request_bytes

    def unmoved_by(self, newcomer: Workload) -> set[GpuUuid]:
        """The Gpus with room for all that `newcomer` brings, beside all that is held there."""
        return {uuid for uuid, room in self.free.items() if room >= newcomer.return_bytes}

    def beside_all(self, newcomer: Workload) -> frozenset[GpuUuid]:
        """The Gpus with room for all that `newcomer` brings beside those who are there and stay."""
        if newcomer.present:
            return frozenset(uuid for uuid in self.free if self.paper.has_room_in_fact(newcomer, uuid))
        brings = newcomer.return_bytes
        return frozenset([uuid for uuid, left in self._left_in_fact.items() if left >= brings])

    @computed_once
    def _left_in_fact(self) -> Mapping[GpuUuid, int]:
        """What is left there beside those who stay, for who is not there and has no home."""
        return {uuid: self.paper.left_in_fact(uuid) for uuid in self.free}

    @computed_once
    def _free(self) -> Sequence[Workload]:
        """Whose homes are ours to change."""
        return [w for w in self._admitted if w.given_home is None and not w.stands_at_home]

    @computed_once
    def choices(self) -> Sequence[_Candidates]:
        """Of whom some are given another home: those who may burst; then everybody who can move."""
        bursters, movable = [w for w in self._free if w.spec.may_borrow], [w for w in self._free if w.spec.movable]
        return [self._candidates(of) for of in ([bursters] if len(movable) == len(bursters) else [bursters, movable])]

    def _candidates(self, workloads: Sequence[Workload]) -> _Candidates:
        homes, left = self.paper.result.homes, dict(self.paper.free)
        for workload in workloads:
            for uuid in homes[workload.id]:
                left[uuid] += self.paper.cost_bytes(workload, uuid)
        largest = sorted(workloads, key=attrgetter("spec.request_bytes"), reverse=True)
        return _Candidates(workloads, largest, [homes[w.id] for w in largest], left)

    def change(self, gpus: Sequence[GpuUuid], moves: Mapping[WorkloadId, GpuUuid]) -> _Change:
        """The newcomer on `gpus`, those of `moves` there, and everybody at home where they are taken to be."""
        moved = {key: (uuid,) for key, uuid in moves.items() if self.place[key] != (uuid,)}
        homes, index = self.paper.result.homes, self.paper.state.gpus
        new = {key: home for key, home in {**self.place, **moved}.items() if homes[key] != home}
        return _Change(tuple(sorted(gpus, key=lambda uuid: index[uuid].index)), new, moved.keys())

    @computed_once
    def _movable(self) -> Sequence[Workload]:
        """Who could be put elsewhere."""
        return [w for w in self._free if w.spec.movable and self.place[w.id][0] in self.free]

    @computed_once
    def pieces(self) -> Sequence[Piece]:
        """The same as pieces; who is not there changes its home for nothing."""
        return [self._piece(w) for w in self._movable]

    @computed_once
    def besides(self) -> Sequence[_Beside]:
        """How others have their homes elsewhere, who are not moved by that: who is off, then who is away as well.

        First where those who are off have room beside all that others hold; then beside what others are promised; then
        with another home for whoever borrows where it is.
        """
        off = [self._piece(w) for w in self._movable if not w.present]
        away = [self._piece(w)._replace(size_bytes=w.spec.request_bytes) for w in self._movable if self.is_away(w)]
        ways = (self._beside(self.free, off), self._beside(self.promised, off), self._beside(self.promised, away))
        return [beside for beside in ways if beside is not None]

    def _beside(self, room: Mapping[GpuUuid, int], pieces: Sequence[Piece]) -> _Beside | None:
        """Beside what `room` leaves; `None`: others are promised more there than there is."""
        if min(without(self.promised, pieces).values(), default=0) < 0:
            return None
        cleared = without(room, pieces)
        left = {uuid: bytes_ - min(0, cleared[uuid]) for uuid, bytes_ in room.items()}
        return _Beside(left, cleared, pieces, sum(left.values()))

    @computed_once
    def cleared(self) -> Mapping[GpuUuid, int]:
        """What would be left on each usable Gpu without them."""
        return without(self.free, self.pieces)

    def _piece(self, workload: Workload) -> Piece:
        place, request = self.place[workload.id], workload.spec.request_bytes
        cost, size, moved = (0, 0), request, request
        if self.is_at(workload):
            works = workload.executing or workload.kept(self.paper.at)
            cost, size, moved = (int(works), workload.moved_bytes), workload.size_bytes, workload.return_bytes
        others = self.open_to(workload).difference(place)
        may_wait = size > request and workload.spec.kind is Kind.NOTEBOOK
        rank = (not workload.spec.may_borrow, not workload.borrowed, -workload.submitted_at, workload.id)
        return Piece(workload.id, place[0], size, moved, request, cost, others, may_wait, rank)

    @computed_once
    def _borrowers(self) -> Mapping[GpuUuid, Sequence[Workload]]:
        """Who only borrows where it is: who costs least to send away is first."""
        borrowers = {
            uuid: [
                w for w in self.paper.state.on(uuid) if w.spec.may_borrow and uuid not in self.place.get(w.id, (uuid,))
            ]
            for uuid in self.free
        }
        return {u: sorted(of, key=lambda w: (w.executing, w.moved_bytes, w.id)) for u, of in borrowers.items()}

    def leaving(self, newcomer: Workload, uuid: GpuUuid) -> tuple[int, int]:
        """The cost of sending away who only borrows where `newcomer` would be at home, in a `Demand`'s terms."""
        borrowers = self._borrowers[uuid]
        if not borrowers:
            return 0, 0
        excess = sum(w.spec.request_bytes for w in borrowers) + newcomer.spec.request_bytes
        excess -= self.paper.state.gpus[uuid].capacity_bytes
        works, moved = 0, 0
        for borrower in borrowers:
            if excess <= 0:
                break
            excess -= borrower.spec.request_bytes
            works, moved = works + borrower.executing, moved + borrower.moved_bytes
        return works, moved


def _consolidate(paper: Paper, newcomer: Workload, there: _There, *, spares: bool = False) -> bool:
    """Several Gpus: those that are closest together go before fewer bytes, as somebody moves in any case.

    `spares`: nothing is owed to `newcomer` yet, so that no way is taken that moves too many.
    """
    if pinned_to(newcomer) is not None:
        return False
    paper.looked_at.costs = True
    budget = BUDGET if _has_just_come(paper, newcomer) else 0  # who waits may be searched a way for after every event
    for ranked in _clearable(paper, newcomer, there):
        by_link: dict[topology.Link, list[tuple[GpuUuid, ...]]] = {}
        for link, gpus in topology.sets(ranked, newcomer.fewest_gpus, paper.state.gpus):
            by_link.setdefault(link, []).append(gpus)
        leaving = {uuid: there.leaving(newcomer, uuid) for uuid in ranked}
        for sets in by_link.values():
            demand = Demand(newcomer.spec.request_bytes, sets, leaving)
            answer = make_room(there.free, there.pieces, demand, budget=budget)
            if answer is not None:
                change = there.change(answer.gpus, answer.moves)
                if spares and _moves_too_many(paper, newcomer, change):
                    continue
                _change_homes(paper, newcomer, change)
                for key in change.moved:
                    mover = paper.state.workloads[key]
                    if mover.spec.may_borrow and there.is_at(mover):  # all others follow their homes
                        paper.result.bound[key] = answer.moves[key]
                return True
    return False


def _packed_anew(paper: Paper, newcomer: Workload, there: _There) -> _Change | None:
    """Everybody's home is chosen anew, whatever that moves: who is in the way is seen when it is."""
    if pinned_to(newcomer) is not None:
        return None
    for ranked in _clearable(paper, newcomer, there):
        demand = Demand(newcomer.spec.request_bytes, _sets(paper, ranked, newcomer.fewest_gpus), {})
        answer = make_room(there.free, there.pieces, demand, budget=0, whatever_moves=True)
        if answer is not None:
            return there.change(answer.gpus, answer.moves)
    return None


def _clearable(paper: Paper, newcomer: Workload, there: _There) -> Iterator[list[GpuUuid]]:
    """For each of its pools the Gpus that can be cleared for it, the emptiest first."""
    cleared = there.cleared
    for pool in paper.pools_for(newcomer):
        ranked = [u for u in there.free if paper.is_open(pool, u) and cleared[u] >= newcomer.spec.request_bytes]
        yield sorted(ranked, key=lambda u: (-there.free[u], paper.state.gpus[u].index))
