"""A device plugin that makes names up, as fake-gpu-operator's does: its ConfigMap says which GPU a pod has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from device_plugin import DevicePlugin
from one_node import PATIENCE_S, OneNode, pod
from waiting import wait_until

pytestmark = pytest.mark.timeout(400)

WHERE = "node-b"
ITS_GPUS = [f"GPU-{digit * 8}-0000-0000-0000-000000000000" for digit in "56"]
MADE_UP = ["0b1f7a0e-4a53-4d3b-9d0c-7f2f0d1f6a55", "f8d3c1b2-0c4e-4f6a-8b5d-1a2b3c4d5e6f"]


def topology(node: OneNode, **given: tuple[str, str]) -> None:
    """As the operator's status updater writes it: name and UID of the pod by the GPU's first digit (`gpu5`)."""
    gpus: list[Any] = [{"id": uuid, "status": {}} for uuid in ITS_GPUS]
    for gpu in gpus:
        name, uid = given.get(f"gpu{gpu['id'][4]}", ("", ""))
        by = {"namespace": "notebooks" if name else "", "pod": name, "container": "main" if name else ""}
        gpu["status"] = {"allocatedBy": by, "podGpuUsageStatus": {uid: {"fbUsed": 16384}} if uid else {}}
    text = json.dumps({"gpuMemory": 16384, "gpuProduct": "SIMULATED", "gpus": gpus})
    head = {"name": f"topology-{WHERE}", "namespace": "gpu-operator"}
    node.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": {"topology.yml": text}})


def owned(node: OneNode) -> list[int]:
    """Of each GPU there, in GiB."""
    return [gpu["unplaced_bytes"] // 2**30 for gpu in node.status(WHERE)["gpus"]]


def test_which_gpu_a_pod_has_is_learned_from_the_operator_s_config_map(node: OneNode) -> None:
    with node.further(WHERE, *ITS_GPUS) as root, DevicePlugin(MADE_UP, root):
        topology(node)
        wait_until(lambda: node.get("node", WHERE)["status"]["allocatable"].get("nvidia.com/gpu") == "2", PATIENCE_S)
        node.apply(pod("whole", "notebooks", gpus=1, nodeName=WHERE))
        try:
            wait_until(lambda: node.running("whole"), PATIENCE_S)
            assert node.device("whole") in MADE_UP
            wait_until(lambda: node.device("whole") in (node.status(WHERE)["message"] or ""), PATIENCE_S)
            assert owned(node) == [16, 16], "it could be either"
            topology(node, gpu6=("whole", node.get("pod", "whole", "notebooks")["metadata"]["uid"]))
            wait_until(lambda: owned(node) == [0, 16], PATIENCE_S)
            assert node.status(WHERE)["message"] is None
        finally:
            node.kubectl("-n", "notebooks", "delete", "pod", "whole")
        wait_until(lambda: owned(node) == [0, 0], PATIENCE_S)
