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
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId

BUDGET: Final = 300
"""So many partial answers are looked at: a bound on the time of a step. What is found is the cheapest within it."""
_TRIED: Final = 3
_Cost = tuple[int, int, int, int]
"""Works interrupted, bytes, pieces, and the sum of their places among all pieces."""
_Rank = tuple[int, int, int, int, int]
_Least = tuple[int, int, int]
"""What is still to come, at least: bytes that move, Gpus that are too full, bytes that have no place yet."""
_Change = tuple[int, int, int]
"""A piece, a Gpu, and the bytes that become free there: less than zero where the piece is put there."""
_Following = tuple[_Change, _Cost, _Least]
"""What can be done next with a draft, and the cost and what is still to come then."""


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


class _Draft(NamedTuple):
    """A partial answer. Gpus and pieces go by their numbers here.

    Attributes:
        goal: the number of the set that is made free.
        free: what each Gpu has left, below zero where somebody has to give way.
        loose: the pieces that have no Gpu yet.
        placed: those that have another one.
        touched: both, a bit each.
        cost: of both.
        least: what has to be done besides.
        of, after: the Gpu from which a piece was taken last, and that piece: the next one there comes after it.
    """

    goal: int
    free: tuple[int, ...]
    loose: tuple[int, ...]
    placed: tuple[tuple[int, int], ...]
    touched: int
    cost: _Cost
    least: _Least
    of: int = -1
    after: int = -1


