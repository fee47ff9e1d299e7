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
from typing import TYPE_CHECKING, Final

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


@dataclass(frozen=True, slots=True)
class _Draft:
    """A partial answer: `loose` pieces have no Gpu yet; `after` is the last one taken off the Gpu `of`."""

    gpus: tuple[GpuUuid, ...]
    free: Mapping[GpuUuid, int]
    loose: tuple[int, ...] = ()
    placed: tuple[tuple[int, GpuUuid], ...] = ()
    cost: _Cost = (0, 0, 0, 0)
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
        self._least: dict[tuple[GpuUuid, int], int] = {}

    def least_bytes(self, uuid: GpuUuid, lacking: int) -> int:
        """What freeing `lacking` bytes on `uuid` costs at least: the cheapest parts of the pieces there."""
        known = self._least.get((uuid, lacking))
        if known is None:
            cost, left = 0.0, lacking
            for per_byte, size in self._cheapest_parts.get(uuid, ()):
                cost += per_byte * min(size, left)
                left -= size
                if left <= 0:
                    break
            known = self._least[uuid, lacking] = int(cost)
        return known

    def has_slot(self, draft: _Draft, uuid: GpuUuid) -> bool:
        """Whether one more may be put on `uuid`."""
        if uuid not in self._slots:
            return True
        left = sum(self.all[n].gpu == uuid for n in draft.touched())
        return sum(to == uuid for _, to in draft.placed) < self._slots[uuid] + left

    def rank(self, draft: _Draft) -> tuple[int, int, int, int, int]:
        """Drafts are looked at in this order: the cheapest, as they may become at best; then the nearest.

        In haste a byte that has no place yet counts as one that moves.
        """
        works, moved, number, places = draft.cost
        lacking = sum(self.all[n].moved_size_bytes for n in draft.loose)
        for uuid, room in draft.free.items():
            if room < 0:
                lacking -= room
                moved += self.least_bytes(uuid, -room)
                number += 1
        moved += lacking if self._in_haste else 0
        return works, moved, number, places, lacking


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
        draft = _Draft(gpus, left, cost=(works, moved, 0, 0))
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
        piece = pieces.all[number]
        possible -= piece.size_bytes
        yield _Draft(
            draft.gpus,
            {**draft.free, uuid: draft.free[uuid] + piece.size_bytes},
            (*draft.loose, number),
            draft.placed,
            (draft.cost[0] + piece.cost[0], draft.cost[1] + piece.cost[1], draft.cost[2] + 1, draft.cost[3] + number),
            uuid,
            number,
        )


def _place(draft: _Draft, pieces: _Pieces) -> Iterator[_Draft]:
    """The largest loose piece where it fits most tightly; where it fits nowhere, where smaller ones can give way."""
    number = max(draft.loose, key=lambda n: (pieces.all[n].moved_size_bytes, -n))
    piece = pieces.all[number]
    loose = tuple(other for other in draft.loose if other != number)
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
        free = {**draft.free, uuid: draft.free[uuid] - piece.moved_size_bytes}
        yield _Draft(draft.gpus, free, loose, (*draft.placed, (number, uuid)), draft.cost)
    if piece.request_bytes is not None:
        possible = sorted([(draft.free[piece.gpu], piece.gpu), *possible])
        for uuid in _tightest(possible, piece.request_bytes):
            free = {**draft.free, uuid: draft.free[uuid] - piece.request_bytes}
            yield _Draft(draft.gpus, free, loose, (*draft.placed, (number, uuid)), draft.cost)


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
