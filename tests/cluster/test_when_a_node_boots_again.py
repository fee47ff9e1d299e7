"""A node boots again with what was on its disk: pods come back as Kubernetes has it, the daemon with its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from one_node import GPUS, NOTEBOOKS, PATIENCE_S, RESERVATIONS, OneNode, pod
from waiting import wait_until

if TYPE_CHECKING:
    from story import Story

pytestmark = pytest.mark.timeout(400)


def test_after_a_reboot_nobody_is_on_a_gpu_that_somebody_else_owns(node: OneNode, story: Story) -> None:
    owner = pod("owner", "notebooks", gpus=1, labels={"app": "owner"})
    template = {"metadata": {"labels": {"app": "owner"}}, "spec": owner["spec"]}
    spec = {"serviceName": "owner", "selector": {"matchLabels": {"app": "owner"}}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "owner", "namespace": "notebooks"}}
    node.apply({**head, "spec": spec})
    wait_until(lambda: node.running("owner-0"), PATIENCE_S)
    wait_until(lambda: node.current() == set(GPUS) - {node.device("owner-0")}, PATIENCE_S)
    before = {name: node.get("pod", name, "notebooks")["metadata"]["uid"] for name in NOTEBOOKS}
    ids = {workload["id"] for workload in node.status()["workloads"]}
    node.reboot()
    # A kubelet that starts before its device plugin refuses pods with devices for good. Controllers make them anew.
    wait_until(lambda: node.device("owner-0", check=False) in GPUS, 2 * PATIENCE_S)
    node.kubectl("-n", RESERVATIONS, "delete", "pod", "gpu-reservation-g0", "--force")
    node.reserve("g0")
    for name in NOTEBOOKS:
        wait_until(lambda name=name: restarted(node, name), PATIENCE_S)
        assert node.get("pod", name, "notebooks")["metadata"]["uid"] == before[name]
    wait_until(node.daemon_ready, PATIENCE_S)
    assert not ids & {workload["id"] for workload in node.status()["workloads"]}
    story.begin()
    assert node.current() == set(GPUS) - {node.device("owner-0")}
    story.kept()
    node.kubectl("-n", "notebooks", "delete", "statefulset", "owner")
    story.spread()
    story.kept()


def restarted(node: OneNode, name: str) -> bool:
    """Whether the only container of a pod runs again."""
    (container,) = node.get("pod", name, "notebooks")["status"]["containerStatuses"]
    return bool(container["restartCount"] == 1 and "running" in container["state"])
