from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connections import joined, pairs
from effort import examples
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.topology import CLOSEST_FIRST, Link, closest, link, worst_link


def node(count: int, connect=lambda gpus: gpus) -> dict[GpuUuid, Gpu]:
    gpus = connect(tuple(Gpu(GpuUuid(f"GPU-{n}"), n, "Gpu", 2**34) for n in range(count)))
    return {gpu.uuid: gpu for gpu in gpus}


def indexes(found: tuple[GpuUuid, ...] | None, gpus: dict[GpuUuid, Gpu]) -> list[int] | None:
    return None if found is None else [gpus[uuid].index for uuid in found]


def test_one_gpu_is_the_most_wanted_one() -> None:
    gpus = node(4, pairs((2, 3)))
    assert closest(list(gpus)[1:], 1, gpus) == ("GPU-1",)


@pytest.mark.parametrize(
    ("connect", "count", "found"),
    [
        (pairs((2, 3)), 2, [2, 3]),
        (joined((Link.SWITCH, (0, 1)), (Link.NVLINK, (2, 3))), 2, [2, 3]),
        (joined((Link.NUMA, (0, 1)), (Link.SWITCH, (1, 3))), 2, [1, 3]),
        (joined((Link.SWITCH, (0, 1, 2)), (Link.NVLINK, (2, 3))), 3, [0, 1, 2]),
        (pairs((0, 1), (1, 2), (2, 3), (3, 0)), 3, [0, 1, 2]),
        (pairs(), 4, [0, 1, 2, 3]),
        (pairs(), 5, None),
    ],
)
def test_the_closest_set_is_chosen(connect, count: int, found: list[int] | None) -> None:
    gpus = node(4, connect)
    assert indexes(closest(list(gpus), count, gpus), gpus) == found


def test_two_slices_are_never_two_gpus() -> None:
    gpus = {uuid: replace(gpu, parent=GpuUuid("GPU-x")) for uuid, gpu in node(2, pairs((0, 1))).items()}
    assert closest(list(gpus), 2, gpus) is None
    assert closest(list(gpus), 1, gpus) == ("GPU-0",)
    assert link(gpus[GpuUuid("GPU-0")], gpus[GpuUuid("GPU-1")]) is Link.NUMA


def test_a_set_is_as_close_as_its_longest_way() -> None:
    gpus = list(node(3, joined((Link.NVLINK, (0, 1)), (Link.SWITCH, (1, 2)), numa=3)).values())
    assert worst_link(gpus[:1]) is worst_link(gpus[:2]) is Link.NVLINK
    assert worst_link(gpus[1:]) is Link.SWITCH
    assert worst_link(gpus) is Link.NUMA


@settings(max_examples=examples(200), deadline=None)
@given(
    links=st.lists(st.sampled_from(Link), min_size=15, max_size=15),
    count=st.integers(2, 6),
)
def test_no_other_set_is_closer(links: list[Link], count: int) -> None:
    from itertools import combinations

    numbers = list(combinations(range(6), 2))
    gpus = node(6, joined(*((kind, pair) for kind, pair in zip(links, numbers, strict=True))))
    found = closest(list(gpus), count, gpus)
    assert found is not None
    best = min(CLOSEST_FIRST.index(worst_link([gpus[u] for u in other])) for other in combinations(gpus, count))
    assert CLOSEST_FIRST.index(worst_link([gpus[u] for u in found])) == best
