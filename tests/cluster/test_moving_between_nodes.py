"""A notebook's pod is drained from its node and bound to another: what its volume keeps is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from one_node import NAME, NOTEBOOKS, PATIENCE_S, RESERVATIONS, OneNode, pod
from volumes import lasting_story
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from story import Story

pytestmark = pytest.mark.timeout(600)

OTHER_NODE, THIRD_NODE, ITS_GPU = "node-b", "node-c", "GPU-33333333-0000-0000-0000-000000000000"


@pytest.fixture
def lasting(node: OneNode, tmp_path: Path) -> Iterator[Story]:
    """On a disk that all nodes see."""
    with node.further(OTHER_NODE, ITS_GPU):
        shared = Path(os.environ["ONE_NODE_CLUSTER"]) / "volumes"
        with lasting_story(node, tmp_path, shared) as story:
            yield story


def test_a_notebook_that_is_drained_from_a_node_finds_its_variables_on_another(node: OneNode, lasting: Story) -> None:
    name = NOTEBOOKS[0]
    assert node.get("node", THIRD_NODE), "three nodes"
    lasting.kept()
    node.kubectl("drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
    assert node.status()["workloads"] == node.status(OTHER_NODE)["workloads"] == []
    reservation = pod("gpu-reservation-b", RESERVATIONS, labels={"runai-gpu-group": "b"}, nodeName=OTHER_NODE)
    reservation["metadata"]["annotations"] = {"run.ai/reserve_for_gpu_index": ITS_GPU}
    node.apply(reservation)
    wait_until(lambda: node.get("pod", name, "notebooks"), PATIENCE_S)
    node.kubectl("-n", "notebooks", "label", "pod", name, "runai-gpu-group=b")
    node.bind(name, "notebooks", OTHER_NODE)
    wait_until(lambda: node.running(name), PATIENCE_S)
    book = lasting.books[name] = node.open(name)
    assert "kept on" in node.run(book, "%gpu restore")
    assert node.run(book, "%%gpu\nprint(owner, sum(kept))").strip().endswith(f"{name} 45")
    (workload,) = node.status(OTHER_NODE)["workloads"]
    assert workload["home"] == workload["current"] == [ITS_GPU]
    assert node.status()["workloads"] == []
