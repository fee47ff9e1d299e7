"""Room where there is too little: the one way to ask who goes where, for homes and for places. Pure.

Two searches stand behind it: `cheapest_moves` moves little and misses ways where there is hardly any room; `packing`
finds nearly every way there is, whatever that moves.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from nls_scheduler.core.planning.making_room.cheapest_moves import BUDGET, Answer, cheapest
from nls_scheduler.core.planning.making_room.packing import Item, cannot_fit, has_no_way, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.planning.making_room.cheapest_moves import Piece

    Size = Callable[[Piece], int]

_SHORT: Final = 60
"""The budget of a search in haste."""


class Demand(NamedTuple):
    """What somebody needs who is no piece.

    Attributes:
        size_bytes: on each Gpu.
        sets: the Gpus that would do, the best first.
        leaving: of a Gpu, what it costs to send those away who are no pieces.
    """

    size_bytes: int
    sets: Sequence[tuple[GpuUuid, ...]]
    leaving: Mapping[GpuUuid, tuple[int, int]]


NOBODY: Final = Demand(0, [()], {})


def make_room(
    free: Mapping[GpuUuid, int],
    pieces: Sequence[Piece],
    demand: Demand = NOBODY,
    slots: Mapping[GpuUuid, int] | None = None,
    budget: int = BUDGET,
    *,
    whatever_moves: bool = False,
) -> Answer | None:
    """Who goes where so that `demand` is met and nobody is where there is too little; `None`: no way was found.

    What is tried, until there is a way:

    1. The cheapest moves, as far as `budget` reaches: at 0 not at all.
    2. With `whatever_moves` all pieces placed anew, with their requests. Else the cheaper of the cheapest moves in
       haste and, for one Gpu and with the whole budget, the fewest pieces placed anew: with all that they hold, or with
       the requests of those who may wait for their burst.

    `free` is what each Gpu has beside all pieces, below zero where somebody has to go in any case; `slots` is how many
    more it takes, where that is bounded.
    """
    slots = slots or {}
    if whatever_moves and not budget:
        return _placed_anew(free, pieces, demand, slots, attrgetter("request_bytes"))
    if _is_hopeless(free, pieces, demand, slots, budget, whatever_moves=whatever_moves):
        return None
    ranked = sorted(pieces, key=lambda piece: (piece.cost, piece.rank))
    answer = cheapest(free, ranked, *demand, slots, budget) if budget else None
    if answer is not None:
        return answer
    if whatever_moves:
        return _placed_anew(free, pieces, demand, slots, attrgetter("request_bytes"))
    return _in_haste(free, ranked, demand, slots, budget)


def _in_haste(
    free: Mapping[GpuUuid, int], ranked: Sequence[Piece], demand: Demand, slots: Mapping[GpuUuid, int], budget: int
) -> Answer | None:
    others = [cheapest(free, ranked, *demand, slots, _SHORT, in_haste=True)]
    if budget == BUDGET and all(len(gpus) == 1 for gpus in demand.sets):
        others.append(_fewest_anew(free, ranked, demand, slots, _held_bytes))
        if any(_owed_bytes(piece) < _held_bytes(piece) for piece in ranked):
            others.append(_fewest_anew(free, ranked, demand, slots, _owed_bytes))
    return min((other for other in others if other is not None), key=lambda other: other.cost, default=None)


def _is_hopeless(
    free: Mapping[GpuUuid, int],
    pieces: Sequence[Piece],
    demand: Demand,
    slots: Mapping[GpuUuid, int],
    budget: int,
    *,
    whatever_moves: bool,
) -> bool:
    """Whether there is no way for each piece taken for as small as it may become.

    The sizes alone tell it mostly. Before a search with a budget it is worth it to ask a packing, which takes a
    thirtieth of the time.
    """
    least = [_least_bytes(piece, whatever_moves=whatever_moves) for piece in pieces]
    room = {uuid: max(0, left) for uuid, left in without(free, pieces).items()}
    if budget and all(len(gpus) <= 1 for gpus in demand.sets) and not (slots and any(demand.sets)):
        items = [Item(size, piece.others | {piece.gpu}) for size, piece in zip(least, pieces, strict=True)]
        if any(demand.sets):
            items.append(Item(demand.size_bytes, frozenset(chain.from_iterable(demand.sets))))
        # Where more are than may be nobody has to go.
        return has_no_way(room, items, _slots_without({u: max(0, n) for u, n in slots.items()}, pieces))
    needed = [demand.size_bytes] * min((len(gpus) for gpus in demand.sets), default=0)
    return cannot_fit(room.values(), [*needed, *least])


def _least_bytes(piece: Piece, *, whatever_moves: bool) -> int:
    """What it takes where it is taken for as small as it may become."""
    least = min(piece.size_bytes, piece.moved_size_bytes)
    return min(least, piece.request_bytes) if whatever_moves or piece.may_wait else least


def _slots_without(slots: Mapping[GpuUuid, int], pieces: Iterable[Piece]) -> dict[GpuUuid, int]:
    """How many each Gpu takes, where that is bounded, without `pieces`."""
    left = dict(slots)
    for piece in pieces:
        if piece.gpu in left:
            left[piece.gpu] += 1
    return left


def without(free: Mapping[GpuUuid, int], pieces: Iterable[Piece]) -> dict[GpuUuid, int]:
    """What would be left on each Gpu without `pieces`."""
    room = dict(free)
    for piece in pieces:
        room[piece.gpu] += piece.size_bytes
    return room


def _held_bytes(piece: Piece) -> int:
    return max(piece.size_bytes, piece.moved_size_bytes)


def _owed_bytes(piece: Piece) -> int:
    return piece.request_bytes if piece.may_wait else _held_bytes(piece)


def _placed_anew(
    free: Mapping[GpuUuid, int], movers: Sequence[Piece], demand: Demand, slots: Mapping[GpuUuid, int], size_of: Size
) -> Answer | None:
    """A Gpu for each of `movers`, its own or another, whatever that moves, and the first of the sets that fits so."""
    room, slots = without(free, movers), _slots_without(slots, movers)
    items = [Item(size_of(piece), piece.others | {piece.gpu}, piece.gpu) for piece in movers]
    if all(len(gpus) == 1 for gpus in demand.sets):
        places = pack(room, [*items, Item(demand.size_bytes, frozenset(uuid for (uuid,) in demand.sets))], slots)
        return None if places is None else _answer((places[-1],), movers, places[:-1], size_of)
    for gpus in demand.sets:
        places = pack({uuid: left - demand.size_bytes * (uuid in gpus) for uuid, left in room.items()}, items, slots)
        if places is not None:
            return _answer(gpus, movers, places, size_of)
    return None


def _answer(gpus: tuple[GpuUuid, ...], movers: Sequence[Piece], places: Sequence[GpuUuid], size_of: Size) -> Answer:
    placed = list(zip(movers, places, strict=True))
    gone = [piece for piece, uuid in placed if uuid != piece.gpu or size_of(piece) < piece.size_bytes]
    cost = (sum(piece.cost[0] for piece in gone), sum(piece.cost[1] for piece in gone), len(gone), 0)
    return Answer(gpus, {piece.id: uuid for piece, uuid in placed}, cost)


def _fewest_anew(
    free: Mapping[GpuUuid, int], ranked: Sequence[Piece], demand: Demand, slots: Mapping[GpuUuid, int], size_of: Size
) -> Answer | None:
    """The cheapest of `ranked` that are enough when they are placed anew, and of those only who has to move."""

    def placed(movers: Sequence[Piece]) -> Answer | None:
        return _placed_anew(free, movers, demand, slots, size_of)

    enough = bisect_left(range(len(ranked)), x=True, key=lambda number: placed(ranked[: number + 1]) is not None)
    movers = ranked[: enough + 1]
    answer = placed(movers)
    for piece in reversed(movers if answer is not None else ()):
        fewer = [mover for mover in movers if mover is not piece]
        found = placed(fewer)
        if found is not None:
            movers, answer = fewer, found
    return answer
