"""Which homes to exchange so that a newcomer fits: those that move the fewest bytes. Pure.

A search over what has to give way, the cheapest first: a piece is taken off a Gpu that is too full and put where there
is room, or where a smaller one can give way in turn. The cost of a set of moves is (how many interrupt somebody's work,
bytes, how many at all); among equals the latest arrivals go, as pieces are given in that order.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nls_scheduler.model import GpuUuid, WorkloadId

BUDGET: Final = 200
"""So many partial answers are looked at: a bound on the time of a step. What is found is the cheapest within it."""
_TRIED: Final = 3
_Cost = tuple[int, int, int, int]
"""Works interrupted, bytes, pieces, and the sum of their places among all pieces."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A home that can be given elsewhere.

    Attributes:
        size_bytes: what it takes on paper.
        cost: of giving it another Gpu: how much work that interrupts (0 or 1), and bytes moved.
        others: the Gpus that it may have instead.
    """

    id: WorkloadId
    gpu: GpuUuid
    size_bytes: int
    cost: tuple[int, int]
    others: frozenset[GpuUuid]


@dataclass(frozen=True, slots=True)
class Answer:
    """The newcomer's Gpus, and the new one of each piece that gives way."""

    gpus: tuple[GpuUuid, ...]
    moves: Mapping[WorkloadId, GpuUuid]


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


def cheapest(
    free: Mapping[GpuUuid, int],
    pieces: Sequence[Piece],
    size_bytes: int,
    sets: Sequence[tuple[GpuUuid, ...]],
    leaving: Mapping[GpuUuid, tuple[int, int]],
) -> Answer | None:
    """The cheapest way to make `size_bytes` free on each Gpu of one of `sets`; `None`: none was found.

    `free` is what nobody has on paper; `leaving` is the cost of taking each Gpu in any case, for those who borrow it.
    Of two pieces with one cost, the first of `pieces` gives way.
    """
    order = count()
    heap: list[tuple[_Cost, int, int, _Draft]] = []
    for gpus in sets:
        left = dict(free)
        for uuid in gpus:
            left[uuid] -= size_bytes
        works, moved = (sum(leaving[uuid][part] for uuid in gpus) for part in (0, 1))
        draft = _Draft(gpus, left, cost=(works, moved, 0, 0))
        heapq.heappush(heap, (draft.cost, _lacking(draft), next(order), draft))
    for _ in range(BUDGET):
        if not heap:
            return None
        *_, draft = heapq.heappop(heap)
        crowded = min((uuid for uuid, room in draft.free.items() if room < 0), default=None)
        if crowded is None and not draft.loose:
            return Answer(draft.gpus, {pieces[number].id: uuid for number, uuid in draft.placed})
        nexts = _place(draft, pieces) if crowded is None else _take_off(draft, pieces, crowded)
        for following in nexts:
            heapq.heappush(heap, (following.cost, _lacking(following), next(order), following))
    return None


def _lacking(draft: _Draft) -> int:
    """How far it is from an answer: among drafts of one cost, the nearest is looked at first."""
    return -sum(room for room in draft.free.values() if room < 0)


def _take_off(draft: _Draft, pieces: Sequence[Piece], uuid: GpuUuid) -> Iterator[_Draft]:
    """One piece less on `uuid`; in the order of `pieces`, so that no set of them is looked at twice."""
    after = draft.after if draft.of == uuid else -1
    touched = draft.touched()
    there = [n for n, p in enumerate(pieces) if n > after and p.gpu == uuid and n not in touched]
    possible = sum(pieces[number].size_bytes for number in there)
    for number in there:
        if draft.free[uuid] + possible < 0:
            return
        piece = pieces[number]
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


def _place(draft: _Draft, pieces: Sequence[Piece]) -> Iterator[_Draft]:
    """The largest loose piece where it fits most tightly; where it fits nowhere, where smaller ones can give way."""
    number = max(draft.loose, key=lambda n: (pieces[n].size_bytes, -n))
    piece, touched = pieces[number], draft.touched()
    possible = sorted((draft.free[uuid], uuid) for uuid in piece.others if uuid in draft.free)
    choices: dict[int, GpuUuid] = {}
    for room, uuid in possible:
        if room >= piece.size_bytes:
            choices.setdefault(room, uuid)
    chosen = list(choices.values())[:_TRIED]
    if not chosen:
        chosen = [
            uuid
            for room, uuid in possible
            if room + sum(_smaller(pieces, piece, uuid, touched)) >= piece.size_bytes and uuid not in draft.gpus
        ]
    for uuid in chosen:
        free = {**draft.free, uuid: draft.free[uuid] - piece.size_bytes}
        loose = tuple(other for other in draft.loose if other != number)
        yield _Draft(draft.gpus, free, loose, (*draft.placed, (number, uuid)), draft.cost)


def _smaller(pieces: Sequence[Piece], piece: Piece, uuid: GpuUuid, touched: set[int]) -> Iterator[int]:
    for number, other in enumerate(pieces):
        if other.gpu == uuid and number not in touched and other.size_bytes < piece.size_bytes:
            yield other.size_bytes
