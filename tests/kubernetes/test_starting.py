"""When a pod's containers may start, and what is told of one that was held."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from nls_scheduler.core.model.gpu import Claims, Gpu, GpuOwner, Owner, Releasing
from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.kubernetes_driver.held_starts import ANYWAY, HeldStarts
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from nls_scheduler.kubernetes_driver.starting import NOT_COUNTED, waits_for
from objects import SOCKET_DIRECTORY, pod, shared_pod

GIB = 2**30
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")


def record(written: dict[str, Any]) -> PodRecord:
    found = pod_record(written, SOCKET_DIRECTORY)
    assert found is not None
    return found


TRAIN = record(pod("train", gpus=1, uid="uid-train", scheduler="default-scheduler"))


def node(*owned: GpuUuid, pod: PodRecord = TRAIN, to_come: int = 0, size: int | None = None) -> NodeState:
    """Two Gpus, of which `pod` owns these."""
    owner = Owner(pod.uid, pod.key, owned, size, to_come)
    part = GpuOwner(pod.uid, pod.key, 16 * GIB if size is None else size)
    gpus = {
        uuid: Gpu(uuid, n, "Simulated", 16 * GIB, memory_used_bytes=0, owners=(part,) if uuid in owned else ())
        for n, uuid in enumerate((A, B))
    }
    return NodeState(gpus=gpus, claims=Claims((owner,)))


def with_book(state: NodeState, current: GpuUuid, home: GpuUuid, used: int = GIB) -> NodeState:
    """The same with a notebook."""
    spec = WorkloadSpec("book", Kind.NOTEBOOK, 1000, 8 * GIB, 16 * GIB)
    book = Workload(WorkloadId("book"), spec, submitted_at=0.0, home=(home,), current=(current,))
    return state.having(replace(book, memory_used={current: used}))


def test_a_pod_starts_once_the_last_borrower_has_left_and_its_memory_is_seen_free() -> None:
    free = node(A)
    assert waits_for(with_book(free, A, home=B), TRAIN, kubelet_heard=True) == "GPU 0 is still being vacated."
    left = Releasing(ProcessId(1, 1), WorkloadId("book"), GIB, 1.0)
    leaving = replace(free, gpus={**free.gpus, A: replace(free.gpus[A], releasing=(left,))})
    assert waits_for(leaving, TRAIN, kubelet_heard=True) == "GPU 0 is still being vacated."
    assert waits_for(with_book(free, B, home=B), TRAIN, kubelet_heard=True) is None


def test_a_pod_waits_until_it_is_known_which_gpu_it_has() -> None:
    assert waits_for(node(to_come=1), TRAIN, kubelet_heard=True) == NOT_COUNTED
    assert waits_for(NodeState(), TRAIN, kubelet_heard=True) == NOT_COUNTED
    two = replace(TRAIN, demand=replace(TRAIN.demand, devices=2)) if TRAIN.demand is not None else TRAIN
    assert waits_for(node(A, to_come=1), two, kubelet_heard=True) == NOT_COUNTED
    assert waits_for(node(A, B), two, kubelet_heard=True) is None


def test_what_the_kubelet_said_before_may_be_of_an_earlier_pod_of_that_name() -> None:
    assert waits_for(node(A), TRAIN, kubelet_heard=False) == NOT_COUNTED
    named = replace(TRAIN, devices=(str(A),))
    assert waits_for(node(A), named, kubelet_heard=False) == NOT_COUNTED, "nor is it what an annotation says"


def test_a_pod_waits_while_a_device_that_it_was_given_is_none_that_is_known() -> None:
    claiming = record(pod("train", uid="uid-train", scheduler="default-scheduler", claim="gpu"))
    assert waits_for(node(), claiming, kubelet_heard=True, somewhere=True) == NOT_COUNTED
    assert waits_for(node(), claiming, kubelet_heard=True) is None, "it only looks"


def test_whom_the_kubelet_gave_a_gpu_waits_for_that_whatever_it_asks_for() -> None:
    for written in (pod("a", uid="1"), shared_pod("a", "0.5", uid="1", scheduler="default-scheduler")):
        given = record(written)
        lent = with_book(node(A, pod=given), A, home=B)
        assert waits_for(lent, given, kubelet_heard=True) == "GPU 0 is still being vacated."


def test_a_pod_waits_for_the_gpu_that_is_kept_free_for_its_init_containers() -> None:
    written = pod("train", uid="1", scheduler="default-scheduler")
    written["spec"]["initContainers"] = [{"name": "init", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    train = record(written)
    state = node(pod=train, to_come=1)
    kept = replace(state.gpus[A], owners=(GpuOwner(train.uid, train.key, 16 * GIB, expected=True),))
    state = replace(state, gpus={**state.gpus, A: kept})
    assert waits_for(with_book(state, A, home=B), train, kubelet_heard=True) == "GPU 0 is still being vacated."
    assert waits_for(state, train, kubelet_heard=True) is None


def test_a_share_needs_no_word_of_the_kubelet_s() -> None:
    share = record(shared_pod("share", "0.5", "g1", uid="uid-share"))
    assert waits_for(node(A, pod=share, size=8 * GIB), share, kubelet_heard=False) is None


def test_whoever_is_at_home_there_gives_back_what_is_an_owner_s() -> None:
    share = record(shared_pod("share", "0.5", "g1", uid="uid-share"))
    state = node(A, pod=share, size=8 * GIB)
    assert waits_for(with_book(state, A, home=A, used=9 * GIB), share, kubelet_heard=True) is not None
    assert waits_for(with_book(state, A, home=A, used=8 * GIB), share, kubelet_heard=True) is None


@pytest.mark.parametrize(
    "written",
    [
        pod("none"),
        shared_pod("book", "0.5", "g1", managed=True),
        shared_pod("nobody", "0.5", scheduler="default-scheduler"),
    ],
    ids=["no GPU", "a notebook of ours", "a share that nobody gives"],
)
def test_who_takes_nothing_from_a_borrower_starts_at_once(written: dict[str, Any]) -> None:
    assert waits_for(NodeState(), record(written), kubelet_heard=False) is None


class Told:
    """Events that would be written."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def once(self, pod: PodRecord, reason: str, message: str) -> None:
        assert (pod, "GPU 0" in message) == (TRAIN, True)
        self.reasons.append(reason)


