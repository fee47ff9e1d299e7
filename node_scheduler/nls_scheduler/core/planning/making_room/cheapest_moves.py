"""Which pieces to put elsewhere so that everything fits: those that move the fewest bytes. Pure.

A search over what has to give way, the cheapest first: a piece is taken off a Gpu that is too full and put where there
is room, or where a smaller one can give way in turn. The cost of a set of moves is (how many interrupt somebody's work,
bytes, how many at all); among equals the latest arrivals go, as pieces are given in that order. What is too full still
costs at least the cheapest parts of the pieces there (A*), so that a cheap way that leads nowhere is left early.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId

BUDGET: Final = 300
"""So many partial answers are looked at: a bound on the time of a step. What is found is the cheapest within it."""
_TRIED: Final = 3
_Cost = tuple[int, int, int, int]
"""Works interrupted, bytes, pieces, and the sum of their places among all pieces."""
_Rank = tuple[int, int, int, int, int]
_Change = tuple[int, "GpuUuid", int]
"""The number of a piece, a Gpu, and the bytes that become free there: less than zero where the piece is put there."""


class Piece(NamedTuple):
    """Somebody who can be put elsewhere.

    Attributes:
        size_bytes: what it takes where it is.
        moved_size_bytes: what it takes on another Gpu: its caches stay behind.
        request_bytes: what it takes at least, on its own Gpu too.
        cost: of giving it another Gpu: how much work that interrupts (0 or 1), and bytes moved.
        others: the Gpus that it may have instead.
        may_wait: it may be off and wait for its burst, with its request.
        rank: of two with one cost, the lower one gives way.
    """

    id: WorkloadId
    gpu: GpuUuid
    size_bytes: int
    moved_size_bytes: int
    request_bytes: int
    cost: tuple[int, int]
    others: frozenset[GpuUuid]
    may_wait: bool = False
    rank: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The newcomer's Gpus, and the new one of each piece that gives way."""

    gpus: tuple[GpuUuid, ...]
    moves: Mapping[WorkloadId, GpuUuid]
    cost: _Cost


class _Least(NamedTuple):
    """What is still to come, at least: bytes that move, Gpus that are too full, bytes that have no place yet."""

    bytes: int
    gpus: int
    lacking: int


class _Draft(NamedTuple):
    """A partial answer.

    Attributes:
        free: what each Gpu has left, below zero where somebody has to give way.
        loose: the pieces that have no Gpu yet.
        placed: those that have another one.
        cost: of both.
        least: what has to be done besides.
        of, after: the Gpu from which a piece was taken last, and that piece: the next one there comes after it.
    """

    gpus: tuple[GpuUuid, ...]
    free: dict[GpuUuid, int]
    loose: tuple[int, ...]
    placed: tuple[tuple[int, GpuUuid], ...]
    cost: _Cost
    least: _Least
    of: GpuUuid | None = None
    after: int = -1

    def touched(self) -> set[int]:
        return {*self.loose, *(number for number, _ in self.placed)}


