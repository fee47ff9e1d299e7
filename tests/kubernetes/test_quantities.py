"""Every form in which a pod can ask for a GPU, and every way to get it wrong: a table of sentences."""

from __future__ import annotations

from decimal import Decimal

import pytest

from nls_scheduler.kubernetes_driver.quantities import (
    Container,
    Demand,
    as_bytes,
    counted_memory_bytes,
    demand_of,
    parse_quantity,
)

GIB = 2**30
MIB = 2**20
MAIN = "nvidia.com/container.main."


def main(limits: dict[str, str] | None = None, **environment: str | None) -> list[Container]:
    return [Container("main", limits or {}, environment)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8Gi", 8 * GIB),
        ("8G", 8 * 10**9),
        ("500m", Decimal("0.5")),
        ("1e9", 10**9),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Ei", 2**60),
        (".5", Decimal("0.5")),
        ("-1", -1),
        ("+3k", 3000),
        ("8GiB", None),
        ("8 Gi", None),
        ("0x10", None),
        ("nan", None),
        ("inf", None),
        ("", None),
        ("٣", None),
        ("1_000", None),
        ("1e9999999", None),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str, value: object) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    ("annotations", "containers", "request_", "limit"),
    [
        ({"gpu-fraction": "0.5"}, main(), 0.5, 0.5),
        ({"gpu-fraction": "1"}, main(), 1.0, 1.0),
        ({"gpu-fraction": "0.25"}, main(RUNAI_GPU_MEMORY_LIMIT="0.75"), 0.25, 0.75),
        ({"gpu-fraction": "0.25"}, main(RUNAI_GPU_MEMORY_LIMIT="1"), 0.25, 1.0),
        ({"gpu-fraction": "0.25"}, main(RUNAI_GPU_MEMORY_LIMIT="8Gi"), 0.25, 8 * GIB),
        ({"gpu-fraction": "0.25"}, main(RUNAI_GPU_MEMORY_LIMIT="8G"), 0.25, 8 * 10**9),
        ({"gpu-fraction": "0.25"}, main(RUNAI_GPU_MEMORY_LIMIT="8589934592"), 0.25, 8 * GIB),
        ({"gpu-memory": "4096"}, main(), 4 * GIB, 4 * GIB),
        ({"gpu-memory": "4096"}, main(RUNAI_GPU_MEMORY_LIMIT="8000M"), 4 * GIB, 8 * 10**9),
        ({MAIN + "gpu-memory.request": "4Gi"}, main(), 4 * GIB, 4 * GIB),
        ({MAIN + "gpu-memory.request": "4Gi", MAIN + "gpu-memory.limit": "8Gi"}, main(), 4 * GIB, 8 * GIB),
        ({"gpu-fraction": "0.5", MAIN + "gpu-memory.limit": "9Gi"}, main(), 0.5, 9 * GIB),
        (
            {"gpu-fraction": "0.2", MAIN + "gpu-memory.limit": "9Gi"},
            main(RUNAI_GPU_MEMORY_LIMIT="0.9"),
            0.2,
            9 * GIB,
        ),
    ],
)
def test_a_request_and_a_limit_are_read_in_every_form(
    annotations: dict[str, str], containers: list[Container], request_: object, limit: object
) -> None:
    demand = demand_of(annotations, containers)
    expected = Demand(request_, limit, container="main", by_unit="gpu-memory" in annotations)  # type: ignore[arg-type]
    assert demand == expected


