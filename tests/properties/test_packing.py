"""Placing everybody anew, held against trying every placement there is."""

from __future__ import annotations

from itertools import product

from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nls_scheduler.model import GpuUuid
from nls_scheduler.packing import Item, pack

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


@settings(max_examples=examples(300), deadline=None)
@given(problems())
def test_what_is_packed_fits_and_what_fits_is_packed(problem):
    free, items, slots = problem
    places = pack(free, items, slots, budget=10**6)
    if places is None:
        assert not any(holds(free, items, slots, tried) for tried in product(free, repeat=len(items)))
    else:
        assert holds(free, items, slots, places)


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