class _Board:
    """All Gpus and pieces of a search, and what can be done with a draft."""

    def __init__(
        self,
        free: Mapping[GpuUuid, int],
        pieces: Sequence[Piece],
        sets: Sequence[tuple[GpuUuid, ...]],
        slots: Mapping[GpuUuid, int],
        *,
        in_haste: bool,
    ) -> None:
        self.uuids = sorted(free)
        self.pieces = pieces
        self._in_haste = in_haste
        self._free = free
        self._numbers = {uuid: number for number, uuid in enumerate(self.uuids)}
        self._slots = {self._numbers[uuid]: left for uuid, left in slots.items() if uuid in free}
        self._sets = [frozenset(self._numbers[uuid] for uuid in gpus) for gpus in sets]
        self._gpu = [self._numbers[piece.gpu] for piece in pieces]
        others = {others: self._sorted_numbers(others) for others in {piece.others for piece in pieces}}
        self._others = [others[piece.others] for piece in pieces]
        self._on: list[list[int]] = [[] for _ in self.uuids]
        for number, gpu in enumerate(self._gpu):
            self._on[gpu].append(number)
        self._cheapest_parts = [
            sorted((p.cost[1] / p.size_bytes, p.size_bytes) for p in (pieces[n] for n in numbers))
            for numbers in self._on
        ]
        self._sizes = [self._sorted_sizes(numbers) for numbers in self._on]
        self._least_bytes: dict[tuple[int, int], int] = {}

    def _sorted_numbers(self, gpus: Collection[GpuUuid]) -> tuple[int, ...]:
        return tuple(sorted([self._numbers[uuid] for uuid in gpus if uuid in self._numbers]))

    def _sorted_sizes(self, numbers: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """Of those pieces the sizes, the smallest first, and what the first of them are together."""
        sizes = sorted(self.pieces[number].size_bytes for number in numbers)
        return sizes, [*accumulate(sizes, initial=0)]

    def _least(self, gpu: int, room: int) -> int:
        """What has to move at least where `room` is below zero on `gpu`: the cheapest parts of the pieces there."""
        known = self._least_bytes.get((gpu, room))
        if known is None:
            cost, left = 0.0, -room
            for per_byte, size in self._cheapest_parts[gpu]:
                cost += per_byte * min(size, left)
                left -= size
                if left <= 0:
                    break
            known = self._least_bytes[gpu, room] = int(cost)
        return known

    def _smaller_bytes(self, gpu: int, size_bytes: int) -> int:
        """What all pieces on `gpu` hold together that are smaller than `size_bytes`."""
        sizes, sums = self._sizes[gpu]
        return sums[bisect_left(sizes, size_bytes)]

    def _touched(self, draft: _Draft) -> Iterator[int]:
        yield from draft.loose
        for number, _ in draft.placed:
            yield number

    def _without_slot(self, draft: _Draft) -> Collection[int]:
        """The Gpus on which no more may be put."""
        if not self._slots:
            return ()
        left = dict(self._slots)
        for number in self._touched(draft):
            if (gpu := self._gpu[number]) in left:
                left[gpu] += 1
        for _, gpu in draft.placed:
            if gpu in left:
                left[gpu] -= 1
        return {gpu for gpu, more in left.items() if more <= 0}

    def first(self, goal: int, size_bytes: int, leaving: tuple[int, int]) -> _Draft:
        """Nobody has given way yet for that much on each Gpu of a set; `leaving` is the cost of taking that."""
        goals = self._sets[goal]
        free = tuple([self._free[uuid] - size_bytes * (gpu in goals) for gpu, uuid in enumerate(self.uuids)])
        full = [(gpu, room) for gpu, room in enumerate(free) if room < 0]
        least = (sum(self._least(*one) for one in full), len(full), -sum(room for _, room in full))
        return _Draft(goal, free, (), (), 0, (*leaving, 0, 0), least)

    def rank(self, cost: _Cost, least: _Least) -> _Rank:
        """Drafts are looked at in this order: the cheapest, as they may become at best; then the nearest.

        In haste a byte that has no place yet counts as one that moves.
        """
        least_bytes, gpus, lacking = least
        at_best = cost[1] + least_bytes + (lacking if self._in_haste else 0)
        return cost[0], at_best, cost[2] + gpus, cost[3], lacking

    def after(self, draft: _Draft, change: _Change, cost: _Cost, least: _Least) -> _Draft:
        """`draft` with one piece less on its Gpu, or with a loose one on a Gpu."""
        number, gpu, more = change
        free, bit = draft.free, 1 << number
        free = (*free[:gpu], free[gpu] + more, *free[gpu + 1 :])
        if more > 0:
            loose = (*draft.loose, number)
            return _Draft(draft.goal, free, loose, draft.placed, draft.touched | bit, cost, least, gpu, number)
        loose = tuple([other for other in draft.loose if other != number])
        return _Draft(draft.goal, free, loose, (*draft.placed, (number, gpu)), draft.touched, cost, least)

    def take_off(self, draft: _Draft) -> Iterator[_Following]:
        """One piece less where it is too full; in the order of `pieces`, so that no set of them is looked at twice."""
        gpu = next(gpu for gpu, room in enumerate(draft.free) if room < 0)
        room, after = draft.free[gpu], draft.after if draft.of == gpu else -1
        there = [n for n in self._on[gpu] if n > after and not draft.touched >> n & 1]
        pieces, possible = self.pieces, room
        for number in there:
            possible += pieces[number].size_bytes
        (works, moved, many, places) = draft.cost
        for number in there:
            if possible < 0:
                return
            piece = pieces[number]
            size = piece.size_bytes
            possible -= size
            cost = (works + piece.cost[0], moved + piece.cost[1], many + 1, places + number)
            yield (number, gpu, size), cost, self._least_after(draft, gpu, size, piece.moved_size_bytes)

    def place(self, draft: _Draft) -> Iterator[_Following]:
        """The largest loose piece where it fits most tightly; fits it nowhere, where smaller ones can give way."""
        number, piece = self._largest(draft)
        free, size = draft.free, piece.moved_size_bytes
        without = self._without_slot(draft)
        possible = sorted([(free[gpu], gpu) for gpu in self._others[number] if gpu not in without])
        chosen = _tightest(possible, size)
        if not chosen and not piece.may_wait:  # nobody gives way to what is held above a request
            gone = [0] * len(free)
            for other in self._touched(draft):
                if self.pieces[other].size_bytes < size:
                    gone[self._gpu[other]] += self.pieces[other].size_bytes
            goals = self._sets[draft.goal]
            chosen = [
                gpu
                for room, gpu in possible
                if gpu not in goals and room + self._smaller_bytes(gpu, size) - gone[gpu] >= size
            ]
        for gpu in chosen:
            yield self._put(draft, number, gpu, size)
        if piece.may_wait:
            own = self._gpu[number]
            for gpu in _tightest(sorted([(free[own], own), *possible]), piece.request_bytes):
                yield self._put(draft, number, gpu, piece.request_bytes)

    def place_anywhere(self, draft: _Draft) -> Iterator[_Following]:
        """The largest loose piece on each Gpu that has room for it, or gets it when others give way."""
        number, piece = self._largest(draft)
        size, without = piece.moved_size_bytes, self._without_slot(draft)
        for gpu in self._others[number]:
            room = draft.free[gpu]
            if not piece.may_wait:  # nobody gives way to what is held above a request
                room += sum([self.pieces[n].size_bytes for n in self._on[gpu] if not draft.touched >> n & 1])
            if room >= size and gpu not in without:
                yield self._put(draft, number, gpu, size)
        if piece.may_wait:
            own = self._gpu[number]
            for gpu in sorted({own, *self._others[number]}):
                if draft.free[gpu] >= piece.request_bytes and (gpu == own or gpu not in without):
                    yield self._put(draft, number, gpu, piece.request_bytes)

    def _largest(self, draft: _Draft) -> tuple[int, Piece]:
        number = max(draft.loose, key=lambda n: (self.pieces[n].moved_size_bytes, -n))
        return number, self.pieces[number]

    def _put(self, draft: _Draft, number: int, gpu: int, size_bytes: int) -> _Following:
        """That much of a loose piece on `gpu`."""
        least = self._least_after(draft, gpu, -size_bytes, -self.pieces[number].moved_size_bytes)
        return (number, gpu, -size_bytes), draft.cost, least

    def _least_after(self, draft: _Draft, gpu: int, more: int, loose: int) -> _Least:
        """What is still to come where that much `more` is left on `gpu`, and so many bytes more have no place yet."""
        (least_bytes, gpus, lacking), room = draft.least, draft.free[gpu]
        lacking += loose
        if room < 0:
            least_bytes, gpus, lacking = least_bytes - self._least(gpu, room), gpus - 1, lacking + room
        room += more
        if room < 0:
            least_bytes, gpus, lacking = least_bytes + self._least(gpu, room), gpus + 1, lacking - room
        return least_bytes, gpus, lacking


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
    board = _Board(free, pieces, sets, slots or {}, in_haste=in_haste)
    firsts = []
    for goal, gpus in enumerate(sets):
        works, moved = (sum(leaving.get(uuid, (0, 0))[part] for uuid in gpus) for part in (0, 1))
        firsts.append(board.first(goal, size_bytes, (works, moved)))
    found, left_over = _search(board, firsts, budget, board.place)
    if not in_haste:
        found = _search(board, firsts, left_over, board.place_anywhere, found)[0] or found
    if found is None:
        return None
    moves = {pieces[number].id: board.uuids[gpu] for number, gpu in found.placed}
    return Answer(sets[found.goal], moves, found.cost)


def _search(
    board: _Board,
    firsts: Sequence[_Draft],
    budget: int,
    place: Callable[[_Draft], Iterator[_Following]],
    known: _Draft | None = None,
) -> tuple[_Draft | None, int]:
    """The cheapest way from one of `firsts`, cheaper than `known` where that is given; and what is left of `budget`."""
    order, heap = count(), list[tuple[_Rank, int, _Draft, _Change | None, _Cost, _Least]]()
    bound = None if known is None else known.cost[:3]
    for draft in firsts:
        rank = board.rank(draft.cost, draft.least)
        if bound is None or rank[:3] < bound:
            heapq.heappush(heap, (rank, next(order), draft, None, draft.cost, draft.least))
    while heap and budget > 0:
        budget -= 1
        _, _, draft, change, cost, least = heapq.heappop(heap)
        draft = draft if change is None else board.after(draft, change, cost, least)
        too_full = least[1] > 0
        if not too_full and not draft.loose:
            return draft, budget
        for following, cost, least in board.take_off(draft) if too_full else place(draft):
            rank = board.rank(cost, least)
            if bound is None or rank[:3] < bound:
                heapq.heappush(heap, (rank, next(order), draft, following, cost, least))
    return None, budget


def _tightest(possible: Sequence[tuple[int, int]], size_bytes: int) -> list[int]:
    """Some of the Gpus with room for that much, each with another room, the fullest first."""
    choices: dict[int, int] = {}
    for room, gpu in possible:
        if room >= size_bytes:
            choices.setdefault(room, gpu)
    return list(choices.values())[:_TRIED]
