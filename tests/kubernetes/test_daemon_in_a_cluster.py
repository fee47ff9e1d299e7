"""`nls up --kubernetes` as a real process: who asks, what its pod may have, and what the cluster's news change."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from objects import CONFIG_MAPS, NODES, PODS, RESOURCE_SLICES, config_map, node, pod, resource_slice, shared_pod
from waiting import wait_until

if TYPE_CHECKING:
    import subprocess

    from cluster_bench import ClusterBench

GIB = 2**30
ASK = """
import asyncio, json, sys
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.errors import Problem

async def main():
    client = await DaemonClient.connect(may_start=False)
    try:
        print(json.dumps(await client.submit(kind="notebook", **json.loads(sys.argv[1]))))
    except Problem as problem:
        print(json.dumps({"problem": problem.detail, "status": problem.status}))

asyncio.run(main())
"""


def ask(cluster: ClusterBench, uid: str | None, **fields: Any) -> dict[str, Any]:
    """What the daemon answers to a notebook in that pod."""
    done: subprocess.CompletedProcess[str] = cluster.run_in(uid, sys.executable, "-c", ASK, json.dumps(fields))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_notebook_gets_what_its_pod_has_and_is_at_home_where_kai_counts_it(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice", "0.25", "0.75", priority_class="train")
    entry = wait_until(lambda: (e := ask(cluster, uid)).get("home") and e)
    assert entry["home"] == [cluster.gpus[0]]
    assert (entry["request_bytes"], entry["limit_bytes"], entry["priority"]) == (4 * GIB, 12 * GIB, 50)


def test_a_notebook_may_ask_for_less_and_not_for_more(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice", "0.5", "0.75")
    less = wait_until(lambda: (e := ask(cluster, uid, request="0.25", limit="0.5")).get("home") and e)
    assert (less["request_bytes"], less["limit_bytes"]) == (4 * GIB, 8 * GIB)
    assert "This pod has 8 GiB" in ask(cluster, uid, request="0.6")["problem"]
    assert "limit is 12 GiB" in ask(cluster, uid, limit="1.0")["problem"]


def test_what_a_notebook_says_of_its_priority_does_not_count(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice", priority_class="train")
    assert wait_until(lambda: ask(cluster, uid, priority=10**6).get("priority")) == 50


def test_a_pod_that_asks_for_no_gpu_gets_none(cluster: ClusterBench) -> None:
    uid = cluster.put(pod("idle", managed=True))
    refused = wait_until(lambda: (e := ask(cluster, uid)) and "gpu-fraction" in e.get("problem", "") and e)
    assert refused["status"] == 409


def test_a_pod_that_is_not_known_is_refused(cluster: ClusterBench) -> None:
    refused = ask(cluster, "00000000-1111-2222-3333-444444444444")
    assert (refused["status"], "not known" in refused["problem"]) == (403, True)


def test_a_process_in_no_pod_may_look_and_may_have_no_gpu(cluster: ClusterBench) -> None:
    assert "for pods" in ask(cluster, None)["problem"]
    assert cluster.daemon.status()["workloads"] == []


def test_root_in_a_pod_is_no_administrator(cluster: ClusterBench) -> None:
    uid = cluster.book("alice")
    wait_until(lambda: "not known" not in cluster.run_in(uid, *_nls("status")).stderr)
    told = json.loads(cluster.run_in(uid, *_nls("status", "--json")).stdout)
    assert told["administrator"] is False


def test_whoever_is_in_the_daemon_s_own_pod_may_what_its_user_may_on_the_node(cluster: ClusterBench) -> None:
    own, other = cluster.put(pod("nls-scheduler-x", namespace="nls-system")), cluster.book("alice")
    assert cluster.daemon.process is not None
    cluster.cgroups.move(cluster.daemon.process.pid, own)
    try:
        wait_until(lambda: "not known" not in cluster.run_in(other, *_nls("status")).stderr)
        refused = cluster.run_in(other, *_nls("gpu", "return", "0"))
        assert refused.returncode != 0
        assert "Only administrators" in refused.stderr
        done = cluster.run_in(own, *_nls("gpu", "return", "0"))
        assert done.returncode == 0, done.stderr
        assert json.loads(cluster.run_in(own, *_nls("status", "--json")).stdout)["administrator"] is True
        assert "for pods" in ask(cluster, own)["problem"]
    finally:
        cluster.cgroups.release(cluster.daemon.process.pid)


def _nls(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "nls_scheduler", *arguments]


def test_a_stranger_s_part_of_a_gpu_is_taken_from_what_can_be_borrowed(cluster: ClusterBench) -> None:
    cluster.reserve("g1", 1)
    cluster.put(shared_pod("train", "0.25", "g1"))
    wait_until(lambda: cluster.gpu(1)["unplaced_bytes"] == 4 * GIB)


def test_a_device_to_come_is_kept_free_until_the_kubelet_gives_another(cluster: ClusterBench) -> None:
    written = pod("train", gpus=1, scheduler="default-scheduler")
    cluster.put(written)
    wait_until(lambda: cluster.gpu(0)["unplaced_bytes"] == 16 * GIB)
    cluster.kubelet.allocations = {"default/train": [cluster.gpus[1]]}
    wait_until(lambda: cluster.gpu(1)["unplaced_bytes"] == 16 * GIB and cluster.gpu(0)["unplaced_bytes"] == 0)
    cluster.kubelet.allocations = {}
    cluster.api.delete(PODS, written)
    wait_until(lambda: cluster.gpu(1)["unplaced_bytes"] == 0)


def test_a_dra_claim_is_an_owner(cluster: ClusterBench) -> None:
    # By minor numbers, which are in another order than NVML's indexes here.
    cluster.api.put(RESOURCE_SLICES, resource_slice({"gpu-0": cluster.gpus[1], "gpu-1": cluster.gpus[0]}))
    cluster.kubelet.claims = {"default/train": ["gpu-0"]}
    wait_until(lambda: [cluster.gpu(n)["unplaced_bytes"] for n in (0, 1)] == [0, 16 * GIB])
    assert cluster.daemon.status()["message"] is None


def test_a_device_by_a_name_that_no_gpu_has_is_some_gpu_and_the_status_says_so(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice")
    wait_until(lambda: ask(cluster, uid).get("home"))
    cluster.kubelet.allocations = {"default/train": ["GPU-by-another-name"]}
    wait_until(lambda: cluster.gpu(1)["unplaced_bytes"] == 16 * GIB)
    assert cluster.gpu(0)["unplaced_bytes"] == 0
    assert "default/train GPU-by-another-name" in cluster.daemon.status()["message"]


def test_a_cordoned_node_says_so_and_is_ready_all_the_same(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice")
    wait_until(lambda: ask(cluster, uid).get("home"))
    cluster.api.put(NODES, node({"nvidia.com/gpu.memory": "16384"}, cordoned=True))
    wait_until(lambda: "cordoned" in (cluster.daemon.status()["message"] or ""))
    assert ask(cluster, uid)["home"] == [cluster.gpus[0]]
    assert cluster.ready()


def test_mistakes_in_a_pod_become_events_of_the_pod(cluster: ClusterBench) -> None:
    cluster.put(shared_pod("odd", "1.5", "g0"))
    event = wait_until(lambda: next(iter(cluster.events("GpuRequestInvalid")), None))
    assert event["involvedObject"]["name"] == "odd"
    assert "1.5" in event["message"]
    assert event["type"] == "Warning"


@pytest.mark.faults
def test_the_last_known_state_stays_while_the_api_server_is_away(cluster: ClusterBench) -> None:
    cluster.reserve("g0", 0)
    uid = cluster.book("alice")
    wait_until(lambda: ask(cluster, uid).get("home"))
    cluster.api.faults.refused[PODS] = 403
    cluster.api.end_watches()
    wait_until(lambda: "grant list and watch" in (cluster.daemon.status()["message"] or ""))
    assert ask(cluster, uid)["home"] == [cluster.gpus[0]]
    assert cluster.metric('nls_kubernetes_age_seconds{resource="pods"}') > 0
    assert cluster.ready()
    cluster.api.faults.refused.clear()
    wait_until(lambda: cluster.daemon.status()["message"] is None, 40)


@pytest.mark.faults
def test_what_was_never_heard_grows_old_as_well(cluster: ClusterBench) -> None:
    cluster.api.faults.refused[PODS] = 403
    cluster.kubelet.failing = True
    cluster.daemon.kill()
    cluster.daemon.start()
    for resource in ("pods", "podresources"):
        name = f'nls_kubernetes_age_seconds{{resource="{resource}"}}'
        first = wait_until(lambda name=name: cluster.metric(name))
        wait_until(lambda name=name, first=first: cluster.metric(name) > first)
    assert cluster.metric('nls_kubernetes_age_seconds{resource="nodes"}') == 0


@pytest.mark.long("pods and a Kubernetes daemon in rare orders")
def test_the_kubelet_is_away_and_the_status_says_so(cluster: ClusterBench) -> None:
    cluster.kubelet.failing = True
    wait_until(lambda: "the kubelet restarts" in (cluster.daemon.status()["message"] or ""))


@pytest.mark.parametrize(("labels", "cap"), [({"kai.scheduler/node-pool": "a100"}, 3), ({}, 4)])
def test_the_policy_of_the_node_s_pool_holds(cluster: ClusterBench, labels: dict[str, str], cap: int) -> None:
    policy = {"max_workloads_per_gpu": 4, "pools": {"kai.scheduler/node-pool=a100": {"max_workloads_per_gpu": 3}}}
    cluster.api.put(NODES, node(labels))
    cluster.api.put(CONFIG_MAPS, config_map(json.dumps(policy)))
    pool = "kai.scheduler/node-pool=a100" if labels else "default"
    wait_until(lambda: f"this node is in the pool {pool}: max_workloads_per_gpu = {cap}" in cluster.daemon.log)


def test_a_policy_that_cannot_be_used_is_refused_and_the_next_one_is_taken(cluster: ClusterBench) -> None:
    def message() -> str:
        return cluster.daemon.status()["message"] or ""

    cluster.api.put(CONFIG_MAPS, config_map('{"oversubscribe": 2.0}'))
    wait_until(lambda: "oversubscribe is 1.0" in message())
    cluster.api.put(CONFIG_MAPS, config_map(json.dumps({"reclaim_deadline_s": 0.1})))
    wait_until(lambda: "contradicts reclaim_deadline_s" in message())
    cluster.api.put(CONFIG_MAPS, config_map("{"))
    wait_until(lambda: "is not JSON" in message())
    cluster.api.put(CONFIG_MAPS, config_map("{}"))
    wait_until(lambda: not message())


def test_without_a_node_name_or_an_api_server_it_says_what_to_do(cluster: ClusterBench) -> None:
    no_name = cluster.daemon.nls("--socket", str(cluster.daemon.directory / "x.sock"), "up", "--kubernetes")
    assert "NODE_NAME" in no_name.stderr
    options = ["up", "--kubernetes", "--node-name", "n", "--kubeconfig", "/nowhere"]
    no_server = cluster.daemon.nls("--socket", str(cluster.daemon.directory / "x.sock"), *options)
    assert "No Kubernetes API server" in no_server.stderr
    assert (no_name.returncode, no_server.returncode) == (2, 2)


def test_simulated_gpus_of_the_environment_may_have_an_operator_s_topology(cluster: ClusterBench) -> None:
    options = ["up", "--kubernetes", "--node-name", "n", "--kubeconfig", "/nowhere", "--topology", "a/b"]
    daemon = cluster.daemon
    for simulated, says in (("", "it goes with --simulate"), ("1x1GiB", "No Kubernetes API server")):
        daemon.environment["NLS_SIMULATE"] = simulated
        assert says in daemon.nls("--socket", str(daemon.directory / "x.sock"), *options).stderr
