"""The third-pod story on a real kubelet: real pods, real devices of a device plugin, simulated memory."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from one_node import DEPLOY, GPUS, PATIENCE_S, RESERVATIONS, WAITS, OneNode, held_pod, pod
from waiting import wait_until

if TYPE_CHECKING:
    from story import Story

pytestmark = pytest.mark.timeout(400)


def test_a_third_pod_that_is_only_bound_finds_its_gpu_vacated(node: OneNode, story: Story) -> None:
    story.third_pod()
    assert "GpuMoved" in node.kubectl("-n", "notebooks", "get", "events")


@pytest.mark.parametrize("service", ["kubelet", "kube-apiserver", "etcd", "containerd"])
def test_the_story_goes_on_after_a_service_of_the_node_was_killed(node: OneNode, story: Story, service: str) -> None:
    before = node.plugin.registrations
    node.signal(service, signal.SIGKILL)
    story.kept()
    if service == "kubelet":
        # Until its device plugin is back it refuses pods with devices for good, whatever the node's status says still.
        wait_until(lambda: node.plugin.registrations > before and node.plugin.known(), PATIENCE_S)
    wait_until(lambda: node.get("node", "node-a").get("status", {}).get("allocatable", {}).get("nvidia.com/gpu") == "2")
    wait_until(node.daemon_ready, PATIENCE_S)
    story.third_pod()


def test_the_story_goes_on_after_the_api_server_was_frozen(node: OneNode, story: Story) -> None:
    node.signal("kube-apiserver", signal.SIGSTOP)
    try:
        story.kept()
    finally:
        node.signal("kube-apiserver", signal.SIGCONT)
    story.third_pod()


def test_the_story_goes_on_after_the_daemon_was_deleted(node: OneNode, story: Story) -> None:
    node.kubectl("-n", "nls-system", "delete", "pod", "-l", "app.kubernetes.io/name=nls-scheduler")
    wait_until(node.daemon_ready, PATIENCE_S)
    story.kept()
    story.third_pod()


def test_an_owner_that_comes_while_the_daemon_is_updated_has_its_gpu(node: OneNode, story: Story) -> None:
    def uid() -> str:
        chosen = ("-l", "app.kubernetes.io/name=nls-scheduler", "-o", "jsonpath={.items[*].metadata.uid}")
        return node.kubectl("-n", "nls-system", "get", "pods", *chosen)

    before, daemon = {w["id"] for w in node.status()["workloads"]}, uid()
    newer = {"spec": {"template": {"metadata": {"annotations": {"nls-jupyter/test": "newer"}}}}}
    node.kubectl("-n", "nls-system", "patch", "daemonset", "nls-scheduler", "-p", json.dumps(newer))
    node.apply(pod("training", "notebooks", gpus=1))
    story.kept()
    node.kubectl("-n", "nls-system", "rollout", "status", "daemonset/nls-scheduler", "--timeout=90s")
    assert uid() != daemon
    wait_until(lambda: node.running("training"), PATIENCE_S)
    assert wait_until(node.current, PATIENCE_S) == set(GPUS) - {node.device("training")}
    assert {w["id"] for w in node.status()["workloads"]} == before
    story.kept()
    node.kubectl("-n", "notebooks", "delete", "pod", "training")
    story.spread()
    story.kept()


@pytest.mark.skipif("KAI_CRDS" not in os.environ, reason="KAI_CRDS names no folder with the definitions of KAI's kinds")
def test_the_story_as_kai_binds_it(node: OneNode, story: Story) -> None:
    """The BindRequest first, then the reservation of a new group, the group's label, and the binding."""
    before = node.metrics()
    share = pod("share", "notebooks", schedulerName="kai-scheduler")
    share["metadata"]["annotations"] = {"gpu-fraction": "0.5"}
    node.apply(share)
    node.request("share", "g-new")
    wait_until(lambda: len(node.current()) == 1, PATIENCE_S)
    node.reserve("g-new")
    node.kubectl("-n", "notebooks", "label", "pod", "share", "runai-gpu-group=g-new")
    node.bind("share", "notebooks")
    node.kubectl("-n", "notebooks", "delete", "bindrequest", "share")
    wait_until(lambda: node.running("share"), PATIENCE_S)
    assert node.current() == set(GPUS) - {node.device("gpu-reservation-g-new", RESERVATIONS)}
    late = "nls_kubernetes_vacate_lateness_seconds"
    wait_until(lambda: node.metrics()[f"{late}_count"] > before[f"{late}_count"], PATIENCE_S)
    after = node.metrics()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert grown['nls_kubernetes_claims_total{signal="bind_request"}'] == 1
    assert grown['nls_kubernetes_claims_missed_total{signal="bind_request"}'] == 0
    assert grown[f'{late}_bucket{{le="0.0"}}'] == grown[f"{late}_count"]
    story.kept()
    node.kubectl("-n", "notebooks", "delete", "pod", "share")
    node.kubectl("-n", RESERVATIONS, "delete", "pod", "gpu-reservation-g-new")
    story.spread()
    story.kept()


def test_a_pod_with_the_init_container_starts_only_when_its_gpu_is_vacated(node: OneNode, story: Story) -> None:
    node.apply(held_pod("held"))
    wait_until(lambda: node.running("held"), PATIENCE_S)
    assert len(node.current()) == 1
    said = node.kubectl("-n", "notebooks", "logs", "held", "-c", WAITS)
    assert "starts" not in said, "it was not known, or did not wait for long enough"
    node.kubectl("-n", "notebooks", "delete", "pod", "held")
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    story.kept()


def test_thirty_pods_come_and_go_and_nobody_loses_a_variable(node: OneNode, story: Story) -> None:
    waiting = {f"churn-{number}" for number in range(30)}
    for name in waiting:
        node.apply(pod(name, "notebooks", gpus=1))
    while waiting:
        # The scheduler chooses who is next.
        name = wait_until(lambda: next(filter(node.running, waiting), ""), 2 * PATIENCE_S)
        node.kubectl("-n", "notebooks", "delete", "pod", name)
        waiting.remove(name)
    wait_until(lambda: node.current() == set(GPUS), PATIENCE_S)
    story.kept()


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
