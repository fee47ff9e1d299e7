"""Which pieces to put elsewhere so that everything fits: those that move the fewest bytes. Pure.

A search over what has to give way, the cheapest first: a piece is taken off a Gpu that is too full and put where there
is room, or where a smaller one can give way in turn. The cost of a set of moves is (how many interrupt somebody's work,
bytes, how many at all); among equals the latest arrivals go, as pieces are given in that order. What is too full still
costs at least the cheapest parts of the pieces there (A*), so that a cheap way that leads nowhere is left early.

`repacking` asks it for homes, `spreading` for places in fact.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nls_scheduler.model import GpuUuid, WorkloadId

BUDGET: Final = 300
"""So many partial answers are looked at: a bound on the time of a step. What is found is the cheapest within it."""
_TRIED: Final = 3
_Cost = tuple[int, int, int, int]
"""Works interrupted, bytes, pieces, and the sum of their places among all pieces."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Somebody who can be put elsewhere.

    Attributes:
        size_bytes: what it takes where it is.
        moved_size_bytes: what it takes on another Gpu: its caches stay behind.
        cost: of giving it another Gpu: how much work that interrupts (0 or 1), and bytes moved.
        others: the Gpus that it may have instead.
        request_bytes: what it takes, on its own Gpu too, when it is off and waits for its burst; `None`: never off.
    """

    id: WorkloadId
    gpu: GpuUuid
    size_bytes: int
    moved_size_bytes: int
    cost: tuple[int, int]
    others: frozenset[GpuUuid]
    request_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The newcomer's Gpus, and the new one of each piece that gives way."""

    gpus: tuple[GpuUuid, ...]
    moves: Mapping[WorkloadId, GpuUuid]
    cost: _Cost


class _Draft(NamedTuple):
    """A partial answer.

    Attributes:
        free: what each Gpu has left, below zero where somebody has to give way.
        loose: the pieces that have no Gpu yet.
        placed: those that have another one.
        cost: of both.
        least: what the Gpus that are too full cost at least: bytes, and pieces.
        lacking: the bytes that have no place yet.
        of, after: the Gpu from which a piece was taken last, and that piece: the next one there comes after it.
    """

    gpus: tuple[GpuUuid, ...]
    free: dict[GpuUuid, int]
    loose: tuple[int, ...]
    placed: tuple[tuple[int, GpuUuid], ...]
    cost: _Cost
    least: tuple[int, int]
    lacking: int
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
        self._least: dict[tuple[GpuUuid, int], tuple[int, int, int]] = {}

    def least(self, uuid: GpuUuid, room: int) -> tuple[int, int, int]:
        """What `uuid` costs at least with that much `room`: bytes, pieces, and the bytes that lack a place.

        Bytes as the cheapest parts of the pieces there. Nothing where it is not too full.
        """
        if room >= 0:
            return 0, 0, 0
        known = self._least.get((uuid, room))
        if known is None:
            cost, left = 0.0, -room
            for per_byte, size in self._cheapest_parts.get(uuid, ()):
                cost += per_byte * min(size, left)
                left -= size
                if left <= 0:
                    break
            known = self._least[uuid, room] = int(cost), 1, -room
        return known

    def has_slot(self, draft: _Draft, uuid: GpuUuid) -> bool:
        """Whether one more may be put on `uuid`."""
        if uuid not in self._slots:
            return True
        left = sum(self.all[n].gpu == uuid for n in draft.touched())
        return sum(to == uuid for _, to in draft.placed) < self._slots[uuid] + left

    def first(self, gpus: tuple[GpuUuid, ...], free: dict[GpuUuid, int], cost: _Cost) -> _Draft:
        """Nobody has given way yet."""
        least = [self.least(uuid, room) for uuid, room in free.items()]
        moved, number, lacking = (sum(column) for column in zip(*least, strict=True))
        return _Draft(gpus, free, (), (), cost, (moved, number), lacking)

    def taken_off(self, draft: _Draft, number: int) -> _Draft:
        """`draft` with one piece less on its Gpu."""
        piece, (works, moved, pieces, places) = self.all[number], draft.cost
        cost = (works + piece.cost[0], moved + piece.cost[1], pieces + 1, places + number)
        free, least, lacking = self._changed(draft, piece.gpu, piece.size_bytes)
        loose, lacking = (*draft.loose, number), lacking + piece.moved_size_bytes
        return _Draft(draft.gpus, free, loose, draft.placed, cost, least, lacking, piece.gpu, number)

    def put(self, draft: _Draft, number: int, uuid: GpuUuid, size_bytes: int) -> _Draft:
        """`draft` with a loose piece on `uuid`, where it takes that much."""
        free, least, lacking = self._changed(draft, uuid, -size_bytes)
        loose = tuple(other for other in draft.loose if other != number)
        lacking -= self.all[number].moved_size_bytes
        return _Draft(draft.gpus, free, loose, (*draft.placed, (number, uuid)), draft.cost, least, lacking)

    def _changed(self, draft: _Draft, uuid: GpuUuid, more: int) -> tuple[dict[GpuUuid, int], tuple[int, int], int]:
        before = draft.free[uuid]
        old, new = self.least(uuid, before), self.least(uuid, before + more)
        least = (draft.least[0] + new[0] - old[0], draft.least[1] + new[1] - old[1])
        return {**draft.free, uuid: before + more}, least, draft.lacking + new[2] - old[2]

    def rank(self, draft: _Draft) -> tuple[int, int, int, int, int]:
        """Drafts are looked at in this order: the cheapest, as they may become at best; then the nearest.

        In haste a byte that has no place yet counts as one that moves.
        """
        works, moved, number, places = draft.cost
        moved += draft.least[0] + (draft.lacking if self._in_haste else 0)
        return works, moved, number + draft.least[1], places, draft.lacking


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
    order, known = count(), _Pieces(pieces, slots or {}, in_haste=in_haste)
    heap: list[tuple[tuple[int, int, int, int, int], int, _Draft]] = []
    for gpus in sets:
        left = dict(free)
        for uuid in gpus:
            left[uuid] -= size_bytes
        works, moved = (sum(leaving.get(uuid, (0, 0))[part] for uuid in gpus) for part in (0, 1))
        draft = known.first(gpus, left, (works, moved, 0, 0))
        heapq.heappush(heap, (known.rank(draft), next(order), draft))
    for _ in range(budget):
        if not heap:
            return None
        *_, draft = heapq.heappop(heap)
        crowded = min((uuid for uuid, room in draft.free.items() if room < 0), default=None)
        if crowded is None and not draft.loose:
            return Answer(draft.gpus, {pieces[number].id: uuid for number, uuid in draft.placed}, draft.cost)
        nexts = _place(draft, known) if crowded is None else _take_off(draft, known, crowded)
        for following in nexts:
            heapq.heappush(heap, (known.rank(following), next(order), following))
    return None


