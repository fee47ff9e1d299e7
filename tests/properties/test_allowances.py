"""Allowances: the request, and a max-min fair share of the room beside the requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.planning.making_room.allowances import allowances

GIB = 2**30
CAPACITY = 16 * GIB
GPUS = [GpuUuid(f"GPU-{index}") for index in range(3)]


def spec(request, limit, gpus=1):
    return WorkloadSpec("w", Kind.NOTEBOOK, 0, request, limit, gpu_count=gpus)


@st.composite
def nodes(draw):
    """Workloads on one or several Gpus whose requests fit, and the capacities."""
    capacity = {uuid: draw(st.integers(GIB, CAPACITY)) for uuid in GPUS}
    left, placed = dict(capacity), []
    for number in range(draw(st.integers(0, 8))):
        gpus = tuple(draw(st.lists(st.sampled_from(GPUS), min_size=1, max_size=3, unique=True)))
        most = min(left[uuid] for uuid in gpus)
        if most < 1:
            continue
        request = draw(st.integers(1, most))
        limit = draw(st.integers(request, CAPACITY))
        for uuid in gpus:
            left[uuid] -= request
        placed.append((WorkloadId(f"w{number}"), spec(request, limit, len(gpus)), gpus))
    return placed, capacity


def granted_to(placed, capacity):
    """`allowances` beside the requests."""
    left = {
        uuid: size - sum(wanted.request_bytes for _, wanted, on in placed if uuid in on)
        for uuid, size in capacity.items()
    }
    return allowances(placed, left)


def share(granted, spec):
    return (granted - spec.request_bytes) / (spec.limit_bytes - spec.request_bytes)


@given(nodes())
def test_everybody_has_their_request_nobody_more_than_their_limit_and_all_fit_at_once(node):
    placed, capacity = node
    granted = granted_to(placed, capacity)
    assert granted.keys() == {workload for workload, _, _ in placed}
    for workload, wanted, _ in placed:
        assert wanted.request_bytes <= granted[workload] <= wanted.limit_bytes
    for uuid, size in capacity.items():
        assert sum(granted[workload] for workload, _, gpus in placed if uuid in gpus) <= size


@given(nodes())
def test_nobody_s_share_can_grow_but_at_the_cost_of_somebody_who_has_no_more(node):
    """The definition of max-min fairness: each has a full Gpu on which nobody's share is larger, or their limit."""
    placed, capacity = node
    granted = granted_to(placed, capacity)
    for workload, wanted, gpus in placed:
        burst = wanted.limit_bytes - wanted.request_bytes
        if granted[workload] >= wanted.limit_bytes - 1:
            continue
        own = share(granted[workload], wanted)
        bottlenecks = []
        for uuid in gpus:
            there = [(w, s) for w, s, on in placed if uuid in on]
            left = capacity[uuid] - sum(granted[w] for w, _ in there)
            largest = max(share(granted[w], s) for w, s in there if s.burstable)
            # Rounding costs each of them less than a byte.
            bottlenecks.append(left <= len(there) and largest <= own + len(there) / burst + 1e-9)
        assert any(bottlenecks), f"{workload} could have more"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [((16, 16), (8, 8)), ((16, 6), (4 + 12 * 8 / 14, 4 + 2 * 8 / 14)), ((6, 6), (6, 6)), ((4, 16), (4, 12))],
    ids=["alike", "in proportion to what each may burst", "limits bound it", "who cannot burst leaves it to others"],
)
def test_two_workloads_of_four_gib_on_sixteen(limits, expected):
    placed = [(WorkloadId(str(n)), spec(4 * GIB, limit * GIB), (GPUS[0],)) for n, limit in enumerate(limits)]
    granted = granted_to(placed, {GPUS[0]: CAPACITY})
    assert [granted[w] / GIB for w, _, _ in placed] == pytest.approx(expected, abs=1e-6)


def test_what_one_cannot_use_for_another_gpu_s_sake_is_left_to_its_neighbours():
    both, one = WorkloadId("both"), WorkloadId("one")
    placed = [(both, spec(4 * GIB, 16 * GIB, 2), (GPUS[0], GPUS[1])), (one, spec(4 * GIB, 16 * GIB), (GPUS[1],))]
    granted = granted_to(placed, {GPUS[0]: 6 * GIB, GPUS[1]: 16 * GIB})
    assert granted == {both: 6 * GIB, one: 10 * GIB}