class _Pieces:
    """All pieces, and those of each Gpu; `slots` says how many more each Gpu takes, where that is bounded."""

    def __init__(self, pieces: Sequence[Piece], slots: Mapping[GpuUuid, int], *, in_haste: bool) -> None:
        self.all = pieces
        self._in_haste = in_haste
        self._slots = slots
        self.on: dict[GpuUuid, list[int]] = {}
        for number, piece in enumerate(pieces):
            self.on.setdefault(piece.gpu, []).append(number)
        self._cheapest_parts = {
            uuid: sorted((p.cost[1] / p.size_bytes, p.size_bytes) for p in (pieces[n] for n in numbers))
            for uuid, numbers in self.on.items()
        }
        self._sizes = {uuid: self._sorted_sizes(numbers) for uuid, numbers in self.on.items()}
        self._least_bytes: dict[tuple[GpuUuid, int], int] = {}

    def _sorted_sizes(self, numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Of those pieces the sizes, the smallest first, and what the first of them are together."""
        sizes = sorted(self.all[number].size_bytes for number in numbers)
        return sizes, [*accumulate(sizes, initial=0)]

    def least_bytes(self, uuid: GpuUuid, room: int) -> int:
        """What has to move at least where `room` is below zero on `uuid`: the cheapest parts of the pieces there."""
        known = self._least_bytes.get((uuid, room))
        if known is None:
            cost, left = 0.0, -room
            for per_byte, size in self._cheapest_parts.get(uuid, ()):
                cost += per_byte * min(size, left)
                left -= size
                if left <= 0:
                    break
            known = self._least_bytes[uuid, room] = int(cost)
        return known

    def smaller_bytes(self, uuid: GpuUuid, size_bytes: int) -> int:
        """What all pieces on `uuid` hold together that are smaller than `size_bytes`."""
        sizes, sums = self._sizes.get(uuid, ((), (0,)))
        return sums[bisect_left(sizes, size_bytes)]

    def has_slot(self, draft: _Draft, uuid: GpuUuid) -> bool:
        """Whether one more may be put on `uuid`."""
        if uuid not in self._slots:
            return True
        left = sum(self.all[n].gpu == uuid for n in draft.touched())
        return sum(to == uuid for _, to in draft.placed) < self._slots[uuid] + left

    def first(self, gpus: tuple[GpuUuid, ...], free: dict[GpuUuid, int], leaving: tuple[int, int]) -> _Draft:
        """Nobody has given way yet; `leaving` is the cost of taking `gpus`."""
        full = [(uuid, room) for uuid, room in free.items() if room < 0]
        least = _Least(sum(self.least_bytes(*one) for one in full), len(full), -sum(room for _, room in full))
        return _Draft(gpus, free, (), (), (*leaving, 0, 0), least)

    def after(self, draft: _Draft, change: _Change, cost: _Cost, least: _Least) -> _Draft:
        """`draft` with one piece less on its Gpu, or with a loose one on a Gpu: what `outlook` looked at."""
        number, uuid, more = change
        free = {**draft.free, uuid: draft.free[uuid] + more}
        if more > 0:
            return _Draft(draft.gpus, free, (*draft.loose, number), draft.placed, cost, least, uuid, number)
        loose = tuple(other for other in draft.loose if other != number)
        return _Draft(draft.gpus, free, loose, (*draft.placed, (number, uuid)), cost, least)

    def outlook(self, draft: _Draft, change: _Change) -> tuple[_Rank, _Cost, _Least]:
        """Of what `draft` is after `change`: its rank and cost, and what is still to come then."""
        number, uuid, more = change
        piece, cost, (least_bytes, gpus, lacking), room = self.all[number], draft.cost, draft.least, draft.free[uuid]
        if more > 0:
            works, moved, pieces, places = cost
            cost = (works + piece.cost[0], moved + piece.cost[1], pieces + 1, places + number)
            lacking += piece.moved_size_bytes
        else:
            lacking -= piece.moved_size_bytes
        if room < 0:
            least_bytes, gpus, lacking = least_bytes - self.least_bytes(uuid, room), gpus - 1, lacking + room
        room += more
        if room < 0:
            least_bytes, gpus, lacking = least_bytes + self.least_bytes(uuid, room), gpus + 1, lacking - room
        least = _Least(least_bytes, gpus, lacking)
        return self.rank(cost, least), cost, least

    def rank(self, cost: _Cost, least: _Least) -> _Rank:
        """Drafts are looked at in this order: the cheapest, as they may become at best; then the nearest.

        In haste a byte that has no place yet counts as one that moves.
        """
        at_best = cost[1] + least.bytes + (least.lacking if self._in_haste else 0)
        return cost[0], at_best, cost[2] + least.gpus, cost[3], least.lacking


def cheapest(
    free: Mapping[GpuUuid, int],
    pieces: Sequence[Piece],
    size_bytes: int,
    sets: Sequence[tuple[GpuUuid, ...]],
    leaving: Mapping[GpuUuid, tuple[int, int]],
    slots: Mapping[GpuUuid, int] | None = None,
    budget: int = BUDGET,
    *,
    in_haste: bool = False,
) -> Answer | None:
    """The cheapest way to make `size_bytes` free on each Gpu of one of `sets`; `None`: none was found.

    `free` is what nobody has, below zero where somebody has to go in any case; `leaving` is the cost of taking each
    Gpu, for those who are no pieces; `slots` is how many more a Gpu takes, where that is bounded. Of two pieces with
    one cost, the first of `pieces` gives way. `in_haste` finds a way sooner, and not always the cheapest.
    """
    known = _Pieces(pieces, slots or {}, in_haste=in_haste)
    firsts = []
    for gpus in sets:
        left = dict(free)
        for uuid in gpus:
            left[uuid] -= size_bytes
        works, moved = (sum(leaving.get(uuid, (0, 0))[part] for uuid in gpus) for part in (0, 1))
        firsts.append(known.first(gpus, left, (works, moved)))
    answer, left_over = _search(known, firsts, budget, _place)
    if in_haste:
        return answer
    cheaper, _ = _search(known, firsts, left_over, _place_anywhere, answer)
    return cheaper or answer


def _search(
    pieces: _Pieces,
    firsts: Sequence[_Draft],
    budget: int,
    place: Callable[[_Draft, _Pieces], Iterator[_Change]],
    known: Answer | None = None,
) -> tuple[Answer | None, int]:
    """The cheapest way from one of `firsts`, cheaper than `known` where that is given; and what is left of `budget`."""
    order, heap = count(), list[tuple[_Rank, int, _Draft, _Change | None, _Cost, _Least]]()
    bound = None if known is None else known.cost[:3]
    for draft in firsts:
        rank = pieces.rank(draft.cost, draft.least)
        if bound is None or rank[:3] < bound:
            heapq.heappush(heap, (rank, next(order), draft, None, draft.cost, draft.least))
    while heap and budget > 0:
        budget -= 1
        _, _, draft, change, cost, least = heapq.heappop(heap)
        draft = draft if change is None else pieces.after(draft, change, cost, least)
        if not draft.least.gpus and not draft.loose:
            moves = {pieces.all[number].id: uuid for number, uuid in draft.placed}
            return Answer(draft.gpus, moves, draft.cost), budget
        for following in _take_off(draft, pieces) if draft.least.gpus else place(draft, pieces):
            rank, cost, least = pieces.outlook(draft, following)
            if bound is None or rank[:3] < bound:
                heapq.heappush(heap, (rank, next(order), draft, following, cost, least))
    return None, budget


def _take_off(draft: _Draft, pieces: _Pieces) -> Iterator[_Change]:
    """One piece less where it is too full; in the order of `pieces`, so that no set of them is looked at twice."""
    uuid = min([uuid for uuid, room in draft.free.items() if room < 0])
    after = draft.after if draft.of == uuid else -1
    touched = draft.touched()
    there = [(n, pieces.all[n].size_bytes) for n in pieces.on.get(uuid, ()) if n > after and n not in touched]
    possible = draft.free[uuid] + sum([size for _, size in there])
    for number, size in there:
        if possible < 0:
            return
        possible -= size
        yield number, uuid, size


def _place(draft: _Draft, pieces: _Pieces) -> Iterator[_Change]:
    """The largest loose piece where it fits most tightly; where it fits nowhere, where smaller ones can give way."""
    number = max(draft.loose, key=lambda n: (pieces.all[n].moved_size_bytes, -n))
    piece, free = pieces.all[number], draft.free
    possible = sorted([(free[uuid], uuid) for uuid in piece.others if uuid in free and pieces.has_slot(draft, uuid)])
    chosen = _tightest(possible, piece.moved_size_bytes)
    if not chosen and not piece.may_wait:  # nobody gives way to what is held above a request
        size, gone = piece.moved_size_bytes, dict.fromkeys(free, 0)
        for other in (pieces.all[n] for n in draft.touched()):
            gone[other.gpu] += other.size_bytes if other.size_bytes < size else 0
        chosen = [
            uuid
            for room, uuid in possible
            if uuid not in draft.gpus and room + pieces.smaller_bytes(uuid, size) - gone[uuid] >= size
        ]
    for uuid in chosen:
        yield number, uuid, -piece.moved_size_bytes
    if piece.may_wait:
        possible = sorted([(free[piece.gpu], piece.gpu), *possible])
        for uuid in _tightest(possible, piece.request_bytes):
            yield number, uuid, -piece.request_bytes


def _place_anywhere(draft: _Draft, pieces: _Pieces) -> Iterator[_Change]:
    """The largest loose piece on each Gpu that has room for it, or gets it when others give way."""
    number = max(draft.loose, key=lambda n: (pieces.all[n].moved_size_bytes, -n))
    piece, touched = pieces.all[number], draft.touched()
    for uuid in sorted(piece.others & draft.free.keys()):
        room = draft.free[uuid]
        if not piece.may_wait:  # nobody gives way to what is held above a request
            room += sum(pieces.all[n].size_bytes for n in pieces.on.get(uuid, ()) if n not in touched)
        if room >= piece.moved_size_bytes and pieces.has_slot(draft, uuid):
            yield number, uuid, -piece.moved_size_bytes
    if piece.may_wait:
        for uuid in sorted({piece.gpu, *piece.others} & draft.free.keys()):
            if draft.free[uuid] >= piece.request_bytes and (uuid == piece.gpu or pieces.has_slot(draft, uuid)):
                yield number, uuid, -piece.request_bytes


def _tightest(possible: Sequence[tuple[int, GpuUuid]], size_bytes: int) -> list[GpuUuid]:
    """Some of the Gpus with room for that much, each with another room, the fullest first."""
    choices: dict[int, GpuUuid] = {}
    for room, uuid in possible:
        if room >= size_bytes:
            choices.setdefault(room, uuid)
    return list(choices.values())[:_TRIED]
