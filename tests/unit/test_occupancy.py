"""Who is where and what is left, held against a plain count made anew after each change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.core.planning.making_room.occupancy import Occupancy

GPUS = tuple(map(GpuUuid, "ab"))
CAPACITY = {GPUS[0]: 10, GPUS[1]: 7}
SOMEBODY = tuple(
    Workload(WorkloadId(f"w{size}"), WorkloadSpec(f"w{size}", Kind.NOTEBOOK, 0, size, size), 0.0) for size in (1, 2, 4)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(SOMEBODY), st.sampled_from([GPUS[:1], GPUS[1:], GPUS])),
        st.sampled_from(["checkpoint", "roll back"]),
    )
)


def by_request(workload: Workload, _: GpuUuid) -> int:
    return workload.spec.request_bytes


def twice_on_b(workload: Workload, uuid: GpuUuid) -> int:
    return workload.spec.request_bytes * (2 if uuid == GPUS[1] else 1)


@given(STEPS)
def test_it_is_as_if_counted_anew_after_each_change_and_each_way_back(steps: list[object]) -> None:
    occupancy = Occupancy(CAPACITY, by_request, twice_on_b)
    there: dict[WorkloadId, tuple[Workload, tuple[GpuUuid, ...]]] = {}
    kept: list[tuple[int, dict[WorkloadId, tuple[Workload, tuple[GpuUuid, ...]]]]] = [(occupancy.checkpoint(), {})]
    for step in steps:
        before, were = occupancy.version, dict(there)
        if step == "checkpoint":
            kept.append((occupancy.checkpoint(), dict(there)))
        elif step == "roll back":
            checkpoint, there = kept[-1][0], dict(kept[-1][1])
            occupancy.roll_back(checkpoint)
        else:
            workload, gpus = step  # type: ignore[misc]  # drawn as a pair
            if workload.id in there:
                assert occupancy.take(workload) == there.pop(workload.id)[1]
            else:
                occupancy.put(workload, gpus)
                there[workload.id] = workload, gpus
        # Whoever has seen a version has seen who is there.
        assert were == there or occupancy.version > before
        assert occupancy.places == {key: gpus for key, (_, gpus) in there.items()}
        for uuid in GPUS:
            members = [workload for workload, gpus in there.values() if uuid in gpus]
            assert {w.id for w in occupancy.members(uuid)} == {w.id for w in members}
            for left, measure in zip(occupancy.left, (by_request, twice_on_b), strict=True):
                assert left[uuid] == CAPACITY[uuid] - sum(measure(w, uuid) for w in members)
            assert [occupancy.has_room(w, uuid) for w in SOMEBODY] == [
                all(
                    left[uuid] >= measure(w, uuid)
                    for left, measure in zip(occupancy.left, (by_request, twice_on_b), strict=True)
                )
                for w in SOMEBODY
            ]


def everything(occupancy: Occupancy) -> tuple[object, ...]:
    """All that it says, in its order."""
    left = [dict(bytes_left) for bytes_left in occupancy.left]
    return left, list(occupancy.places.items()), [[w.id for w in occupancy.members(uuid)] for uuid in GPUS]


PLACED = st.lists(st.tuples(st.sampled_from(SOMEBODY), st.sampled_from([GPUS[:1], GPUS[1:], GPUS])))


@given(PLACED, st.fixed_dictionaries(dict.fromkeys(GPUS, st.integers(-5, 20))), PLACED)
def test_what_is_counted_for_a_while_leaves_no_trace_but_another_version(
    before: list[tuple[Workload, tuple[GpuUuid, ...]]],
    bytes_left: dict[GpuUuid, int],
    counted: list[tuple[Workload, tuple[GpuUuid, ...]]],
) -> None:
    occupancy = Occupancy(CAPACITY, twice_on_b)
    for workload, gpus in {workload.id: (workload, gpus) for workload, gpus in before}.values():
        occupancy.put(workload, gpus)
    (left,), places = occupancy.left, occupancy.places
    was, version, checkpoint = everything(occupancy), occupancy.version, occupancy.checkpoint()
    with occupancy.having_left(bytes_left) as count:
        meanwhile = occupancy.version
        for workload, gpus in counted:
            count(workload, gpus)
        for uuid in GPUS:
            expected = bytes_left[uuid] - sum(twice_on_b(w, uuid) for w, gpus in counted if uuid in gpus)
            assert left[uuid] == expected
            for workload in SOMEBODY:
                assert occupancy.has_room(workload, uuid) is (expected >= twice_on_b(workload, uuid))
    assert everything(occupancy) == was
    assert occupancy.left[0] is left
    assert occupancy.places is places
    assert version < meanwhile < occupancy.version
    assert occupancy.checkpoint() == checkpoint
    occupancy.roll_back(0)
    assert not occupancy.places
