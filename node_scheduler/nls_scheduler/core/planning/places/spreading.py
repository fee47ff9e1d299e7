"""A better spread: idle notebooks move to where everybody's smallest share grows, one or several at once. Pure.

Where no move of one helps, several change places (`_exchange`): the fewest bytes that make room for a larger smallest
share everywhere, or, where that search finds no way, everybody placed anew.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.pools import Placement
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room.allowances import share_of
from nls_scheduler.core.planning.making_room.cheapest_moves import BUDGET, Piece
from nls_scheduler.core.planning.making_room.make_room import make_room
from nls_scheduler.core.planning.places.burst_moves import may_move_from
from nls_scheduler.core.planning.places.failed_allocations import roomier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft

    Moves = dict[WorkloadId, GpuUuid]

_PART: Final = 0.25
"""Who is nowhere yet goes to a better place for this part of `min_gain`: it costs nothing."""
_LEAST_GAIN: Final = 0.0002
"""Nobody moves for less, whatever `min_gain` is: shares are only found as exactly as that."""


def place_together(draft: Draft) -> None:
    """Those who are on no Gpu yet, and were placed one after another, once more all at once; nobody leaves for it."""
    for_whom, awaited = set(draft.cause.values()), _awaited_homes(draft)
    # Nor who comes home to where others leave who were chosen together: nobody would come there then.
    awaited |= {uuid for key in draft.bound for uuid in draft.state.workloads[key].current}
    coming = [w for w in _coming(draft) if w.spec.may_borrow and not w.wish and w.id not in for_whom | {*draft.bound}]
    coming = [w for w in coming if not _is_at_home(draft, w, awaited)]
    if len(coming) < 2:
        return
    with draft.rooms.less_on_paper(draft.leaving):
        found = _exchange(draft, coming, _PART * draft.state.policy.min_gain, lambda _: 0, partial(_as_soon, draft))
    for key, uuid in found.items():
        workload = draft.state.workloads[key]
        if workload in draft.claimants.get(draft.rooms.target[key][0], ()):
            draft.claimants.setdefault(uuid, []).append(workload)
        draft.rooms.move(workload, (uuid,))


def _as_soon(draft: Draft, workload: Workload) -> frozenset[GpuUuid]:
    """Where one that is coming may be as well: where it need not wait, if it need not where it is to be."""
    rooms, (uuid,) = draft.rooms, draft.rooms.target[workload.id]
    may_be = rooms.open_to(workload)
    return may_be if rooms.waits_on(workload, uuid) else frozenset(u for u in may_be if not rooms.waits_on(workload, u))


def _coming(draft: Draft) -> list[Workload]:
    """Who is to be on a Gpu and has not begun to start there."""
    return [w for key in draft.rooms.target if not (w := draft.state.workloads[key]).stays]


def _awaited_homes(draft: Draft) -> set[GpuUuid]:
    """Homes of those who wait for their turn because others are at home there: these do not leave for burst alone.

    Else the home would be owed to whoever waits, who would send back the one that came in exchange.
    """
    waiting = [w for w in draft.over if w.id not in draft.rooms.target]
    homes = {uuid for w in waiting for uuid in draft.homes.homes[w.id] if uuid in draft.rooms.pools}
    return {uuid for uuid in homes if draft.rooms.pools[uuid].oversubscribe > 1.0}


def _is_at_home(draft: Draft, workload: Workload, gpus: set[GpuUuid]) -> bool:
    """Whether it is to be on one of `gpus`, and at home there."""
    home = draft.homes.homes.get(workload.id, ())
    return draft.rooms.target[workload.id] == home and not gpus.isdisjoint(home)


def spread(draft: Draft) -> None:
    """Move idle bursters to where everybody's share grows by at least `min_gain`.

    Not while somebody is on the way to a Gpu: where all are is known only then. While one is to leave when its cell has
    ended, nobody changes places with others. On a node that is about to be emptied nobody goes but home.
    """
    if _coming(draft):
        return
    draft.weighed.update(draft.state.gpus)
    with draft.rooms.less_on_paper(draft.leaving):
        _spread(draft)


def _spread(draft: Draft) -> None:
    states, still_there, awaited = draft.state.workloads, _there_until_a_cell_ends(draft), _awaited_homes(draft)
    movable = [states[key] for key, gpus in draft.rooms.target.items() if _may_move_for_burst(draft, states[key], gpus)]
    movable = [w for w in movable if not _is_at_home(draft, w, awaited)]
    if not draft.state.claims.cordoned:
        while (
            len(draft.moves) < len(draft.rooms.gpus) and (best := _best_move(draft, movable, still_there)) is not None
        ):
            workload, uuid = best
            _move(draft, workload, uuid)
            movable.remove(workload)
        if not still_there:
            _exchange_idle(draft, movable)
    if not draft.moves:
        _go_home(draft, movable, still_there)


def _move(draft: Draft, workload: Workload, uuid: GpuUuid, why: Reason = Reason.MORE_ROOM) -> None:
    draft.rooms.move(workload, (uuid,))
    draft.moves[workload.id] = why


def _go_home(draft: Draft, movable: list[Workload], still_there: Mapping[GpuUuid, Sequence[Workload]]) -> None:
    """Whoever borrows, and takes nothing from anybody by being at home, goes home: the next owner need not wait for it.

    Where nothing is lent (any more) no share counts. Only where a cluster's scheduler has given the home: elsewhere
    homes are a matter of our own paper.
    """
    for workload in movable:
        home = workload.given_home
        if not home or draft.homes.homes[workload.id] != home or draft.rooms.target[workload.id] == home:
            continue
        _, before = draft.rooms.value()
        ((_, _, there),) = draft.rooms.values_with(workload, home)
        fits = draft.rooms.fits(workload, home[0], still_there.get(home[0], ()))
        packed = draft.rooms.pools[draft.rooms.target[workload.id][0]].placement is Placement.BINPACK
        as_good = there >= before and draft.rooms.takes_from_nobody_with_less(workload, home[0])
        if fits and (packed or as_good):
            _move(draft, workload, home[0], Reason.HOME if packed else Reason.GOES_HOME)


def _there_until_a_cell_ends(draft: Draft) -> dict[GpuUuid, list[Workload]]:
    """Who is on a Gpu and is not to be there when its cell has ended: its room is not to be had before."""
    still_there: dict[GpuUuid, list[Workload]] = {}
    for workload in draft.state.workloads.values():
        if workload.executing:
            for uuid in draft.left_by(workload):
                still_there.setdefault(uuid, []).append(workload)
    return still_there


def follow_wishes(draft: Draft, wanting: list[Workload]) -> None:
    """Move the first idle one that was refused memory to where it may use that much."""
    if draft.state.claims.cordoned:
        return  # nobody goes but home
    refused = [w for w in wanting if w.wanted or w.wished_bytes]
    draft.weighed.update(uuid for workload in refused for uuid in workload.current)
    may_move = (w for w in refused if _may_move_between_cells(draft, w, w.current))
    draft.roomier = {w.id: uuid for w in may_move if (uuid := roomier(draft, w)) is not None}
    for workload_id, uuid in draft.roomier.items():
        workload = draft.state.workloads[workload_id]
        if workload.wished_bytes and _may_move_for_burst(draft, workload, draft.rooms.target[workload_id]):
            _move(draft, workload, uuid)
            return


def _best_move(
    draft: Draft, movable: list[Workload], still_there: Mapping[GpuUuid, Sequence[Workload]]
) -> tuple[Workload, GpuUuid] | None:
    gain, rooms = max(draft.state.policy.min_gain, _LEAST_GAIN), draft.rooms
    smallest_before, total_before = rooms.value()
    alike_gpus = rooms.alike(uuid for uuid in rooms.gpus if rooms.pools[uuid].placement is Placement.SPREAD)
    kinds = [(rooms.left_bytes(kind[0])[0], kind) for kind in alike_gpus]
    most_left, options = max((left for left, _ in kinds), default=0), []
    for workload in movable:
        gpus, request = rooms.target[workload.id], workload.spec.request_bytes
        if request > most_left or rooms.pools[gpus[0]].placement is Placement.BINPACK:
            continue
        possible = rooms.open_to(workload).difference(gpus)
        roomy = (kind for left, kind in kinds if left >= request)
        alike = {there[0]: there for kind in roomy if (there := [uuid for uuid in kind if uuid in possible])}
        for first, smallest, total in rooms.values_with(workload, alike):
            grows = smallest - smallest_before, total - total_before
            if grows[0] >= gain or (grows[0] >= 0 and grows[1] >= gain):
                rank = (-smallest, -total, workload.return_bytes, -workload.submitted_at, workload.id)
                if not rooms.takes_from_nobody_with_less(workload, first):
                    continue
                fits = [u for u in alike[first] if rooms.fits(workload, u, still_there.get(u, ()))]
                options += [(*rank, rooms.gpus[u].index, u) for u in fits]
    if not options:
        return None
    chosen = min(options)
    return draft.state.workloads[chosen[4]], chosen[6]


def _may_move_for_burst(draft: Draft, workload: Workload, gpus: tuple[GpuUuid, ...]) -> bool:
    return workload.cell_since is None and _may_move_between_cells(draft, workload, gpus)


def _may_move_between_cells(draft: Draft, workload: Workload, gpus: tuple[GpuUuid, ...]) -> bool:
    """Whether it may move for burst alone as soon as no cell runs."""
    if workload.phase is not Phase.RUNNING or workload.pending is not None:
        return False
    if workload.spec.kind is not Kind.NOTEBOOK or not workload.spec.may_borrow:
        return False
    if gpus != workload.current or workload.wish:
        return False
    if not draft.state.policy.max_moves_per_hour or draft.keeps(workload) or workload.id not in draft.homes.homes:
        return False
    return draft.has_come(may_move_from(draft.state, workload))


def _exchange_idle(draft: Draft, idle: list[Workload]) -> None:
    """Idle ones change places; who moves in any case may as well go elsewhere."""
    states, moves = draft.state.workloads, draft.moves
    idle = [*idle, *(states[key] for key in moves)]
    if not idle:
        return
    gain, open_to = draft.state.policy.min_gain, draft.rooms.open_to
    found = _exchange(draft, idle, gain, lambda w: 0 if w.id in moves else w.moved_bytes, open_to)
    for key, uuid in found.items():
        _move(draft, states[key], uuid)


def _exchange(
    draft: Draft,
    movable: list[Workload],
    gain: float,
    bytes_of: Callable[[Workload], int],
    open_to: Callable[[Workload], frozenset[GpuUuid]],
) -> Moves:
    """Who of `movable` goes where so that the smallest share grows by at least `gain`, as far as it can."""
    board, gain = _Board(draft, movable, bytes_of, open_to), max(gain, _LEAST_GAIN)
    smallest, possible = board.smallest(gain), board.possible()
    low = smallest + gain
    found = board.with_share(low) if low <= possible else None
    if found is None:
        return {}
    while possible - low > gain:
        share = (low + possible) / 2
        better = board.with_share(share)
        low, possible, found = (low, share, found) if better is None else (share, possible, better)
    return found


class _Board:
    """The Gpus on which a share can grow at all, who stays there and who may be moved between them."""

    def __init__(
        self,
        draft: Draft,
        movable: list[Workload],
        bytes_of: Callable[[Workload], int],
        open_to: Callable[[Workload], frozenset[GpuUuid]],
    ) -> None:
        rooms = draft.rooms
        self._draft, self._bytes_of, self._open_to = draft, bytes_of, open_to
        self._gpus = {u for u in rooms.gpus if rooms.pools[u].placement is Placement.SPREAD}
        on_board = (w for w in movable if rooms.target[w.id][0] in self._gpus)
        self._movable = {w.id: w for w in on_board}

    def smallest(self, gain: float) -> float:
        """The smallest share that may grow by `gain`; Gpus where those who stay prevent that are left out."""
        rooms = self._draft.rooms
        for uuid in sorted(self._gpus, key=lambda u: (rooms.share(u), u)):
            if self._share_of_staying(uuid) >= rooms.share(uuid) + gain:
                return rooms.share(uuid)
            self._gpus.discard(uuid)
        return 1.0

    def possible(self) -> float:
        """No smallest share is larger than this: what each Gpu has beside those who stay, and all together."""
        room, burst, most = 0, 0, 1.0
        for uuid in self._gpus:
            room += self._draft.rooms.left_bytes(uuid)[0]
            burst += self._draft.rooms.burst_bytes(uuid)
            most = min(most, self._share_of_staying(uuid))
        return min(most, share_of(room, burst))

    def _share_of_staying(self, uuid: GpuUuid) -> float:
        rooms = self._draft.rooms
        room, burst = rooms.left_bytes(uuid)[0], rooms.burst_bytes(uuid)
        for workload in rooms.members(uuid):
            if workload.id in self._movable:
                room += workload.spec.request_bytes
                burst -= workload.spec.burst_bytes if workload.spec.may_borrow else 0
        return share_of(room, burst)

    def with_share(self, share: float) -> Moves | None:
        """Where to move whom so that everybody has so much, the fewest bytes if that is found; `None`: no way was."""
        rooms, free, slots = self._draft.rooms, {}, {}
        for uuid in self._gpus:
            there = rooms.members(uuid)
            free[uuid] = rooms.gpus[uuid].capacity_bytes - sum(self._size(w, uuid, share) for w in there)
            most = rooms.pools[uuid].max_workloads_per_gpu
            if most is not None:
                slots[uuid] = most - len(there)
        pieces = [self._piece(w, share) for w in self._movable.values() if rooms.target[w.id][0] in self._gpus]
        # Where nothing costs anything no way is cheaper than another.
        budget = BUDGET if any(piece.cost[1] for piece in pieces) else 0
        answer = make_room(free, pieces, slots=slots, budget=budget, whatever_moves=True)
        if answer is None:
            return None
        # There has to be room beside those who stay: where all were placed anew they count as if they moved.
        moves = {k: u for k, u in answer.moves.items() if rooms.target[k] != (u,)}
        for piece in (piece for piece in pieces if piece.id in moves):
            free[piece.gpu] += piece.size_bytes
            free[moves[piece.id]] -= piece.moved_size_bytes
        return moves if min(free.values(), default=0) >= 0 else None

    def _piece(self, workload: Workload, share: float) -> Piece:
        (uuid,) = self._draft.rooms.target[workload.id]
        size, elsewhere = self._size(workload, uuid, share), self._size(workload, None, share)
        cost, rank = (0, self._bytes_of(workload)), (-workload.submitted_at, workload.id)
        others = (self._open_to(workload) & self._gpus) - {uuid}
        return Piece(workload.id, uuid, size, elsewhere, elsewhere, cost, others, rank=rank)

    def _size(self, workload: Workload, uuid: GpuUuid | None, share: float) -> int:
        """What it takes with that share on a Gpu; `None`: on one where it is not."""
        spec = workload.spec
        burst = int(share * spec.burst_bytes) if spec.may_borrow else 0
        held = workload.return_bytes if uuid is None else self._draft.rooms.size_on(workload, uuid)
        return max(spec.request_bytes + burst, held)