def _take_off(draft: _Draft, pieces: _Pieces, uuid: GpuUuid) -> Iterator[_Draft]:
    """One piece less on `uuid`; in the order of `pieces`, so that no set of them is looked at twice."""
    after = draft.after if draft.of == uuid else -1
    touched = draft.touched()
    there = [n for n in pieces.on.get(uuid, ()) if n > after and n not in touched]
    possible = sum(pieces.all[number].size_bytes for number in there)
    for number in there:
        if draft.free[uuid] + possible < 0:
            return
        possible -= pieces.all[number].size_bytes
        yield pieces.taken_off(draft, number)


def _place(draft: _Draft, pieces: _Pieces) -> Iterator[_Draft]:
    """The largest loose piece where it fits most tightly; where it fits nowhere, where smaller ones can give way."""
    number = max(draft.loose, key=lambda n: (pieces.all[n].moved_size_bytes, -n))
    piece = pieces.all[number]
    possible = sorted(
        (draft.free[uuid], uuid) for uuid in piece.others if uuid in draft.free and pieces.has_slot(draft, uuid)
    )
    chosen = _tightest(possible, piece.moved_size_bytes)
    if not chosen and piece.request_bytes is None:  # nobody gives way to what is held above a request
        touched = draft.touched()
        chosen = [
            uuid
            for room, uuid in possible
            if room + sum(_smaller(pieces, piece, uuid, touched)) >= piece.moved_size_bytes and uuid not in draft.gpus
        ]
    for uuid in chosen:
        yield pieces.put(draft, number, uuid, piece.moved_size_bytes)
    if piece.request_bytes is not None:
        possible = sorted([(draft.free[piece.gpu], piece.gpu), *possible])
        for uuid in _tightest(possible, piece.request_bytes):
            yield pieces.put(draft, number, uuid, piece.request_bytes)


def _tightest(possible: Sequence[tuple[int, GpuUuid]], size_bytes: int) -> list[GpuUuid]:
    """Some of the Gpus with room for that much, each with another room, the fullest first."""
    choices: dict[int, GpuUuid] = {}
    for room, uuid in possible:
        if room >= size_bytes:
            choices.setdefault(room, uuid)
    return list(choices.values())[:_TRIED]


def _smaller(pieces: _Pieces, piece: Piece, uuid: GpuUuid, touched: set[int]) -> Iterator[int]:
    for number in pieces.on.get(uuid, ()):
        if number not in touched and pieces.all[number].size_bytes < piece.moved_size_bytes:
            yield pieces.all[number].size_bytes
