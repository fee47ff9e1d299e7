"""Simulated Gpus from a node's topology, as run-ai's fake-gpu-operator writes it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.drivers.simulated import SimulatedDriver, SimulatedGpu, SimulationSpec
from nls_scheduler.drivers.topology_file import GivenTo, parse_given, parse_topology, read_topology

if TYPE_CHECKING:
    from pathlib import Path

MIB = 2**20
FIRST, SECOND = "GPU-6b1f8a9c-5d4e-53e1-8a36-0e5a1b7d3c21", "GPU-f0c2b7de-91a4-5b7e-a1d0-44b2f6d9e8aa"
# As `kubectl get configmap topology-NODE -o jsonpath='{.data.topology\.yml}'` shows it (0.2.0).
AS_YAML = f"""
gpuMemory: 40960
gpuProduct: NVIDIA A100-SXM4-40GB
gpus:
    - id: {FIRST}
      status:
        allocatedBy:
            namespace: team-a
            pod: training
            container: main
        podGpuUsageStatus:
            5f0f0ae8-9d77-4e2c-b1c5-3d7a3e0f9f11:
                utilization:
                    min: 80
                    max: 100
                fbUsed: 40960
                useKnativeUtilization: false
    - id: {SECOND}
      status:
        allocatedBy:
            namespace: ""
            pod: ""
            container: ""
        podGpuUsageStatus: {{}}
migStrategy: mixed
"""
AS_JSON = json.dumps(
    {
        "gpu-memory": 11441,
        "gpu-product": "Tesla-K80",
        "mig-strategy": "mixed",
        "gpus": [
            {
                "id": FIRST,
                "status": {
                    "allocated-by": {"namespace": "team-a", "pod": "training", "container": "main"},
                    "pod-gpu-usage-status": {"5f0f": {"utilization": {"min": 80, "max": 100}, "fb-used": 11441}},
                },
            }
        ],
    }
)


def test_a_node_of_the_operator_has_its_uuids_its_product_and_its_memory() -> None:
    first, second = parse_topology(AS_YAML)
    assert (first.uuid, first.name, first.memory_total_bytes) == (FIRST, "NVIDIA A100-SXM4-40GB", 40960 * MIB)
    assert second.uuid == SECOND


def test_the_older_form_with_hyphens_is_read_too() -> None:
    (only,) = parse_topology(AS_JSON)
    assert (only.uuid, only.name, only.memory_total_bytes) == (FIRST, "Tesla-K80", 11441 * MIB)


def test_a_daemon_simulates_what_the_file_describes(tmp_path: Path) -> None:
    file = tmp_path / "worker.yml"
    file.write_text(AS_YAML)
    driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec.parse(str(file)), 256 * MIB)
    try:
        found = driver.discover()
        assert [(gpu.uuid, gpu.name, gpu.memory_total_bytes) for gpu in found] == [
            (FIRST, "NVIDIA A100-SXM4-40GB", 40960 * MIB),
            (SECOND, "NVIDIA A100-SXM4-40GB", 40960 * MIB),
        ]
        seen = SimulatedGpu.from_environment(driver.environment([found[1].uuid]))
        assert seen is not None
        assert (seen.uuid, seen.name, seen.memory_info()) == (SECOND, found[1].name, (40960 * MIB, 40960 * MIB))
    finally:
        driver.close()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no mapping"),
        ("- 1\n", "no mapping"),
        ("{", "neither JSON nor YAML"),
        ("gpuMemory: 16384\n", "gpus must be a list"),
        ("gpuMemory: 16384\ngpus: []\n", "gpus must be a list"),
        ("gpuMemory: many\ngpus: [{id: GPU-1}]\n", "gpuMemory = 'many' is no number of MiB"),
        ("gpuMemory: -1\ngpus: [{id: GPU-1}]\n", "gpuMemory = -1"),
        ("gpuMemory: true\ngpus: [{id: GPU-1}]\n", "gpuMemory = True"),
        ("gpuMemory: 16384\ngpus: [{id: ../../etc}]\n", "the id '../../etc'"),
        ("gpuMemory: 16384\ngpus: [{status: {}}]\n", "the id None"),
        ("gpuMemory: 16384\ngpus: [{id: GPU-1}, {id: GPU-1}]\n", "the same id"),
        ("nodePools: {default: {gpuCount: 2}}\n", "the ConfigMap of one node is called topology-NODE"),
        ("!!python/object/apply:os.system [true]\n", "neither JSON nor YAML"),
    ],
)
def test_what_is_no_topology_is_refused_with_the_file_and_the_reason(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "topology.yml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"topology\.yml cannot be used: ") as caught:
        SimulationSpec.parse(str(file))
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.yml cannot be read"):
        read_topology(tmp_path / "missing.yml")


@pytest.mark.parametrize(
    ("text", "uid"), [(AS_YAML, "5f0f0ae8-9d77-4e2c-b1c5-3d7a3e0f9f11"), (AS_JSON, "5f0f")], ids=["yaml", "json"]
)
def test_who_has_a_gpu_is_read_and_one_that_nobody_has_is_missing(text: str, uid: str) -> None:
    assert parse_given(text) == {FIRST: GivenTo("team-a/training", frozenset({uid}))}


def test_a_status_that_the_operator_has_cleared_gives_a_gpu_to_nobody() -> None:
    gpus = [{"id": FIRST, "status": {}}, {"id": SECOND}]
    assert parse_given(json.dumps({"gpuMemory": 1024, "gpus": gpus})) == {}
