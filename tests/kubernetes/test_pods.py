"""From the API's objects to records: what a pod and a BindRequest say, and objects that say nothing usable."""

from __future__ import annotations

from typing import Any

import pytest

from nls_scheduler.kubernetes_driver.bind_requests import bind_request as parse_bind_request
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from objects import SOCKET_DIRECTORY, bind_request, mirror_pod, pod, reservation, result, shared_pod


def record(written: dict[str, Any]) -> PodRecord:
    found = pod_record(written, SOCKET_DIRECTORY)
    assert found is not None
    return found


def test_a_shared_pod_says_its_group_queue_and_priority() -> None:
    found = record(
        shared_pod(
            "a", "0.5", "g1", priority_class="train", labels={"kai.scheduler/queue": "team", "runai/queue": "old"}
        )
    )
    assert (found.groups, found.queue, found.priority, found.reserves) == (("g1",), "team", 50, None)


def test_the_older_queue_label_counts_where_there_is_no_newer() -> None:
    assert record(pod("a", labels={"runai/queue": "old"})).queue == "old"


@pytest.mark.parametrize(
    ("name", "priority"),
    [("train", 50), ("build-preemptible", 75), ("build", 100), ("inference", 125), ("unheard-of", 0)],
)
def test_a_priority_class_is_known_by_its_name(name: str, priority: int) -> None:
    assert record(pod("a", priority_class=name)).priority == priority


@pytest.mark.parametrize(
    ("scheduler", "label", "priority"),
    [("kai-scheduler", "build", 100), ("kai-scheduler", "unheard-of", 50), ("default-scheduler", "build", 50)],
)
def test_a_label_names_the_class_before_the_pod_does_where_its_scheduler_reads_it(
    scheduler: str, label: str, priority: int
) -> None:
    written = pod("a", scheduler=scheduler, priority_class="train", labels={"priorityClassName": label})
    assert record(written).priority == priority


@pytest.mark.parametrize(
    ("scheduler", "name", "priority"),
    [("kai-scheduler", None, 50), ("kai-scheduler", "nightly", -7), ("default-scheduler", None, -7)],
)
def test_a_pod_without_a_class_has_the_priority_that_kai_gives_it(
    scheduler: str, name: str | None, priority: int
) -> None:
    """`calcPriorityClassWithDefaults`: train. Kubernetes' own number is what a class of the cluster's comes to."""
    written = pod("a", scheduler=scheduler, priority_class=name)
    written["spec"]["priority"] = -7
    assert record(written).priority == priority


def test_a_label_alone_gives_no_priority_where_its_scheduler_does_not_read_it() -> None:
    written = pod("a", scheduler="default-scheduler", labels={"priorityClassName": "inference"})
    assert record(written).priority == 0


def test_a_pod_of_several_devices_has_a_label_for_each() -> None:
    written = shared_pod("a", "0.5", labels={"runai-gpu-group/g2": "g2", "runai-gpu-group/g1": "g1"})
    assert record(written).groups == ("g1", "g2")


def test_kai_018_writes_the_devices_on_the_pod() -> None:
    written = shared_pod("a", "0.5")
    written["metadata"]["annotations"]["nvidia.com/container.main.gpus.devices"] = "GPU-1, GPU-2"
    assert record(written).devices == ("GPU-1", "GPU-2")


@pytest.mark.parametrize("scheduler", ["default-scheduler", "somebody-s", ""])
def test_what_kai_writes_counts_on_its_own_pods_only(scheduler: str) -> None:
    devices = {"nvidia.com/container.main.gpus.devices": "GPU-1"}
    found = record(pod("a", gpus=1, scheduler=scheduler, annotations=devices, labels={"runai-gpu-group": "g1"}))
    assert (found.groups, found.devices) == ((), ())
    assert record(reservation("g1", "GPU-1", scheduler=scheduler)).groups == ("g1",)


def test_a_sidecar_s_gpu_is_its_pod_s_and_so_is_its_start() -> None:
    written = pod("a", scheduler="default-scheduler")
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    written["spec"]["initContainers"] = [{"name": "side", "restartPolicy": "Always", "resources": limits}]
    running = {"running": {"startedAt": "2026-11-21T10:00:00Z"}}
    written["status"]["initContainerStatuses"] = [{"name": "side", "state": running}]
    found = record(written)
    assert found.demand is not None
    assert (found.demand.devices, found.demand.container, found.started_at) == (1, "side", 1795255200.0)


def test_a_reservation_pod_holds_the_device_that_its_annotation_names() -> None:
    assert record(reservation("g1", "GPU-1")).reserves == "GPU-1"
    assert record(reservation("g1", None)).reserves == ""


def test_a_pod_that_mounts_the_socket_is_looked_after_by_us() -> None:
    assert record(pod("a", managed=True)).managed
    assert not record(pod("a")).managed
    assert not record(pod("a", managed=True, socket_directory="/run/nls-other")).managed


def test_a_pod_can_say_itself_whether_it_is_looked_after() -> None:
    assert record(pod("a", annotations={"nls-jupyter/managed": "true"})).managed
    assert not record(pod("a", managed=True, annotations={"nls-jupyter/managed": "false"})).managed


