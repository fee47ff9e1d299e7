"""What a notebook may have of what its pod has."""

from __future__ import annotations

from typing import Any

import pytest

from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from nls_scheduler.kubernetes_driver.tenancy import allotment
from nls_scheduler.wire.errors import Problem
from objects import SOCKET_DIRECTORY, pod, shared_pod

GIB = 2**30
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
GPUS = {uuid: Gpu(uuid, n, "Test", 16 * GIB) for n, uuid in enumerate((A, B))}


def burstable(**options: Any) -> PodRecord:
    return record(shared_pod("a", "0.5", environment=[{"name": "RUNAI_GPU_MEMORY_LIMIT", "value": "0.75"}], **options))


def record(written: dict[str, Any]) -> PodRecord:
    found = pod_record(written, SOCKET_DIRECTORY)
    assert found is not None
    return found


def sizes(
    pod: PodRecord, *others: WorkloadSpec, instead_of: WorkloadSpec | None = None, **body: Any
) -> tuple[int, int]:
    fields, _ = allotment(body, pod, (A,), GPUS, None, others, instead_of)
    return int(fields["request"][:-1]) // GIB, int(fields["limit"][:-1]) // GIB


def other(request: int, name: str = "other") -> WorkloadSpec:
    return WorkloadSpec(name, Kind.NOTEBOOK, 1000, request * GIB, request * GIB)


def test_without_a_wish_it_gets_all_of_it() -> None:
    assert sizes(burstable()) == (8, 12)


def test_it_may_ask_for_less_of_each() -> None:
    assert sizes(burstable(), request="2GiB") == (2, 12)
    assert sizes(burstable(), limit="4GiB") == (4, 4)
    assert sizes(burstable(), request=0.125, limit="0.5") == (2, 8)


@pytest.mark.parametrize(
    "body", [{"request": "0.51"}, {"limit": "0.76"}, {"request": "9GiB"}, {"gpus": 2}, {"gpus": 0}, {"request": "much"}]
)
def test_it_may_not_ask_for_more_or_for_nonsense(body: dict[str, Any]) -> None:
    with pytest.raises(Problem):
        sizes(burstable(), **body)


def test_a_second_notebook_gets_what_the_first_leaves() -> None:
    assert sizes(burstable(), other(6)) == (2, 12)


@pytest.mark.parametrize("fraction", ["0.0000001", "0.00000000001", "1e-99", "1e-999"])
def test_a_fraction_that_is_less_than_a_mib_of_any_gpu_is_told_as_that(fraction: str) -> None:
    with pytest.raises(Problem, match="less than a MiB"):
        sizes(record(shared_pod("a", fraction)))


def test_when_all_gpus_have_gone_that_is_said() -> None:
    with pytest.raises(Problem, match="no GPU on this node") as refused:
        allotment({}, burstable(), (A,), {}, None, (), None)
    assert (refused.value.status, refused.value.fault) == (503, "node")


def test_a_third_notebook_reads_who_has_it() -> None:
    with pytest.raises(Problem, match="held by other"):
        sizes(burstable(), other(8))


def test_a_change_counts_instead_of_what_it_had() -> None:
    assert sizes(burstable(), instead_of=other(4), limit="0.75") == (4, 12)
    with pytest.raises(Problem):
        sizes(burstable(), other(6), instead_of=other(1), request="4GiB")


def test_priority_and_pool_are_the_pods() -> None:
    body = {"priority": 10**6, "pools": "a100", "kind": "notebook"}
    fields, _ = allotment(body, burstable(priority_class="build"), (A,), GPUS, None, (), None)
    assert fields["priority"] == 100
    assert "pools" not in fields


def test_the_queue_is_the_pod_s_where_the_policy_has_it_and_never_the_notebook_s() -> None:
    labelled = burstable(labels={"kai.scheduler/queue": "team-a"})
    assert allotment({"queue": "team-b"}, labelled, (A,), GPUS, None, (), None, ["team-a"])[0]["queue"] == "team-a"
    assert "queue" not in allotment({"queue": "team-b"}, labelled, (A,), GPUS, None, (), None, ["team-b"])[0]
    assert "queue" not in allotment({"queue": "team-b"}, burstable(), (A,), GPUS, None, (), None, ["team-b"])[0]


def test_a_priority_of_the_system_s_is_the_highest_that_a_workload_can_have() -> None:
    written = pod("a", annotations={"gpu-fraction": "0.5"}, priority_class="system-node-critical")
    written["spec"]["priority"] = 2_000_001_000
    assert allotment({}, record(written), (A,), GPUS, None, (), None)[0]["priority"] == 10**9


def test_a_pod_of_two_devices_may_use_one_of_them() -> None:
    two = record(pod("a", gpus=2))
    assert allotment({}, two, (A, B), GPUS, None, (), None)[1] == (A, B)
    assert allotment({"gpus": 1}, two, (A, B), GPUS, None, (), None)[1] == (A,)


def test_a_pod_without_a_gpu_reads_what_to_do() -> None:
    with pytest.raises(Problem, match="gpu-fraction"):
        sizes(record(pod("a")))


def test_a_memory_request_counts_as_the_part_that_kai_counts() -> None:
    written = pod("a", annotations={"gpu-memory": "8192"})
    fields, _ = allotment({}, record(written), (A,), GPUS, 32 * GIB, (), None)
    assert fields["request"] == f"{4 * GIB}B"
