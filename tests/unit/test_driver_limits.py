"""The driver's own limits: only where a cgroup is one workload's, and never left behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nls_scheduler.core.model.events import GpuReading, PlacedUse
from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.simulator import GIB
from nls_scheduler.daemon.limits import MemoryLimits
from nls_scheduler.processes import cgroups

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
ONE, TWO = WorkloadId("one"), WorkloadId("two")
SIZES = {ONE: (GIB, 2 * GIB), TWO: (3 * GIB, 3 * GIB)}
POD, SHARED = Path("/sys/fs/cgroup/pod"), Path("/sys/fs/cgroup/user.slice")


class LimitingDriver:
    """Keeps limits, or refuses."""

    def __init__(self, supported: bool = True) -> None:
        self.supported = supported
        self.refuses = False
        self.asked = 0
        self.limits: dict[tuple[GpuUuid, Path], tuple[int, int]] = {}

    def limits_supported(self) -> bool:
        return self.supported

    def limit_memory(self, gpu, cgroup, request_bytes, limit_bytes) -> None:
        self.asked += 1
        if self.refuses:
            raise OSError("the driver does not limit this")
        if limit_bytes is None:
            del self.limits[gpu, cgroup]
        else:
            self.limits[gpu, cgroup] = (request_bytes, limit_bytes)


@pytest.fixture
def driver() -> LimitingDriver:
    return LimitingDriver()


@pytest.fixture
def places() -> dict[int, Path | None]:
    return {}


@pytest.fixture
def limits(driver, places) -> MemoryLimits:
    return MemoryLimits(driver, places.get)


def on(gpu: GpuUuid, strangers: tuple[int, ...] = (), **workloads: int) -> dict[GpuUuid, GpuReading]:
    placed = tuple(PlacedUse(WorkloadId(name), ProcessId(pid, 1), GIB) for name, pid in workloads.items())
    return {gpu: GpuReading(GIB, placed, {ProcessId(pid, 1): GIB for pid in strangers})}


def test_a_cgroup_of_its_own_is_limited_to_what_its_workload_asked_for(driver, places, limits):
    places |= {1: POD}
    limits.keep(on(A, one=1), SIZES)
    assert driver.limits == {(A, POD): SIZES[ONE]}


def test_a_cgroup_that_two_share_is_not_limited_and_one_that_became_shared_is_let_go(driver, places, limits):
    places |= {1: SHARED, 2: SHARED}
    limits.keep(on(A, one=1), SIZES)
    assert driver.limits == {(A, SHARED): SIZES[ONE]}
    limits.keep(on(A, one=1, two=2), SIZES)
    assert driver.limits == {}


def test_a_stranger_in_the_cgroup_is_reason_enough(driver, places, limits):
    places |= {1: SHARED, 9: SHARED}
    limits.keep(on(A, (9,), one=1), SIZES)
    assert driver.limits == {}


def test_who_moves_is_limited_on_the_gpu_where_it_is(driver, places, limits):
    places |= {1: POD, 2: POD}
    limits.keep({**on(A, one=1), **on(B)}, SIZES)
    limits.keep({**on(A), **on(B, one=2)}, SIZES)
    assert driver.limits == {(B, POD): SIZES[ONE]}


def test_other_sizes_are_set_anew_and_the_same_only_once(driver, places, limits):
    places |= {1: POD}
    limits.keep(on(A, one=1), SIZES)
    limits.keep(on(A, one=1), SIZES)
    assert driver.asked == 1
    limits.keep(on(A, one=1), {ONE: (GIB, 4 * GIB)})
    assert driver.limits == {(A, POD): (GIB, 4 * GIB)}


def test_a_refusal_is_not_asked_for_again_until_something_changes(driver, places, limits):
    places |= {1: POD}
    driver.refuses = True
    for _ in range(3):
        limits.keep(on(A, one=1), SIZES)
    assert driver.asked == 1
    driver.refuses = False
    limits.keep(on(A, one=1), {ONE: (GIB, 4 * GIB)})
    assert driver.limits == {(A, POD): (GIB, 4 * GIB)}


def test_neither_the_root_nor_a_hidden_cgroup_is_limited(driver, places, limits):
    places |= {1: cgroups.ROOT, 2: None}
    limits.keep(on(A, one=1, two=2), SIZES)
    assert driver.limits == {}


def test_where_processes_are_hidden_nothing_is_limited(driver, places, limits):
    places |= {1: POD}
    limits.keep({A: GpuReading(GIB, (PlacedUse(ONE, ProcessId(1, 1), GIB),), None)}, SIZES)
    assert driver.limits == {}


def test_nothing_stays_behind(driver, places, limits):
    places |= {1: POD}
    limits.keep(on(A, one=1), SIZES)
    limits.lift_all()
    assert driver.limits == {}


def test_an_older_driver_is_asked_once_and_then_left_alone(places):
    driver = LimitingDriver(supported=False)
    limits = MemoryLimits(driver, places.get)
    places |= {1: POD}
    limits.keep(on(A, one=1), SIZES)
    assert driver.asked == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0::/user.slice/session\n", "user.slice/session"),
        ("12:memory:/m\n0::/pod\n", "pod"),
        ("12:memory:/\x0b0::/pod\n0::/\udcff\x0cx\n", "\udcff\x0cx"),
        ("0::/../../pod\n", None),
        ("4:memory:/m\n", None),
        ("0::/gone\n", None),
    ],
)
def test_a_cgroup_is_found_where_it_can_be_seen(tmp_path, monkeypatch, text, found):
    for there in ("user.slice/session", "pod", "\udcff\x0cx"):
        (tmp_path / there).mkdir(parents=True)
        (tmp_path / there / "cgroup.controllers").touch()
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    monkeypatch.setattr(Path, "read_bytes", lambda path: os.fsencode(text))
    assert cgroups.cgroup_of(1) == (None if found is None else tmp_path / found)
