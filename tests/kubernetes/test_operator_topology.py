"""Which simulated Gpu a pod has where fake-gpu-operator's device plugin gives it a UUID of no Gpu."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from api_servers import SERVERS
from fake_kubelet import FakeKubelet
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.driver import ClusterSettings, KubernetesCluster
from nls_scheduler.kubernetes_driver.operator_topology import KEY, resolved, topology
from nls_scheduler.kubernetes_driver.pods import PodRecord, pod_record
from objects import CONFIG_MAPS, NODE, NODES, PODS, SOCKET_DIRECTORY, node, pod
from test_driver import ONE, PACE, ZERO, NodeOfTests, do, until

if TYPE_CHECKING:
    from pathlib import Path

    from api_servers import ApiServer

# As `uuid.NewRandom` of its device plugin makes them: without the GPU- of a GPU.
MADE_UP, ANOTHER = "0b1f7a0e-4a53-4d3b-9d0c-7f2f0d1f6a55", "f8d3c1b2-0c4e-4f6a-8b5d-1a2b3c4d5e6f"
TOPOLOGY = f"gpu-operator/topology-{NODE}"


def written(*given: tuple[str, str, str]) -> dict[str, Any]:
    """The ConfigMap: by the Gpu, who has it and the UID of whoever uses it; a name of no Gpu breaks it."""
    gpus: list[dict[str, Any]] = [{"id": uuid, "status": {}} for uuid in (ZERO, ONE)]
    for uuid, name, uid in given:
        namespace, _, of = name.partition("/")
        users = {uid: {"utilization": {"min": 80, "max": 100}, "fbUsed": 16384}} if uid else {}
        by = {"namespace": namespace, "pod": of, "container": "main"}
        next(gpu for gpu in gpus if gpu["id"] == uuid)["status"] = {"allocatedBy": by, "podGpuUsageStatus": users}
    namespace, _, name = TOPOLOGY.partition("/")
    text = json.dumps({"gpuMemory": 16384, "gpuProduct": "SIMULATED", "gpus": gpus, "migStrategy": "mixed"})
    return {"metadata": {"name": name, "namespace": namespace, "uid": "0-topology"}, "data": {KEY: text}}


def record(name: str, uid: str) -> PodRecord:
    found = pod_record(pod(name, gpus=1, uid=uid), SOCKET_DIRECTORY)
    assert found is not None
    return found


def seen(
    *given: tuple[str, str, str], pods: tuple[PodRecord, ...], **told: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    allocations = {f"default/{name}": ids for name, ids in told.items()}
    return resolved(allocations, topology(written(*given)).given, pods, (ZERO, ONE))


def test_a_made_up_device_is_the_gpu_on_which_the_operator_counts_the_pod() -> None:
    train = record("train", "1")
    assert seen((ONE, "default/train", "1"), pods=(train,), train=(MADE_UP,)) == {"default/train": (ONE,)}


def test_what_the_topology_tells_of_a_pod_before_it_with_its_name_is_not_believed() -> None:
    train = record("train", "2")
    assert seen((ONE, "default/train", "1"), pods=(train,), train=(MADE_UP,)) == {"default/train": (MADE_UP,)}


def test_a_reservation_of_which_no_user_is_told_is_known_by_its_name() -> None:
    train = record("train", "2")
    assert seen((ONE, "default/train", ""), pods=(train,), train=(MADE_UP,)) == {"default/train": (ONE,)}


def test_as_long_as_the_topology_does_not_give_one_gpu_for_each_device_their_names_stay() -> None:
    train = record("train", "1")
    both = (MADE_UP, ANOTHER)
    assert seen(pods=(train,), train=(MADE_UP,)) == {"default/train": (MADE_UP,)}
    assert seen((ONE, "default/train", "1"), pods=(train,), train=both) == {"default/train": both}
    given = ((ZERO, "default/train", "1"), (ONE, "default/train", "1"))
    assert seen(*given, pods=(train,), train=both) == {"default/train": (ZERO, ONE)}


def test_a_device_that_is_a_gpu_of_the_node_stays_whatever_the_topology_says() -> None:
    train = record("train", "1")
    assert seen((ONE, "default/train", "1"), pods=(train,), train=(ZERO,)) == {"default/train": (ZERO,)}


def test_a_topology_that_cannot_be_used_says_so_and_gives_nobody_anything() -> None:
    found = topology({"metadata": {"name": "topology-node-a"}, "data": {KEY: "gpus: ["}})
    assert found.given == {}
    assert found.trouble is not None
    assert "topology.yml of topology-node-a cannot be used: it is neither JSON nor YAML" in found.trouble


def test_an_owner_counts_everywhere_until_the_operator_has_said_which_gpu_it_has(tmp_path: Path) -> None:
    """The operator's status updater sees a pod later than the kubelet gives it a device."""

    async def story(server: ApiServer, host: NodeOfTests, kubelet: FakeKubelet) -> None:
        cluster = host.cluster
        assert cluster is not None
        train = await do(lambda: server.put(PODS, pod("train", gpus=1)))
        kubelet.allocations = {"default/train": [MADE_UP]}
        await until(lambda: set(host.owners().values()) >= {(ZERO, ONE)})
        assert MADE_UP in (cluster.trouble or "")
        uid = train["metadata"]["uid"]
        await do(lambda: server.put(CONFIG_MAPS, written((ONE, "default/train", uid))))
        await until(lambda: host.owners() == {uid: (ONE,)})
        assert cluster.trouble is None
        await do(lambda: server.delete(PODS, train))
        kubelet.allocations = {}
        await do(lambda: server.put(CONFIG_MAPS, written()))
        await until(lambda: host.owners() == {})

    async def main() -> None:
        host = NodeOfTests()
        with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
            kubeconfig = str(server.kubeconfig(tmp_path))
            settings = ClusterSettings(NODE, "/run/nls", kubelet.socket, pace=PACE, topology=TOPOLOGY)
            cluster = KubernetesCluster(settings, lambda: KubernetesApi.connect(kubeconfig))
            await cluster.start(host)
            host.cluster = cluster
            try:
                await until(lambda: cluster.not_ready is None)
                await story(server, host, kubelet)
            finally:
                await cluster.close()

    with SERVERS.new() as server:
        server.put(NODES, node({"nvidia.com/gpu.memory": "16384"}))
        server.put(CONFIG_MAPS, written())
        asyncio.run(main())