@pytest.mark.parametrize(
    ("annotations", "containers", "code", "request_", "limit"),
    [
        ({"gpu-fraction": "half"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "-0.5"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "0"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "0.0000001"}, main(), "GpuRequestTooSmall", 1.0, 1.0),
        ({"gpu-fraction": "0." + "0" * 30 + "1"}, main(), "GpuRequestTooSmall", 1.0, 1.0),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT="0.0000001"), "GpuSizeInvalid", 0.5, 0.5),
        ({"gpu-fraction": "1.5"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "500m"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "nan"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": ""}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-memory": "8Gi"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-memory": "8589934592"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-memory": "-1"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-memory": "0"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-memory": "4096.5"}, main(), "GpuRequestInvalid", 1.0, 1.0),
        ({"gpu-fraction": "0.5", "gpu-memory": "4096"}, main(), "GpuRequestContradicts", 0.5, 0.5),
        ({"gpu-fraction": "x", "gpu-memory": "4096"}, main(), "GpuRequestContradicts", 4 * GIB, 4 * GIB),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT="0.25"), "GpuLimitBelowRequest", 0.5, 0.5),
        ({"gpu-memory": "4096"}, main(RUNAI_GPU_MEMORY_LIMIT="1Gi"), "GpuLimitBelowRequest", 4 * GIB, 4 * GIB),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT="8"), "GpuSizeInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT="8GB"), "GpuSizeInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT=""), "GpuSizeInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5"}, main(RUNAI_GPU_MEMORY_LIMIT=None), "GpuLimitUnreadable", 0.5, 0.5),
        ({"gpu-fraction": "0.5", MAIN + "gpu-memory.limit": "-8Gi"}, main(), "GpuSizeInvalid", 0.5, 0.5),
        (
            {"gpu-fraction": "0.5", "nvidia.com/container.other.gpu-memory.limit": "8Gi"},
            main(),
            "GpuContainerUnknown",
            0.5,
            0.5,
        ),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"}, main(), "GpuContainerUnknown", 0.5, 0.5),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "two"}, main(), "GpuRequestInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, main(), "GpuRequestInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5", MAIN + "gpu-compute.mode": "turbo"}, main(), "GpuModeInvalid", 0.5, 0.5),
        ({"gpu-fraction": "0.5"}, main({"nvidia.com/gpu": "1"}), "GpuRequestContradicts", 1.0, 1.0),
        ({}, main({"nvidia.com/gpu": "half"}), "GpuRequestInvalid", 1.0, 1.0),
        ({}, main({"nvidia.com/gpu": "1.5"}), "GpuRequestInvalid", 1.0, 1.0),
    ],
)
def test_what_cannot_be_used_is_said_and_never_asks_for_less(
    annotations: dict[str, str], containers: list[Container], code: str, request_: object, limit: object
) -> None:
    demand = demand_of(annotations, containers)
    assert demand is not None
    assert code in [trouble.code for trouble in demand.troubles]
    assert (demand.request, demand.limit) == (request_, limit)
    assert all(len(trouble.sentence) > 20 for trouble in demand.troubles)


def test_a_fraction_of_which_nothing_is_left_is_refused_with_what_it_comes_to() -> None:
    demand = demand_of({"gpu-fraction": "0.0000001"}, main())
    assert demand is not None
    assert "gpu-fraction = '0.0000001' is less than a MiB of any GPU" in demand.troubles[0].sentence


def test_a_pod_without_a_gpu_asks_for_none() -> None:
    assert demand_of({}, main({"cpu": "1"}, RUNAI_GPU_MEMORY_LIMIT="0.5")) is None
    assert demand_of({}, main({"nvidia.com/gpu": "0"})) is None


def test_whole_devices_are_counted_over_the_containers() -> None:
    containers = [Container("a", {"nvidia.com/gpu": "1"}), Container("b", {"nvidia.com/gpu": "2"})]
    assert demand_of({}, containers) == Demand(1.0, 1.0, 3, whole=True, container="a")


def asking(name: str, count: int, **kind: bool) -> Container:
    return Container(name, {"nvidia.com/gpu": str(count)}, **kind)


@pytest.mark.parametrize(
    ("containers", "devices", "initial"),
    [
        ([asking("main", 1), asking("init", 1, initial=True)], 1, 0),
        ([asking("main", 1), asking("init", 3, initial=True)], 1, 2),
        ([asking("main", 0), asking("init", 1, initial=True), asking("next", 2, initial=True)], 0, 2),
        ([asking("main", 0), asking("side", 1, initial=True, sidecar=True)], 1, 0),
        ([asking("main", 1), asking("side", 1, initial=True, sidecar=True)], 2, 0),
        (
            [
                asking("main", 1),
                asking("side", 1, initial=True, sidecar=True),
                asking("init", 3, initial=True),
                asking("last", 1, initial=True, sidecar=True),
            ],
            3,
            1,
        ),
    ],
    ids=[
        "the containers get what the init container had",
        "the init container has more",
        "init containers have theirs one after another",
        "a sidecar alone",
        "a sidecar beside a container",
        "an init container beside the sidecars before it",
    ],
)
def test_init_containers_and_sidecars_count_as_kubernetes_counts_them(
    containers: list[Container], devices: int, initial: int
) -> None:
    demand = demand_of({}, containers)
    assert demand is not None
    assert (demand.devices, demand.initial_devices, demand.whole) == (devices, initial, True)


def test_a_claim_of_an_init_container_is_the_pod_s() -> None:
    sidecar = Container("side", claims=("gpu",), initial=True, sidecar=True)
    assert demand_of({}, [*main(), sidecar]) == Demand(1.0, 1.0, 0, whole=True)


