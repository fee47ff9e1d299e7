"""The third-pod story on a real kubelet: real pods, real devices of a device plugin, simulated memory."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from one_node import DEPLOY, GPUS, PATIENCE_S, OneNode, pod
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def story(node: OneNode) -> Iterator[dict[str, Any]]:
    """alice and bob, each with half of one GPU on paper, and both burst."""
    node.reserve("g0")
    node.notebooks("g0")
    books = {name: node.open(name) for name in ("alice-0", "bob-0")}
    for name, book in books.items():
        node.run(book, f"%%gpu\nowner = {name!r}; kept = list(range(10))")
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    yield books
    for book in books.values():
        book.close()


def kept(node: OneNode, books: dict[str, Any]) -> None:
    """Both have their variables."""
    for name, book in books.items():
        assert node.run(book, "%%gpu\nprint(owner, sum(kept))").strip().endswith(f"{name} 45")


def third_pod(node: OneNode, books: dict[str, Any]) -> None:
    """It comes, gets its GPU vacated, and goes; both burst again."""
    node.apply(pod("training", "notebooks", gpus=1))
    wait_until(lambda: len(node.current()) == 1, PATIENCE_S)
    wait_until(lambda: node.running("training"), PATIENCE_S)
    kept(node, books)
    node.kubectl("-n", "notebooks", "delete", "pod", "training")
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    kept(node, books)


def test_a_third_pod_that_is_only_bound_finds_its_gpu_vacated(node: OneNode, story: dict[str, Any]) -> None:
    third_pod(node, story)
    assert "GpuMoved" in node.kubectl("-n", "notebooks", "get", "events")


@pytest.mark.parametrize("service", ["kubelet", "kube-apiserver", "etcd", "containerd"])
def test_the_story_goes_on_after_a_service_of_the_node_was_killed(
    node: OneNode, story: dict[str, Any], service: str
) -> None:
    before = node.plugin.registrations
    node.signal(service, signal.SIGKILL)
    kept(node, story)
    if service == "kubelet":
        # Until its device plugin is back it refuses pods with devices for good.
        wait_until(lambda: node.plugin.registrations > before, PATIENCE_S)
    wait_until(lambda: node.get("node", "node-a").get("status", {}).get("allocatable", {}).get("nvidia.com/gpu") == "2")
    wait_until(node.daemon_ready, PATIENCE_S)
    third_pod(node, story)


def test_the_story_goes_on_after_the_api_server_was_frozen(node: OneNode, story: dict[str, Any]) -> None:
    node.signal("kube-apiserver", signal.SIGSTOP)
    try:
        kept(node, story)
    finally:
        node.signal("kube-apiserver", signal.SIGCONT)
    third_pod(node, story)


def test_the_story_goes_on_after_the_daemon_was_deleted(node: OneNode, story: dict[str, Any]) -> None:
    node.kubectl("-n", "nls-system", "delete", "pod", "-l", "app.kubernetes.io/name=nls-scheduler")
    wait_until(node.daemon_ready, PATIENCE_S)
    kept(node, story)
    third_pod(node, story)


def test_a_pod_with_the_init_container_starts_only_when_its_gpu_is_vacated(
    node: OneNode, story: dict[str, Any]
) -> None:
    socket = {"name": "socket", "hostPath": {"path": "/run/nls", "type": "DirectoryOrCreate"}}
    waits = {
        "name": "nls-wait-for-gpus",
        "image": "nls-scheduler:0.1.0",
        "imagePullPolicy": "Never",
        "command": ["nls", "wait-for-gpus", "--timeout=60"],
        "volumeMounts": [{"name": "socket", "mountPath": "/run/nls", "readOnly": True}],
    }
    node.apply(pod("held", "notebooks", gpus=1, initContainers=[waits], volumes=[socket]))
    wait_until(lambda: node.running("held"), PATIENCE_S)
    assert len(node.current()) == 1
    said = node.kubectl("-n", "notebooks", "logs", "held", "-c", waits["name"])
    assert "starts" not in said, "it was not known, or did not wait for long enough"
    node.kubectl("-n", "notebooks", "delete", "pod", "held")
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    kept(node, story)


def test_thirty_pods_come_and_go_and_nobody_loses_a_variable(node: OneNode, story: dict[str, Any]) -> None:
    waiting = {f"churn-{number}" for number in range(30)}
    for name in waiting:
        node.apply(pod(name, "notebooks", gpus=1))
    while waiting:
        # The scheduler chooses who is next.
        name = wait_until(lambda: next(filter(node.running, waiting), ""), 2 * PATIENCE_S)
        node.kubectl("-n", "notebooks", "delete", "pod", name)
        waiting.remove(name)
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    kept(node, story)


def test_the_host_paths_policy_refuses_every_folder_of_the_node_but_the_socket_s(node: OneNode) -> None:
    node.kubectl("apply", "-f", str(DEPLOY / "components/host_paths/admission_policy.yaml"))
    labels = {"nls-jupyter/host-paths": "socket"}
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "guarded", "labels": labels}})

    def refused(path: str, *, read_only: bool = True) -> bool:
        mount = {"name": "folder", "mountPath": "/mnt", "readOnly": read_only}
        written = pod("guarded", "guarded", volumes=[{"name": "folder", "hostPath": {"path": path}}])
        written["spec"]["containers"][0]["volumeMounts"] = [mount]
        told = node.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(written), check=False)
        return not told

    # A new policy is heard of a little later.
    wait_until(lambda: refused("/etc"), PATIENCE_S)
    assert refused("/run/nls", read_only=False)
    assert not refused("/run/nls")
