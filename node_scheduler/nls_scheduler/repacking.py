"""Homes exchanged, so that a newcomer has one: where anything fits at all, the fewest bytes are moved. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler import topology
from nls_scheduler.consolidation import Piece, cheapest
from nls_scheduler.paper import admission_order, pinned_to

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.model import GpuUuid, Workload, WorkloadId
    from nls_scheduler.paper import Paper


def repack(paper: Paper, newcomer: Workload) -> bool:
    """Admit `newcomer` by giving others another home: the fewest bytes moved, or else whatever fits."""
    needed = newcomer.spec.request_bytes * newcomer.spec.gpu_count
    if sum(room for room in paper.free.values() if room > 0) < needed:
        return False
    admitted = [w for w in paper.admitted() if w.given_home is None]
    bursters = [w for w in admitted if w.spec.may_borrow]
    movable = [w for w in admitted if w.spec.movable]
    choices = [bursters] if len(movable) == len(bursters) else [bursters, movable]
    restore = paper.snapshot()
    # The search for the cheapest way costs more than a packing: only where there is a way at all.
    if not any(_pack_again(paper, newcomer, candidates) for candidates in choices):
        return False
    if not paper.oversubscribed:
        as_packed = paper.snapshot()
        restore()
        if not _consolidate(paper, newcomer, movable):
            as_packed()
    return True


def _pack_again(paper: Paper, newcomer: Workload, candidates: list[Workload]) -> bool:
    """First the newcomer, then the candidates by decreasing size, each at its old home where that has room."""
    old = paper.result.homes
    moving = {workload.id for workload in candidates}
    free, trial = dict(paper.free), {w: home for w, home in old.items() if w not in moving}
    for workload in candidates:
        for uuid in old[workload.id]:
            free[uuid] += paper.cost_bytes(workload, uuid)
    home = paper.best_fit(newcomer, free, trial)
    if home is None:
        return False
    paper.put(newcomer, home, free, trial)
    for workload in sorted(candidates, key=lambda w: (-w.spec.request_bytes, *admission_order(w))):
        own = old[workload.id]
        fits = all(paper.fits(workload, uuid, free, trial) for uuid in own)
        new_home = own if fits else paper.best_fit(workload, free, trial)
        if new_home is None:
            return False
        paper.put(workload, new_home, free, trial)
    moved = [w.id for w in candidates if trial[w.id] != old[w.id]]
    paper.result.moved_for.update(dict.fromkeys(moved, newcomer.id))
    paper.result.homes.update(trial)
    paper.free = free
    paper.count(newcomer, home, 1)
    return True


def _to_leave(paper: Paper, newcomer: Workload, uuid: GpuUuid) -> tuple[int, int]:
    """The cost of sending away who only borrows where `newcomer` would be at home, in `consolidation`'s terms."""
    there = [w for w in paper.state.workloads.values() if uuid in w.current]
    borrowers = [w for w in there if w.spec.may_borrow and paper.result.homes.get(w.id, (uuid,)) != (uuid,)]
    excess = sum(w.spec.request_bytes for w in borrowers) + newcomer.spec.request_bytes
    excess -= paper.state.gpus[uuid].capacity_bytes
    works, moved = 0, 0
    for borrower in sorted(borrowers, key=lambda w: (w.executing, w.moved_bytes, w.id)):
        if excess <= 0:
            break
        excess -= borrower.spec.request_bytes
        works, moved = works + borrower.executing, moved + borrower.moved_bytes
    return works, moved


def _consolidate(paper: Paper, newcomer: Workload, movable: list[Workload]) -> bool:
    """Several Gpus: those that are closest together go before fewer bytes, as somebody moves in any case."""
    if pinned_to(newcomer) is not None:
        return False
    usable = {uuid for uuid in paper.free if uuid in paper.usable}
    free = {uuid: paper.free[uuid] for uuid in usable}
    pieces = [_piece(paper, w, usable) for w in sorted(movable, key=lambda w: (-w.submitted_at, w.id))]
    pieces = sorted((p for p in pieces if p.gpu in usable), key=lambda p: p.cost)
    size, count = newcomer.spec.request_bytes, newcomer.spec.gpu_count
    clearable = dict(free)
    for piece in pieces:
        clearable[piece.gpu] += piece.size_bytes
    for pool in paper.pools_for(newcomer):
        ranked = [u for u in usable if paper.is_open(pool, u) and clearable[u] >= size]
        ranked.sort(key=lambda u: (-free[u], paper.state.gpus[u].index))
        leaving = {uuid: _to_leave(paper, newcomer, uuid) for uuid in ranked}
        by_link: dict[topology.Link, list[tuple[GpuUuid, ...]]] = {}
        for link, gpus in topology.sets(ranked, count, paper.state.gpus):
            by_link.setdefault(link, []).append(gpus)
        for sets in by_link.values():
            answer = cheapest(free, pieces, size, sets, leaving)
            if answer is not None:
                _exchange(paper, newcomer, answer.gpus, answer.moves)
                return True
    return False


def _piece(paper: Paper, workload: Workload, usable: set[GpuUuid]) -> Piece:
    """One that is not on its home, or has no process, changes its home for nothing."""
    home = paper.result.homes[workload.id]
    follows = workload.present and workload.current == home
    others = (u for u in usable if u not in home and any(paper.is_open(p, u) for p in paper.pools_for(workload)))
    cost = (int(workload.executing), workload.moved_bytes) if follows else (0, 0)
    return Piece(workload.id, home[0], workload.spec.request_bytes, cost, frozenset(others))


def _exchange(paper: Paper, newcomer: Workload, gpus: tuple[GpuUuid, ...], moves: Mapping[WorkloadId, GpuUuid]) -> None:
    for moved in moves:
        paper.take(paper.state.workloads[moved])
    for moved, uuid in moves.items():
        paper.give(paper.state.workloads[moved], (uuid,))
    order = tuple(sorted(gpus, key=lambda uuid: paper.state.gpus[uuid].index))
    paper.give(newcomer, order)
    paper.result.moved_for.update(dict.fromkeys(moves, newcomer.id))