def samples(starts: HeldStarts) -> dict[str, float]:
    return {sample.name: sample.value for metric in starts.collect() for sample in metric.samples}


def test_a_held_start_is_measured_once() -> None:
    told = Told()
    starts = HeldStarts(cast("Any", told))
    held, free, pods = with_book(node(A), A, home=B), node(A), {TRAIN.uid: TRAIN}
    first = starts.asked(TRAIN, held, pods, 10.0, 10.5, gives_up=False)
    assert (first["vacated"], starts.held_s.total) == (False, 0.0)
    for _ in range(2):
        assert starts.asked(TRAIN, free, pods, 12.0, 11.9, gives_up=False) == {"vacated": True, "reason": ""}
    found = samples(starts)
    assert (found["nls_kubernetes_start_held_seconds_count"], starts.held_s.total) == (1.0, 2.0)
    assert (found["nls_kubernetes_starts_anyway_total"], told.reasons) == (0.0, [])


def test_a_start_after_the_time_limit_is_counted_and_told_once() -> None:
    told = Told()
    starts = HeldStarts(cast("Any", told))
    held, pods = with_book(node(A), A, home=B), {TRAIN.uid: TRAIN}
    starts.asked(TRAIN, held, pods, 10.0, 10.5, gives_up=False)
    for _ in range(2):
        assert starts.asked(TRAIN, held, pods, 70.0, 69.0, gives_up=True)["vacated"] is False
    assert (starts.anyway, told.reasons) == (1, [ANYWAY])
    # A pod that has gone is forgotten; one that comes back asks anew.
    starts.asked(TRAIN, held, {}, 80.0, 79.0, gives_up=False)
    assert starts.asked(TRAIN, node(A), pods, 81.0, 80.5, gives_up=False)["vacated"] is True


@pytest.mark.parametrize(
    ("first", "stay", "managed"),
    [
        ([], [], True),
        ([{"name": "wait", "volumeMounts": [{"name": "nls", "mountPath": "/run/nls"}]}], [], False),
        ([{"name": "side", "restartPolicy": "Always", "volumeMounts": [{"name": "nls"}]}], [], True),
        ([{"name": "wait", "volumeMounts": [{"name": "nls"}]}], [{"name": "nls"}], True),
    ],
    ids=["nobody mounts it", "only to wait", "a sidecar", "both"],
)
def test_a_pod_that_mounts_the_socket_only_to_wait_is_no_notebook_s(
    first: list[dict[str, Any]], stay: list[dict[str, Any]], managed: bool
) -> None:
    written = pod("a", managed=True)
    written["spec"]["initContainers"] = first
    written["spec"]["containers"][0]["volumeMounts"] = stay
    assert record(written).managed is managed
