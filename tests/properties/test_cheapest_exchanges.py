"""The search for the cheapest exchange of homes, held against trying every exchange there is."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.planning.making_room import make_room as making_room
from nls_scheduler.core.planning.making_room.cheapest_moves import BUDGET, Piece, cheapest
from nls_scheduler.core.planning.making_room.make_room import NOBODY, Demand, make_room

GPUS = tuple(GpuUuid(f"GPU-{n}") for n in range(3))
NEEDS = 8


@st.composite
def nodes(draw):
    """Three Gpus of 8 with pieces on them, what else borrows each, and which sets of Gpus would do."""
    free, pieces = dict.fromkeys(GPUS, NEEDS), []
    for number in range(draw(st.integers(1, 5))):
        uuid = draw(st.sampled_from(GPUS))
        size = draw(st.integers(1, 5))
        if size <= free[uuid]:
            free[uuid] -= size
            cost = (draw(st.integers(0, 1)), draw(st.integers(0, 4)))
            others = frozenset(draw(st.sets(st.sampled_from(GPUS)))) - {uuid}
            pieces.append(Piece(WorkloadId(f"w{number}"), uuid, size, size, size, cost, others))
    pieces.sort(key=lambda piece: piece.cost)
    leaving = {uuid: (draw(st.integers(0, 1)), draw(st.integers(0, 3))) for uuid in GPUS}
    sets = draw(st.sampled_from([[(g,) for g in GPUS], [(GPUS[0], GPUS[1])], [(GPUS[0], GPUS[1]), GPUS[1:]]]))
    return free, pieces, draw(st.integers(4, NEEDS)), sets, leaving


def cost_of(pieces, moves, gpus, leaving):
    moved = [piece for piece in pieces if piece.id in moves]
    works = sum(piece.cost[0] for piece in moved) + sum(leaving[uuid][0] for uuid in gpus)
    return works, sum(piece.cost[1] for piece in moved) + sum(leaving[uuid][1] for uuid in gpus), len(moved)


def holds(free, pieces, size, gpus, moves) -> bool:
    left = dict(free)
    for uuid in gpus:
        left[uuid] -= size
    for piece in pieces:
        if piece.id in moves:
            left[piece.gpu] += piece.size_bytes
            left[moves[piece.id]] -= piece.size_bytes
    return all(room >= 0 for room in left.values())


def every_way(free, pieces, size, sets, leaving):
    for gpus in sets:
        for places in product(*[(piece.gpu, *sorted(piece.others)) for piece in pieces]):
            moves = {p.id: uuid for p, uuid in zip(pieces, places, strict=True) if uuid != p.gpu}
            if holds(free, pieces, size, gpus, moves):
                yield cost_of(pieces, moves, gpus, leaving)


def piece(name: str, gpu: int, size: int, cost: tuple[int, int] = (0, 0), *others: int) -> Piece:
    elsewhere = frozenset(GPUS[n] for n in others or {0, 1, 2} - {gpu})
    return Piece(WorkloadId(name), GPUS[gpu], size, size, size, cost, elsewhere)


def node(room: tuple[int, int, int], pieces: list[Piece], size: int, sets: list[tuple[int, ...]], *leaving: int):
    """A node as `nodes` draws them: what is free on each Gpu, and the bytes that taking each of them costs besides."""
    costs = zip(GPUS, leaving or (0, 0, 0), strict=True)
    return (
        dict(zip(GPUS, room, strict=True)),
        sorted(pieces, key=lambda p: p.cost),
        size,
        [tuple(GPUS[n] for n in gpus) for gpus in sets],
        {uuid: (0, moved) for uuid, moved in costs},
    )


EXCHANGED_BETWEEN_BOTH = node((4, 7, 8), [piece("a", 0, 3, (0, 0), 1), piece("b", 1, 1, (0, 0), 0)], 5, [(0, 1)])
"""Two Gpus are wanted: who leaves the first one pushes a smaller one off the second."""
CHEAPER_THAN_WHERE_IT_FITS = node(
    (7, 2, 8), [piece("a", 0, 1, (0, 0), 1), piece("b", 1, 4, (0, 1), 0), piece("c", 1, 2, (0, 4), 2)], 4, [(0, 1)]
)
PUSHES_ONE_AS_LARGE = node((3, 3, 8), [piece("a", 1, 5, (0, 4), 0), piece("b", 0, 5, (0, 4), 2)], 4, [(1,)])
IN_A_RING = node(
    (4, 4, 3), [piece("a", 2, 5, (0, 0), 0), piece("b", 1, 4, (0, 3), 2), piece("c", 0, 4, (0, 4), 2)], 6, [(2,), (1,)]
)


@settings(max_examples=examples(400), deadline=None)
@given(nodes())
@example(EXCHANGED_BETWEEN_BOTH)
@example(CHEAPER_THAN_WHERE_IT_FITS)
@example(PUSHES_ONE_AS_LARGE)
@example(IN_A_RING)
def test_what_is_found_holds_and_no_other_way_interrupts_less_work_moves_fewer_bytes_or_fewer_workloads(node) -> None:
    free, pieces, size, sets, leaving = node
    answer, best = cheapest(*node), min(every_way(*node), default=None)
    if answer is None:
        assert best is None
        return
    assert answer.gpus in sets
    assert holds(free, pieces, size, answer.gpus, answer.moves)
    assert all(uuid in next(p for p in pieces if p.id == key).others for key, uuid in answer.moves.items())
    assert cost_of(pieces, answer.moves, answer.gpus, leaving) == best


def test_among_equals_the_first_of_the_pieces_gives_way() -> None:
    free = {GPUS[0]: 4, GPUS[1]: 4, GPUS[2]: 4}
    pieces = [piece("late", 1, 4), piece("early", 0, 4), piece("other", 2, 4)]
    answer = cheapest(free, pieces, 8, [(GPUS[0],), (GPUS[1],)], dict.fromkeys(GPUS, (0, 0)))
    assert answer is not None
    assert list(answer.moves) == ["late"]


def test_nobody_gives_way_to_what_is_held_above_a_request():
    """It would fit where a smaller one is, which would find another place; it waits instead, or there is no way."""
    first, second, third = GPUS
    for request, way in ((2, {"burster": first}), (4, None)):
        burster = Piece(WorkloadId("burster"), first, 6, 6, request, (0, 6), frozenset({second}), may_wait=True)
        small = Piece(WorkloadId("small"), second, 3, 3, 3, (0, 3), frozenset({third}))
        answer = cheapest({first: 2, second: 3, third: 3}, [small, burster], 6, [(first,)], {})
        assert (None if answer is None else answer.moves) == way


@st.composite
def crowds(draw):
    """Three Gpus, perhaps too full, with pieces that hold more or less elsewhere, or may wait; what is asked for."""
    free = {uuid: draw(st.integers(-4, 5)) for uuid in GPUS}
    pieces = []
    for number in range(draw(st.integers(0, 5))):
        size, moved, request = (draw(st.integers(1, 6)) for _ in range(3))
        gpu, others = draw(st.sampled_from(GPUS)), frozenset(draw(st.sets(st.sampled_from(GPUS))))
        cost, may_wait = (draw(st.integers(0, 1)), draw(st.integers(0, 4))), draw(st.booleans())
        pieces.append(
            Piece(WorkloadId(f"w{number}"), gpu, size, moved, min(request, size), cost, others - {gpu}, may_wait)
        )
    sets = draw(st.sampled_from([[(g,) for g in GPUS], [(GPUS[0],)], [(GPUS[0], GPUS[1])]]))
    demand = draw(st.just(NOBODY) | st.builds(Demand, st.integers(1, NEEDS), st.just(sets), st.just({})))
    return free, pieces, demand, draw(st.dictionaries(st.sampled_from(GPUS), st.integers(-1, 3)))


@settings(max_examples=examples(400), deadline=None)
@given(crowds(), st.sampled_from([0, BUDGET]), st.booleans())
def test_a_search_that_is_left_out_would_have_found_nothing(crowd, budget, whatever_moves) -> None:
    def found(*, looked_at_first: bool):
        with pytest.MonkeyPatch.context() as patched:
            if not looked_at_first:
                patched.setattr(making_room, "_is_hopeless", lambda *_, **__: False)
            free, pieces, demand, slots = crowd
            return make_room(free, pieces, demand, slots, budget, whatever_moves=whatever_moves)

    assert found(looked_at_first=True) == found(looked_at_first=False)