def test_the_start_of_its_container_is_known() -> None:
    assert record(pod("a", gpus=1, started_at="2026-11-21T10:00:00Z")).started_at == 1795255200.0
    assert record(pod("a", gpus=1, started_at="yesterday")).started_at is None


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    assert record(pod("a", phase=phase)).ended


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"metadata": None},
        {"metadata": {"name": "a", "namespace": "b"}},
        {"metadata": {"name": 1, "namespace": "b", "uid": "c"}},
    ],
)
def test_an_object_without_identity_is_none(broken: dict[str, Any]) -> None:
    assert pod_record(broken, SOCKET_DIRECTORY) is None


STATIC = "8f6a44fc62e8cb075753c843896568ca"


def test_a_static_pod_has_the_uid_that_its_cgroup_has() -> None:
    assert record(mirror_pod("monitor-node-a", STATIC)).uid == STATIC


@pytest.mark.parametrize("said", ["86931e55-4162-4646-b81e-fd5bb3007535", "", "x" * 32, 7])
def test_what_can_be_another_pod_s_uid_is_no_static_pod_s(said: Any) -> None:
    assert record(mirror_pod("monitor-node-a", said, uid="0-api")).uid == "0-api"


def test_a_pod_of_no_node_is_no_static_one() -> None:
    written = mirror_pod("monitor-node-a", STATIC, uid="0-api")
    written["metadata"]["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a"}]
    assert record(written).uid == "0-api"


@pytest.mark.parametrize(
    "parts",
    [
        {"spec": None, "status": None},
        {"spec": [], "status": "x"},
        {"spec": {"containers": [None, 1, {"env": {"a": 1}, "resources": []}], "volumes": {"a": 1}}},
        {"spec": {"containers": [{"name": "main", "env": [{"name": 3, "value": None}]}], "priority": "high"}},
        {"status": {"containerStatuses": [{"name": "main", "state": {"running": None}}, None]}},
    ],
)
def test_parts_of_a_wrong_type_are_absent_and_never_an_error(parts: dict[str, Any]) -> None:
    written = {**pod("a"), **parts}
    assert record(written).demand is None


def test_a_number_without_quotes_is_as_good_as_its_text() -> None:
    found = record(pod("a", annotations={"gpu-fraction": 0.5}))
    assert found.demand is not None
    assert found.demand.request == 0.5


def test_a_bind_request_names_the_pod_the_node_and_the_groups() -> None:
    found = parse_bind_request(bind_request("a", groups=["g1", "g2", "g1"], portion="0.25"))
    assert found is not None
    assert (found.pod, found.node, found.shared) == ("default/a", "node-a", True)
    assert (found.count, found.portion, found.groups, found.over) == (2, 0.25, ("g1", "g2"), False)


def test_a_bind_request_of_whole_devices_has_a_count() -> None:
    found = parse_bind_request(bind_request("a", count=2))
    assert found is not None
    assert (found.shared, found.count, found.portion, found.groups) == (False, 2, 1.0, ())


def test_a_bind_request_of_slices_does_not_say_how_many_there_are() -> None:
    written = bind_request("a")
    written["spec"] |= {"receivedResourceType": "MigInstance", "receivedGPU": {"portion": "0.00"}}
    found = parse_bind_request(written)
    assert found is not None
    assert (found.shared, found.count, found.portion) == (False, 1, 1.0)


def test_a_bind_request_of_an_extended_resource_says_which_device_its_claim_is_about_to_get() -> None:
    written = bind_request("a", count=0)
    written["spec"]["extendedResourceClaimAllocation"] = {"allocation": {"devices": {"results": [result("gpu-1")]}}}
    found = parse_bind_request(written)
    assert found is not None
    assert [device.id for device in found.claimed] == ["gpu.nvidia.com/node-a/gpu-1"]


@pytest.mark.parametrize(
    ("change", "portion", "count"),
    [
        ({"receivedGPU": {"count": 1, "portion": "much"}}, 1.0, 1),
        ({"receivedGPU": {"count": 1, "portion": "-1"}}, 1.0, 1),
        ({"receivedGPU": None}, 1.0, 1),
    ],
)
def test_a_portion_that_makes_no_sense_counts_as_everything(change: dict[str, Any], portion: float, count: int) -> None:
    written = bind_request("a", groups=["g1"])
    written["spec"] |= change
    found = parse_bind_request(written)
    assert found is not None
    assert (found.portion, found.count) == (portion, count)


@pytest.mark.parametrize(
    "change", [{"selectedNode": None}, {"receivedResourceType": "DRA"}, {"receivedResourceType": None}]
)
def test_a_bind_request_that_says_nothing_about_gpus_is_none(change: dict[str, Any]) -> None:
    written = bind_request("a", groups=["g1"])
    written["spec"] |= change
    assert parse_bind_request(written) is None


def test_a_bind_request_that_was_carried_out_is_over() -> None:
    found = parse_bind_request({**bind_request("a", count=1), "status": {"phase": "Succeeded"}})
    assert found is not None
    assert found.over


@pytest.mark.parametrize(
    ("limit", "attempts", "over"), [(None, 0, True), (0, 0, True), (3, 1, False), (3, 3, True), ("many", 1, True)]
)
def test_a_bind_request_that_failed_is_over_unless_it_is_tried_again(limit: object, attempts: int, over: bool) -> None:
    """As KAI's scheduler counts (`IsFailed`)."""
    written = {**bind_request("a", count=1), "status": {"phase": "Failed", "failedAttempts": attempts}}
    if limit is not None:
        written["spec"]["backoffLimit"] = limit
    found = parse_bind_request(written)
    assert found is not None
    assert found.over is over