@pytest.mark.parametrize(
    "slice_", ["1g.10gb", "1g.10gb.me", "1g.24gb.gfx", "1g.24gb.me.all", "1g.24gb-me", "1g.10gb.shared", "1c.2g.20gb"]
)
def test_a_mig_slice_is_a_device_of_its_own(slice_: str) -> None:
    demand = demand_of({}, main({f"nvidia.com/mig-{slice_}": "1"}))
    assert demand == Demand(1.0, 1.0, 1, whole=True, container="main", mig=f"nvidia.com/mig-{slice_}")


def test_a_gpu_that_pods_have_in_turns_is_a_device_as_well() -> None:
    demand = demand_of({}, main({"nvidia.com/gpu.shared": "1"}))
    assert demand == Demand(1.0, 1.0, 1, whole=True, container="main")


def test_several_devices_get_a_part_each() -> None:
    demand = demand_of({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, main())
    assert demand == Demand(0.5, 0.5, 2, container="main")


def test_the_named_container_is_the_one_whose_limit_counts() -> None:
    sidecar = Container("sidecar", {}, {"RUNAI_GPU_MEMORY_LIMIT": "0.9"})
    work = Container("work", {}, {"RUNAI_GPU_MEMORY_LIMIT": "0.6"})
    demand = demand_of({"gpu-fraction": "0.5", "gpu-fraction-container-name": "work"}, [sidecar, work])
    assert demand == Demand(0.5, 0.6, container="work")


def test_the_compute_mode_is_kept() -> None:
    demand = demand_of({"gpu-fraction": "0.5", MAIN + "gpu-compute.mode": "sm-sharing"}, main())
    assert demand is not None
    assert demand.mode == "sm-sharing"


def test_a_huge_value_is_shown_in_part() -> None:
    demand = demand_of({"gpu-fraction": "9" * 200_000}, main())
    assert demand is not None
    assert len(demand.troubles[0].sentence) < 300


@pytest.mark.parametrize(
    ("label", "counted"),
    [("81920", 81900 * MIB), ("16384", 16300 * MIB), ("100", 100 * MIB), ("0", None), ("80GiB", None), (None, None)],
)
def test_kai_counts_memory_in_steps_of_100_mib(label: str | None, counted: int | None) -> None:
    assert counted_memory_bytes(label) == counted


def test_a_label_in_bytes_is_understood_as_kai_understands_it() -> None:
    assert counted_memory_bytes(str(81920 * MIB)) == 81900 * MIB
    assert counted_memory_bytes(str(MIB - 1)) == 1_048_500 * MIB


@pytest.mark.parametrize(
    ("annotations", "containers", "request_", "limit"),
    [
        ({"gpu-memory": "8590"}, main(), 8590 * 10**6, 8590 * 10**6),
        ({"gpu-memory": "8590"}, main(RUNAI_GPU_MEMORY_LIMIT="1"), 8590 * 10**6, 1.0),
        ({"gpu-memory": "8590"}, main(RUNAI_GPU_MEMORY_LIMIT="16Gi"), 8590 * 10**6, 16 * GIB),
        ({"gpu-fraction": "0.5"}, main(), 0.5, 0.5),
        ({MAIN + "gpu-memory.request": "4Gi"}, main(), 4 * GIB, 4 * GIB),
        ({"gpu-memory": "lots"}, main(), 1.0, 1.0),
    ],
)
def test_where_the_scheduler_means_a_million_bytes_only_gpu_memory_changes(
    annotations: dict[str, str], containers: list[Container], request_: object, limit: object
) -> None:
    demand = demand_of(annotations, containers)
    assert demand is not None
    read = demand.in_units_of(10**6)
    assert (read.request, read.limit) == (request_, limit)
    assert demand.in_units_of(MIB) == demand


def test_two_pods_that_fill_a_gpu_in_millions_of_bytes_are_not_over_full_in_that_unit() -> None:
    demand = demand_of({"gpu-memory": "8589"}, main())
    assert demand is not None
    assert demand.request * 2 > 16 * GIB
    assert demand.in_units_of(10**6).request * 2 <= 16 * GIB


def test_requests_that_fill_a_gpu_for_kai_fit_in_what_a_process_can_get() -> None:
    capacity, counted = 79 * GIB, 81900 * MIB
    halves = as_bytes(40950 * MIB, capacity, counted), as_bytes(40950 * MIB, capacity, counted)
    assert sum(halves) <= capacity
    assert sum(halves) > capacity - 2
    assert as_bytes(4 * GIB, capacity, None) == 4 * GIB
    assert as_bytes(0.5, capacity, counted) == capacity // 2
