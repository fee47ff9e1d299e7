"""Placing everybody anew, held against trying every placement there is."""

from __future__ import annotations

from itertools import product

from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.planning.making_room.packing import Item, cannot_fit, has_no_way, pack

GPUS = tuple(GpuUuid(f"GPU-{number}") for number in range(3))


@st.composite
def problems(draw):
    """Up to three Gpus with some room, and items of which most may have any of them."""
    gpus = GPUS[: draw(st.integers(1, 3))]
    free = {uuid: draw(st.integers(-1, 12)) for uuid in gpus}
    sets = st.one_of(st.just(frozenset(gpus)), st.frozensets(st.sampled_from(gpus)))
    best = st.none() | st.sampled_from(gpus)
    items = draw(st.lists(st.builds(Item, st.integers(0, 9), sets, best), max_size=6))
    slots = draw(st.dictionaries(st.sampled_from(gpus), st.integers(0, 3)))
    return free, items, slots


def holds(free, items, slots, places) -> bool:
    """Whether everybody is where they may be, and fits."""
    there = {uuid: [i for i, at in zip(items, places, strict=True) if at == uuid] for uuid in free}
    return all(uuid in item.gpus for item, uuid in zip(items, places, strict=True)) and all(
        sum(i.size_bytes for i in some) <= free[u] and (not some or len(some) <= slots.get(u, len(some)))
        for u, some in there.items()
    )


A, B = GPUS[:2]
ON_A, ON_B, ON_BOTH = frozenset({A}), frozenset({B}), frozenset({A, B})
FIVE_OF_NO_SIZE = {A: 0}, [Item(0, ON_A)] * 5, {}
NO_SIZE_BESIDE_ONE = {A: 0, B: 4}, [Item(0, ON_BOTH), Item(2, ON_B), Item(0, ON_B)], {B: 2}
ALIKE_BUT_FOR_THEIR_GPUS = {A: 2, B: 12}, [Item(2, ON_BOTH), Item(2, ON_B), Item(7, ON_BOTH), Item(3, ON_B)], {}


@settings(max_examples=examples(300), deadline=None)
@given(problems())
@example(FIVE_OF_NO_SIZE)
@example(NO_SIZE_BESIDE_ONE)
@example(ALIKE_BUT_FOR_THEIR_GPUS)
def test_what_is_packed_fits_and_what_fits_is_packed(problem):
    free, items, slots = problem
    places = pack(free, items, slots, budget=10**6)
    if places is None:
        assert not any(holds(free, items, slots, tried) for tried in product(free, repeat=len(items)))
    else:
        assert holds(free, items, slots, places)


@settings(max_examples=examples(300), deadline=None)
@given(problems(), st.integers(1, 40))
@example(FIVE_OF_NO_SIZE, 10**6)
@example(NO_SIZE_BESIDE_ONE, 10**6)
@example(ALIKE_BUT_FOR_THEIR_GPUS, 10**6)
def test_where_no_way_is_said_to_be_there_is_none_and_with_time_enough_it_is_said(problem, budget):
    free, items, slots = {uuid: max(0, room) for uuid, room in problem[0].items()}, *problem[1:]
    fits = any(holds(free, items, slots, tried) for tried in product(free, repeat=len(items)))
    assert not (fits and has_no_way(free, items, slots, budget))
    assert has_no_way(free, items, slots, budget=10**6) == (not fits)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(0, 12), max_size=3), st.lists(st.integers(0, 9), max_size=6))
def test_what_fits_in_any_way_is_never_said_not_to_fit(free, sizes):
    gpus = range(len(free))
    ways = (tuple(zip(tried, sizes, strict=True)) for tried in product(gpus, repeat=len(sizes)))
    fits = any(all(sum(size for at, size in way if at == gpu) <= free[gpu] for gpu in gpus) for way in ways)
    assert not (fits and cannot_fit(free, sizes))


def test_what_can_be_counted_is_seen_without_a_search():
    assert cannot_fit([10] * 25, [6] * 26)
    assert not cannot_fit([10] * 26, [6] * 26)
    assert cannot_fit([10, 10, 10], [6, 6, 6, 5])
    assert not cannot_fit([10, 10, 10], [6, 6, 6, 4, 4, 4])


def test_what_only_fits_exactly_is_found_within_the_budget():
    """Greedy ways fail here: the largest first would leave 1 empty beside 9, and 2 beside 8."""
    sizes = [7, 6, 5, 5, 4, 4, 3, 3, 2, 1]
    places = pack(
        dict.fromkeys(GPUS, 10) | {GpuUuid("GPU-3"): 10}, [Item(s, frozenset({*GPUS, "GPU-3"})) for s in sizes]
    )
    assert places is not None


def test_each_stays_where_it_is_best_among_gpus_alike():
    items = [Item(10, frozenset(GPUS), uuid) for uuid in reversed(GPUS)]
    assert pack(dict.fromkeys(GPUS, 10), items) == [*reversed(GPUS)]


def test_the_budget_ends_a_search_that_would_take_for_ever():
    free = {GpuUuid(f"GPU-{number}"): 1001 for number in range(8)}
    assert pack(free, [Item(200 + 2 * n % 7, frozenset(free)) for n in range(40)], budget=50) is None


def anywhere(sizes: list[int], gpus: int, room: int, budget: int = 500) -> list[GpuUuid] | None:
    """Items of these sizes, each of which may have any of so many Gpus with that much room."""
    free = {GpuUuid(f"GPU-{number}"): room for number in range(gpus)}
    return pack(free, [Item(size, frozenset(free)) for size in sizes], budget=budget)


def test_nobody_is_placed_where_somebody_else_is_too_much():
    free = {A: -1, B: 10, GPUS[2]: 10}
    assert pack(free, [Item(10, frozenset(free))]) is None


def test_nobody_goes_with_another_to_a_gpu_that_is_not_open_to_it():
    assert pack({A: 10, B: 10}, [Item(6, frozenset({A, B})), Item(4, frozenset({B}))]) == [A, B]


def test_a_gpu_takes_no_more_items_than_it_has_slots():
    items = [Item(5, frozenset({A})), Item(5, frozenset({A}))]
    assert pack({A: 10}, items, {A: 1}) is None
    assert pack({A: 10}, items, {A: 2}) == [A, A]
    assert pack({A: 10}, items[:1], {A: 0}) is None


def test_nobody_gets_a_gpu_that_is_alike_but_not_open_to_it():
    items = [Item(10, frozenset({A}), best=B), Item(10, frozenset({B}), best=A)]
    assert pack({A: 10, B: 10}, items) == [A, B]


def test_where_the_fullest_way_leads_nowhere_another_one_is_tried():
    """6 with 4 and 2 fills a Gpu, and leaves 5, 5, 5, 5 and 3, which do not fit on two."""
    assert anywhere([2, 5, 4, 6, 3, 5, 5, 5], gpus=3, room=12) is not None


def test_of_several_alike_one_is_tried():
    assert anywhere([3, 3, 9, 9, 9, 9, 9, 9], gpus=2, room=30, budget=30) is not None


def test_a_search_ends_with_its_budget():
    sizes = [2, 5, 4, 6, 3, 5, 5, 5]
    assert anywhere(sizes, gpus=3, room=12, budget=2) is None
