"""A newcomer's home where the least has to move for it, if need be by giving others another home. Pure.

Homes cost nothing to exchange on a plain server, moves do. So before anything is exchanged everybody who may burst is
taken to be at home where it is now, with all that it holds there; then those leave that cost the least, and what an
exchange costs on paper is what really moves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import topology
from nls_scheduler.core.planning.homes.in_fact import Change, InFact
from nls_scheduler.core.planning.homes.paper import counts
from nls_scheduler.core.planning.making_room.cheapest_moves import BUDGET
from nls_scheduler.core.planning.making_room.make_room import Demand, make_room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.in_fact import Candidates
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


def settle_where_it_is(paper: Paper, guest: Workload) -> bool:
    """Its home where it runs without one, if nobody has to go for that: who cannot burst starts anew anywhere else."""
    count = len(guest.current)
    if not guest.stays or guest.spec.may_borrow or paper.oversubscribed or count not in counts(guest):
        return False
    paper.looked_at.places = paper.looked_at.costs = True
    home = paper.best_fit(guest, count, among=guest.current)
    if home is None:
        return _is_enough(paper, guest) and _settle_beside_all(paper, guest, _in_fact(paper), count)
    paper.give(guest, home)
    return True


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


def _settle_beside_all(paper: Paper, newcomer: Workload, there: InFact, count: int) -> bool:
    """A home where nobody who is on a Gpu has to go: who is off has its own elsewhere, which costs nobody anything."""
    in_fact, request_bytes = there.beside_all(newcomer), newcomer.spec.request_bytes
    if newcomer.present:
        in_fact &= {*newcomer.current}
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


def _way(paper: Paper, newcomer: Workload) -> tuple[Change, InFact | None] | None:
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


def _moves_too_many(paper: Paper, newcomer: Workload, change: Change) -> bool:
    """Whether more would leave their Gpus than may for one who has not waited long."""
    state, homes = paper.state, {**paper.result.homes, **change.homes}
    leave = [key for key in change.moved if state.workloads[key].current not in ((), homes[key])]
    return len(leave) > _most_moved(paper, newcomer)


def _most_moved(paper: Paper, newcomer: Workload) -> float:
    """So many may leave their Gpus for it; without bound once it has waited long."""
    return inf if paper.starves(newcomer) else paper.state.policy.max_moved_for_one * newcomer.fewest_gpus


def _change_homes(paper: Paper, newcomer: Workload, change: Change) -> None:
    changed = [paper.state.workloads[key] for key in change.homes]
    for workload in changed:
        paper.take(workload)
    for workload in changed:
        paper.give(workload, change.homes[workload.id])
    paper.give(newcomer, change.home)
    paper.result.moved_for.update(dict.fromkeys(change.moved, newcomer.id))


def _packed_again(paper: Paper, newcomer: Workload, candidates: Candidates) -> Change | None:
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
    paper: Paper, newcomer: Workload, candidates: Candidates, put: Callable[[Workload, tuple[GpuUuid, ...]], None]
) -> Change | None:
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
    return Change(home, homes, homes.keys())


def _in_fact(paper: Paper) -> InFact:
    """Once for all newcomers for whom nothing has changed."""
    paper.looked_at.places = True
    known = paper.in_fact
    if not isinstance(known, InFact) or not known.holds():
        known = paper.in_fact = InFact(paper)
    return known


def _consolidate(paper: Paper, newcomer: Workload, there: InFact, *, spares: bool = False) -> bool:
    """Several Gpus: those that are closest together go before fewer bytes, as somebody moves in any case.

    `spares`: nothing is owed to `newcomer` yet, so that no way is taken that moves too many.
    """
    if newcomer.pinned_to is not None:
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


def _packed_anew(paper: Paper, newcomer: Workload, there: InFact) -> Change | None:
    """Everybody's home is chosen anew, whatever that moves: who is in the way is seen when it is."""
    if newcomer.pinned_to is not None:
        return None
    for ranked in _clearable(paper, newcomer, there):
        demand = Demand(newcomer.spec.request_bytes, _sets(paper, ranked, newcomer.fewest_gpus), {})
        answer = make_room(there.free, there.pieces, demand, budget=0, whatever_moves=True)
        if answer is not None:
            return there.change(answer.gpus, answer.moves)
    return None


def _clearable(paper: Paper, newcomer: Workload, there: InFact) -> Iterator[list[GpuUuid]]:
    """For each of its pools the Gpus that can be cleared for it, the emptiest first."""
    cleared = there.cleared
    for pool in paper.pools_for(newcomer):
        ranked = [u for u in paper.open_gpus(newcomer, pool) if cleared[u] >= newcomer.spec.request_bytes]
        yield sorted(ranked, key=lambda u: (-there.free[u], paper.state.gpus[u].index))
