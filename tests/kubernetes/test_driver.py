"""The driver in one process with a simulated node: what goes on where the API server refuses, is away or is wrong."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from daemon_process import ROOT
from driven_node import ONE, PACE, ZERO, NodeOfTests, do, fail, run, until
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.simulator import GIB
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.kubernetes_driver import bind_requests, held_starts, kubelet, reflector
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.first_list import UNKNOWN
from nls_scheduler.kubernetes_driver.overfull import overfull
from nls_scheduler.kubernetes_driver.pace import Pace
from nls_scheduler.units.clock import awake_s, boottime_s
from objects import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    bind_request,
    config_map,
    mirror_pod,
    node,
    pod,
    reservation,
    resource_claim,
    resource_slice,
    result,
    shared_pod,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from api_servers import ApiServer
    from nls_scheduler.kubernetes_driver.bind_requests import BindRequest
    from nls_scheduler.kubernetes_driver.driver import KubernetesCluster


@pytest.mark.parametrize("refused", [BIND_REQUESTS, NODES])
def test_one_kind_that_rbac_refuses_is_told_and_the_others_go_on(
    tmp_path: Path, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    def before(server: ApiServer) -> None:
        server.refuse(refused)
        server.put(PODS, reservation("g1", ONE))
        server.put(PODS, shared_pod("train", "0.5", "g1"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: (ONE,) in host.owners().values() and UNKNOWN not in host.owners())
        assert cluster.not_ready is None
        await until(lambda: cluster.trouble)
        assert refused in str(cluster.trouble)
        assert "grant list and watch" in caplog.text
        await do(lambda: server.permit(refused))
        await until(lambda: refused not in str(cluster.trouble))
        await do(lambda: server.put(PODS, pod("more", gpus=1)))
        await until(lambda: len(host.owners()) == 2)

    with caplog.at_level(logging.WARNING):
        run(tmp_path, story, before=before)


@pytest.mark.faults
@pytest.mark.faults
def test_events_that_rbac_refuses_are_told_in_the_status(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        server.refuse("/api/v1/namespaces/default/events")
        server.put(PODS, pod("bad", annotations={"gpu-fraction": "half"}))

    async def story(server: ApiServer, cluster: KubernetesCluster, _: NodeOfTests) -> None:
        await until(lambda: "Events are refused" in (cluster.trouble or ""))
        assert cluster.not_ready is None
        server.permit("/api/v1/namespaces/default/events")
        await until(lambda: cluster.trouble is None)
        assert [event["reason"] for event in server.created] == ["GpuRequestInvalid"]

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, before=before)


def test_until_the_first_list_nobody_s_gpus_are_kept_back_and_its_age_is_told(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        assert isinstance(server, FakeApiServer)
        await until(lambda: host.owners() == {UNKNOWN: (ZERO, ONE)})
        host.submit("pod-1", 8, ZERO)
        await until(lambda: host.owners() == {UNKNOWN: (ONE,)})
        assert host.state.workloads[WorkloadId("pod-1")].current == (ZERO,)
        told = re.search(r"knew (\d+) s ago stays", str(cluster.not_ready))
        assert told is not None
        assert 60 <= int(told[1]) < 120
        server.faults.refused = {}
        await until(lambda: host.owners() == {} and cluster.not_ready is None)

    run(tmp_path, story, before=fail, recovered_at=awake_s() - 60.2)


def test_what_is_kept_back_for_nobody_knows_whom_fills_no_home() -> None:
    """Its pod read that the cluster's scheduler counts more than there is, which knows of no such part."""
    host = NodeOfTests()
    for owner, over_full in ((UNKNOWN, set()), ("somebody", {ZERO})):
        host.apply_or_tell(ev.GpusClaimed(awake_s(), Claims((Owner(owner, "a pod", (ZERO,)),))))
        host.submit(f"pod beside {owner}", 1, ZERO)
        assert overfull(host.state).keys() == over_full


def test_an_over_full_home_is_told_once_in_the_log_and_to_the_pod_that_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def waits(server: ApiServer) -> int:
        return sum(event["reason"] == "GpuHomeOvercommitted" for event in server.created)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(PODS, reservation("g0", ZERO)))
        first, last = [
            (await do(lambda name=name: server.put(PODS, shared_pod(name, "0.75", "g0", managed=True))))["metadata"]
            for name in ("first", "last")
        ]
        await until(lambda: len(cluster._pods.records) == 3)
        host.submit(first["uid"], 12, ZERO)
        host.submit(last["uid"], 12, ZERO)
        for _ in range(3):
            host.apply_or_tell(ev.TimerFired(awake_s()))
        await until(lambda: cluster._events.written == 1)
        assert await do(lambda: waits(server)) == 1
        (event,) = [e for e in await do(lambda: server.created) if e["reason"] == "GpuHomeOvercommitted"]
        assert event["involvedObject"]["uid"] == last["uid"]
        assert "24 GiB on GPU 0" in event["message"]
        assert caplog.text.count("home_overcommitted") == 1

    with caplog.at_level(logging.WARNING):
        run(tmp_path, story)


def test_a_node_that_is_relabelled_has_the_rules_of_its_new_pool(tmp_path: Path) -> None:
    text = '{"pools": {"team=a": {"max_workloads_per_gpu": 2}, "team=b": {"enabled": false}}}'

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(NODES, node({"team": "a"})))
        await until(lambda: host.used == {"max_workloads_per_gpu": 2})
        await do(lambda: server.put(NODES, node({"team": "b"})))
        await until(lambda: host.used == {"placement": "binpack"})
        await do(lambda: server.put(NODES, node()))
        await until(lambda: host.used == {})

    run(tmp_path, story, before=lambda server: server.put(CONFIG_MAPS, config_map(text)) and None)


@pytest.mark.faults
def test_what_a_gpu_counts_for_stays_known_while_its_label_is_away(tmp_path: Path) -> None:
    """Whoever writes such labels takes them away for a moment at each update."""

    def before(server: ApiServer) -> None:
        server.put(NODES, node({"nvidia.com/gpu.memory": "20480"}))
        server.put(PODS, reservation("g1", ONE))
        half = pod("train", annotations={"gpu-memory": "10200"}, labels={"runai-gpu-group": "g1"}, uid="train")
        server.put(PODS, half)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        def parts() -> list[int]:
            return [owner.bytes for owner in host.state.gpus[ONE].owners]

        await until(lambda: parts() == [8 * GIB])
        await do(lambda: server.put(NODES, node()))
        await until(lambda: not cluster._node.labels)
        await do(lambda: server.put(PODS, pod("another", gpus=1, uid="another")))
        await until(lambda: "another" in host.owners())
        assert parts() == [8 * GIB]

    run(tmp_path, story, before=before)


def test_the_unit_of_gpu_memory_is_the_cluster_s(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        server.put(PODS, reservation("g0", ZERO))
        server.put(PODS, pod("train", annotations={"gpu-memory": "8000"}, labels={"runai-gpu-group": "g0"}))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        def owned() -> int:
            return sum(owner.bytes for owner in host.state.gpus[ZERO].owners)

        await until(lambda: owned() == 8000 * 2**20)
        await do(lambda: server.put(CONFIG_MAPS, config_map('{"gpu_memory_unit": "MB"}')))
        await until(lambda: owned() == 8000 * 10**6)
        await do(lambda: server.put(CONFIG_MAPS, config_map('{"gpu_memory_unit": "GB"}')))
        await until(lambda: "gpu_memory_unit is MiB or MB" in str(cluster.trouble))

    run(tmp_path, story, before=before)


def test_a_static_pod_stays_the_same_when_its_mirror_is_made_again(tmp_path: Path) -> None:
    static_uid = "8f6a44fc62e8cb075753c843896568ca"

    def mirror() -> dict[str, Any]:
        return mirror_pod("monitor-node-a", static_uid, gpus=1)

    def before(server: ApiServer) -> None:
        server.put(PODS, mirror())

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {static_uid: (ONE,)})
        await do(lambda: server.delete(PODS, mirror()))
        await until(lambda: not cluster._knows(static_uid))
        await do(lambda: server.put(PODS, mirror()))
        await until(lambda: cluster._knows(static_uid))
        await until(lambda: host.owners() == {static_uid: (ONE,)})

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.allocations = {"default/monitor-node-a": [ONE]}
        run(tmp_path, story, before=before)


def book_and_train(server: ApiServer) -> None:
    server.put(PODS, pod("book", gpus=1, managed=True, uid="book", scheduler="default-scheduler"))
    server.put(PODS, pod("train", gpus=1, uid="train", scheduler="default-scheduler"))


@pytest.mark.faults
def test_a_kubelet_that_has_just_started_and_knows_no_pod_yet_takes_nothing_from_anybody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "_QUIET_S", 0.01)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"train": (ONE,)} and not cluster._lasting.wants_word)
        host.submit("book", 16, ZERO)
        fake.allocations = {}
        await until(lambda: cluster._kubelet.allocations == {})
        await do(lambda: server.put(PODS, pod("another", gpus=1, uid="another", scheduler="default-scheduler")))
        await until(lambda: "another" in host.owners())
        assert host.owners() == {"train": (ONE,), "another": ()}
        assert host.state.workloads[WorkloadId("book")].home == (ZERO,)
        await do(lambda: server.delete(PODS, pod("train")))
        await until(lambda: "train" not in host.owners())

    with FakeKubelet(tmp_path / "kubelet.sock") as fake:
        fake.allocations = {"default/book": [ZERO], "default/train": [ONE]}
        run(tmp_path, story, before=book_and_train)


def test_who_was_given_one_gpu_for_two_devices_waits_for_no_other(tmp_path: Path) -> None:
    async def story(_: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"train": (ONE,)} and not cluster._lasting.wants_word)
        assert [owner.devices_to_come for owner in host.state.claims.owners] == [0]
        fields, home = cluster.allot({}, Peer(1000, None, -1, administrator=False, tenant="book"), None)
        assert (fields["gpus"], home) == (1, (ZERO,))

    def before(server: ApiServer) -> None:
        server.put(PODS, pod("book", gpus=2, managed=True, uid="book", scheduler="default-scheduler"))
        server.put(PODS, pod("train", gpus=2, uid="train", scheduler="default-scheduler"))

    with FakeKubelet(tmp_path / "kubelet.sock") as fake:
        fake.allocations = {"default/book": [f"{ZERO}::0", f"{ZERO}::1"], "default/train": [f"{ONE}::0", f"{ONE}::1"]}
        run(tmp_path, story, before=before)


@pytest.mark.faults
def test_a_pod_that_is_made_again_under_its_name_has_nothing_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubelet, "_QUIET_S", 0.01)
    monkeypatch.setattr(kubelet, "_FAILING_S", 0.2)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"train": (ONE,)})
        fake.failing = True
        await until(lambda: cluster._kubelet.trouble)
        await do(lambda: server.delete(PODS, pod("train")))
        await do(lambda: server.put(PODS, pod("train", uid="again")))
        await until(lambda: "again" in cluster._pods.records)
        fake.allocations, fake.failing = {}, False
        await until(lambda: cluster._kubelet.allocations == {})
        await until(lambda: host.owners() == {})

    with FakeKubelet(tmp_path / "kubelet.sock") as fake:
        fake.allocations = {"default/train": [ONE]}
        run(tmp_path, story, before=lambda server: server.put(PODS, pod("train", gpus=1, uid="train")))


@pytest.mark.faults
def test_a_home_that_nobody_knows_any_more_stays_what_it_was(tmp_path: Path) -> None:
    async def story(_: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        host.submit("book", 16, ZERO)
        await until(lambda: cluster._view is not None)
        assert host.state.workloads[WorkloadId("book")].home == (ZERO,)

    run(tmp_path, story, before=book_and_train)


def test_a_pod_that_vanishes_while_its_notebook_runs_changes_nothing_for_the_others(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(PODS, reservation("g0", ZERO)))
        book = shared_pod("book", "0.5", "g0", managed=True)
        uid = (await do(lambda: server.put(PODS, book)))["metadata"]["uid"]
        await do(lambda: server.put(PODS, shared_pod("other", "0.5", "g0", managed=True)))
        await until(lambda: uid in cluster._pods.records and len(cluster._pods.records) == 3)
        host.submit(uid, 8, ZERO)
        await until(lambda: host.state.workloads[WorkloadId(uid)].current == (ZERO,))
        before = host.state.workloads[WorkloadId(uid)]
        await do(lambda: server.delete(PODS, book))
        await until(lambda: uid not in cluster._pods.records)
        cluster.told({"event": "moved", "name": "book", "reason": "x", "from": None, "to": None}, uid)
        after = host.state.workloads[WorkloadId(uid)]
        assert (after.home, after.current, after.given_home) == (before.home, before.current, before.given_home)
        assert (cluster.trouble is None or "kubelet" in cluster.trouble, cluster.not_ready) == (True, None)

    run(tmp_path, story)


QUIET = Pace(spread_s=0.0, beat_s=0.05, answer_s=0.2)
"""Watches that outlast a test, so that nothing but the heartbeat says that they are dead."""


@pytest.mark.faults
class Listed(NamedTuple):
    """A list of pods that was answered: when it was asked for, and how many there were."""

    asked_at: float
    pods: int


def lists_of_pods(monkeypatch: pytest.MonkeyPatch) -> list[Listed]:
    """Gets each one."""
    answered: list[Listed] = []
    ask = KubernetesApi.list

    async def listed(api: KubernetesApi, path: str, params: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        asked_at, (objects, version) = boottime_s(), await ask(api, path, params)
        if path == PODS:
            answered.append(Listed(asked_at, len(objects)))
        return objects, version

    monkeypatch.setattr(KubernetesApi, "list", listed)
    return answered


def test_a_server_that_freezes_with_its_watches_open_is_noticed_and_so_is_its_coming_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = lists_of_pods(monkeypatch)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        assert isinstance(server, FakeApiServer)
        followed = (cluster._pods, cluster._nodes, cluster._bind_requests)
        await until(lambda: {reflector.age_s for reflector in followed} == {0.0})
        server.faults.frozen = True
        await until(lambda: (cluster._pods.age_s or 0.0) > 0.0 and (cluster._bind_requests.age_s or 0.0) > 0.0)
        age_s = cluster._pods.age_s
        assert age_s is not None
        assert age_s <= boottime_s() - answered[-1].asked_at
        assert "stopped answering" in str(cluster.trouble)
        assert cluster.not_ready is None, "the last known state stays"
        server.faults.frozen = False
        await until(lambda: cluster._pods.age_s == 0.0)
        assert cluster._pods.trouble is None

    run(tmp_path, story, pace=QUIET)


def test_whether_the_server_answers_is_asked_without_being_told_of_any_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes from an API server's cache (`resourceVersion=0`) has no limit: `computeListLimit` of its storage."""
    answered = lists_of_pods(monkeypatch)

    def before(server: ApiServer) -> None:
        for number in range(3):
            server.put(PODS, pod(f"any-{number}"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: len(answered) >= 3)
        assert (answered[0].pods, {each.pods for each in answered[1:]}) == (3, {0})
        assert cluster._pods.age_s == 0.0

    run(tmp_path, story, before=before, pace=QUIET)


def test_a_frozen_server_is_noticed_within_15_s() -> None:
    assert Pace().beat_s + Pace().answer_s <= 15.0


def test_a_node_without_a_driver_is_not_ready(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: cluster.not_ready is None)
        host.apply_or_tell(ev.GpusDiscovered(awake_s(), ()))
        assert "sees no GPU" in str(cluster.not_ready)

    run(tmp_path, story)


def test_a_node_is_not_told_what_kai_scheduler_decides_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAI labels each of its BindRequests with its node (`createBindRequest`)."""
    told: set[str] = set()

    as_record = bind_requests.bind_request

    def read(written: Mapping[str, Any]) -> BindRequest | None:
        told.add(written["metadata"]["name"])
        return as_record(written)

    def before(server: ApiServer) -> None:
        server.put(BIND_REQUESTS, bind_request("listed"))
        server.put(BIND_REQUESTS, bind_request("listed-elsewhere", node="node-b"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: told)
        await do(lambda: server.put(BIND_REQUESTS, bind_request("told-elsewhere", node="node-b")))
        await do(lambda: server.put(BIND_REQUESTS, bind_request("told")))
        await until(lambda: len(cluster._bind_requests.records) == 2)
        assert told == {"listed", "told"}

    monkeypatch.setattr(bind_requests, "bind_request", read)
    run(tmp_path, story, before=before)


def test_reservations_in_a_namespace_of_another_name_give_homes_once_it_is_named(tmp_path: Path) -> None:
    """KAI's `spec.binder.resourceReservation.namespace` names it; until then the pod is told."""
    renamed = reservation("g0", ZERO, namespace="gpu-holders")

    async def unnamed(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(PODS, renamed))
        await until(lambda: server.created)
        (event,) = server.created
        assert event["reason"] == "GpuReservationElsewhere"
        assert "--reservation-namespace=gpu-holders" in event["message"]

    async def named(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(PODS, renamed))
        uid = (await do(lambda: server.put(PODS, shared_pod("book", "0.5", "g0", managed=True))))["metadata"]["uid"]
        await until(lambda: cluster._view is not None and cluster._view.homes.get(uid) == (ZERO,))
        await until(lambda: host.owners() == {})
        assert not server.created

    run(tmp_path, unnamed)
    run(tmp_path, named, reservation_namespace="gpu-holders")


LATE = replace(PACE, spread_s=3600.0)
"""Nobody asks for BindRequests in a test's time."""


def test_this_node_s_pods_are_known_at_once_however_long_the_cluster_s_requests_are_spread(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        server.put(PODS, reservation("g1", ONE))
        server.put(PODS, shared_pod("train", "0.5", "g1"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: (ONE,) in host.owners().values())
        assert host.owners()[UNKNOWN] == (ZERO,)
        assert "BindRequests" in str(cluster.not_ready)
        assert "No further GPU is lent" in str(cluster.not_ready)
        assert cluster.vacating.claims.total() == 0, "nobody has claimed anything since the start"

    run(tmp_path, story, before=before, pace=LATE)


def test_a_notebook_of_a_known_pod_gets_its_home_before_the_cluster_s_requests_are_known(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await do(lambda: server.put(PODS, reservation("g0", ZERO)))
        uid = (await do(lambda: server.put(PODS, shared_pod("book", "0.5", "g0", managed=True))))["metadata"]["uid"]
        await until(lambda: cluster._view is not None and cluster._view.homes.get(uid) == (ZERO,))
        assert cluster.not_ready is not None
        home = cluster.allot({}, Peer(1000, None, -1, administrator=False, tenant=uid), None)[1]
        host.submit(uid, 8, *home)
        await until(lambda: host.owners() == {UNKNOWN: (ONE,)})
        assert host.state.workloads[WorkloadId(uid)].current == (ZERO,)
        assert not server.created, "nobody's home is over-full for want of knowledge"

    run(tmp_path, story, pace=LATE)


@pytest.mark.faults
def test_the_kubelet_tells_of_an_owner_while_the_api_server_is_away(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"allocated:default/train": (ONE,), UNKNOWN: (ZERO,)})
        assert cluster._view is None

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.allocations = {"default/train": [ONE]}
        run(tmp_path, story, before=fail)


MONITORING = ROOT / "node_scheduler" / "deploy" / "kubernetes" / "components" / "monitoring"


def alerts(host: NodeOfTests, name: str) -> set[str]:
    """Of which resources an alert's expression, as it is installed, is true of what the daemon tells now."""
    rules = yaml.safe_load((MONITORING / "alert_rules.yaml").read_text(encoding="utf-8"))
    (rule,) = (rule for group in rules["groups"] for rule in group["rules"] if rule["alert"] == name)
    compared = promql_parser.parse(rule["expr"])
    selector = compared.lhs.expr
    (matcher,) = selector.matchers.matchers
    assert (str(compared.op), matcher.op) == (">", promql_parser.MatchOp.NotEqual)
    return {
        sample.labels["resource"]
        for family in text_string_to_metric_families(host.metrics.text().decode())
        for sample in family.samples
        if sample.name == selector.name
        and sample.labels[matcher.name] != matcher.value
        and sample.value > compared.rhs.val
    }


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How old what is known is, `seconds` from now."""
    monkeypatch.setattr(reflector, "boottime_s", lambda: boottime_s() + seconds)
    monkeypatch.setattr(kubelet, "awake_s", lambda: awake_s() + seconds)


@pytest.mark.faults
@pytest.mark.parametrize("refused", [(PODS,), (PODS, NODES)], ids=["pods", "pods and nodes"])
def test_what_was_never_heard_grows_old_and_the_alert_fires(
    refused: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        del server
        heard = [each for each in (cluster._pods, cluster._nodes) if each._path not in refused]
        await until(lambda: all(each.age_s == 0.0 for each in heard))
        await until(lambda: "grant list and watch" in str(cluster.trouble) and cluster._bind_requests.settled)
        assert alerts(host, "NlsClusterStateOld") == set()
        later(monkeypatch, 300.0)
        wanted = {PODS: "pods", NODES: "nodes"}
        assert alerts(host, "NlsClusterStateOld") == {"podresources"} | {wanted[path] for path in refused}

    def before(server: ApiServer) -> None:
        for path in refused:
            server.refuse(path)

    run(tmp_path, story, before=before)  # and no kubelet is there


@pytest.mark.faults
def test_what_a_cluster_does_not_have_is_not_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        del server
        await until(lambda: cluster.not_ready is None and cluster._bind_requests.settled)
        later(monkeypatch, 300.0)
        assert 'nls_kubernetes_age_seconds{resource="bindrequests"}' not in host.metrics.text().decode()

    def without_bind_requests(server: ApiServer) -> None:
        assert isinstance(server, FakeApiServer)
        server.remove_kind(BIND_REQUESTS)

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, before=without_bind_requests)


def claiming(name: str, uid: str) -> dict[str, Any]:
    return pod(name, scheduler="default-scheduler", claim=name, uid=uid)


@pytest.mark.faults
def test_what_a_claim_gives_is_known_without_the_kubelet_and_who_only_looks_owns_nothing(tmp_path: Path) -> None:
    shares = [result("gpu-1", consumedCapacity={"memory": "6Gi"})]
    looks = [result(name, adminAccess=True) for name in ("gpu-0", "gpu-1")]

    def before(server: ApiServer) -> None:
        server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ZERO, "gpu-1": ONE}))
        server.put(RESOURCE_CLAIMS, resource_claim("train", *shares, pods=("1",)))
        server.put(RESOURCE_CLAIMS, resource_claim("exporter", *looks, pods=("2",)))
        server.put(PODS, claiming("train", "1"))
        server.put(PODS, claiming("exporter", "2"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        assert isinstance(server, FakeApiServer)
        claims = "GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        # A pod whose claim has not been read owns nothing either.
        await until(lambda: server.requests[claims] >= 2 and cluster._kubelet.allocations)
        await until(lambda: host.owners() == {"1": (ONE,), "2": ()})
        assert [owner.bytes for owner in host.state.gpus[ONE].owners] == [6 * GIB]
        asked = {path: times for (_, path), times in server.requests.items() if "resourceclaims" in path}
        assert asked == {claims[1]: 2}, "each claim was read once"

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.claims = {"default/exporter": ["gpu-0", "gpu-1"]}
        run(tmp_path, story, before=before)


@pytest.mark.faults
def test_what_a_claim_gives_stays_known_while_its_driver_is_away(tmp_path: Path) -> None:
    published = resource_slice({"gpu-0": ZERO, "gpu-1": ONE})

    def before(server: ApiServer) -> None:
        server.put(RESOURCE_SLICES, published)
        server.put(RESOURCE_CLAIMS, resource_claim("train", result("gpu-1"), pods=("1",)))
        server.put(PODS, claiming("train", "1"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"1": (ONE,)})
        # The kubelet does so with those of a driver that has not registered again within 30 s.
        await do(lambda: server.delete(RESOURCE_SLICES, published))
        await until(lambda: not cluster._dynamic._slices.records)
        await do(lambda: server.put(PODS, pod("another", gpus=1, uid="2", scheduler="default-scheduler")))
        await until(lambda: "2" in host.owners())
        assert host.owners() == {"1": (ONE,), "2": ()}
        await do(lambda: server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ONE, "gpu-1": ZERO})))
        await until(lambda: host.owners() == {"1": (ZERO,), "2": ()})

    run(tmp_path, story, before=before)


def test_what_kai_is_about_to_give_to_a_claim_is_known_before_the_pod_is_bound(tmp_path: Path) -> None:
    decision = bind_request("train", count=0)
    allocation = {"devices": {"results": [result("gpu-1", consumedCapacity={"memory": "6Gi"})]}}
    decision["spec"]["resourceClaimAllocations"] = [{"name": "gpu", "allocation": allocation}]

    def before(server: ApiServer) -> None:
        server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ZERO, "gpu-1": ONE}))
        server.put(BIND_REQUESTS, decision)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        del server, cluster
        await until(lambda: [owner.bytes for owner in host.state.gpus[ONE].owners] == [6 * GIB])
        assert host.state.gpus[ZERO].owners == ()

    run(tmp_path, story, before=before)


def test_a_start_is_held_while_nobody_knows_which_gpu_a_claim_s_device_is(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        asks = Peer(65532, None, -1, administrator=False, tenant="1")

        def held() -> bool:
            return not cluster.may_start(asks, gives_up=False)["vacated"]

        await until(lambda: cluster.not_ready is None and cluster._view and cluster._view.somewhere)
        held()
        asked_at = cluster._kubelet.heard_at or 0.0
        await until(lambda: (cluster._kubelet.heard_at or 0.0) > asked_at)
        assert held()
        await do(lambda: server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ZERO})))
        await until(lambda: host.owners() == {"1": (ZERO,)} and not held())

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.claims = {"default/train": ["gpu-0"]}
        run(tmp_path, story, before=lambda server: server.put(PODS, claiming("train", "1")))


@pytest.mark.faults
def test_a_start_is_held_at_the_very_moment_when_a_claim_has_been_read(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, _: NodeOfTests) -> None:
        asks = Peer(65532, None, -1, administrator=False, tenant="1")
        vacated: list[bool] = []
        claims = cluster._dynamic._claims
        changed = claims._changed

        def ask_at_once() -> None:
            changed()
            vacated.append(cluster.may_start(asks, gives_up=False)["vacated"])

        claims._changed = ask_at_once
        await until(lambda: cluster.not_ready is None and cluster._dynamic._slices.settled)
        cluster._held_starts._starts["1"] = held_starts._Start(since=0.0)  # the kubelet has been heard since
        await do(lambda: server.put(PODS, claiming("train", "1")))
        await until(lambda: vacated)
        assert vacated[0] is False

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.claims = {"default/train": ["gpu-0"]}
        run(tmp_path, story)


@pytest.mark.faults
def test_a_claim_that_is_reserved_for_its_pod_later_is_read_again(tmp_path: Path) -> None:
    def before(server: ApiServer) -> None:
        server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ZERO}))
        server.put(PODS, claiming("train", "1"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"1": ()})
        await do(lambda: server.put(RESOURCE_CLAIMS, resource_claim("train", result("gpu-0"), pods=("1",))))
        await until(lambda: host.owners() == {"1": (ZERO,)})

    run(tmp_path, story, before=before)


@pytest.mark.faults
def test_claims_that_rbac_refuses_are_told_and_the_kubelet_s_word_holds(tmp_path: Path) -> None:
    refused = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"

    def before(server: ApiServer) -> None:
        server.refuse(refused)
        server.put(RESOURCE_SLICES, resource_slice({"gpu-0": ZERO}))
        server.put(RESOURCE_CLAIMS, resource_claim("train", result("gpu-0", adminAccess=True), pods=("1",)))
        server.put(PODS, claiming("train", "1"))

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.owners() == {"1": (ZERO,)} and "resourceclaims" in str(cluster.trouble))
        await do(lambda: server.permit(refused))
        await until(lambda: host.owners() == {"1": ()} and cluster.trouble is None)

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.claims = {"default/train": ["gpu-0"]}
        run(tmp_path, story, before=before)


@pytest.mark.faults
def test_nothing_is_kept_for_a_decision_whose_kind_is_away_and_it_is_seen_again_soon(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        def coming() -> dict[str, int]:
            return {owner.name: owner.devices_to_come for owner in host.state.claims.owners}

        assert isinstance(server, FakeApiServer)
        await do(lambda: server.put(BIND_REQUESTS, bind_request("train", count=2)))
        await until(lambda: coming() == {"default/train": 2})
        await do(lambda: server.remove_kind(BIND_REQUESTS))
        await until(lambda: coming() == {})
        assert "no longer knows this kind of object" in str(cluster.trouble)
        server.add_kind(BIND_REQUESTS)
        await do(lambda: server.put(BIND_REQUESTS, bind_request("next", count=1)))
        await until(lambda: coming() == {"default/next": 1})
        await until(lambda: cluster.trouble is None)

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, pace=replace(PACE, absent_s=3600.0))


def test_a_pod_of_ours_is_no_owner_between_its_decision_and_its_binding(tmp_path: Path) -> None:
    decision = bind_request("book", groups=["g1"])

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        def owners() -> set[str]:
            return {owner.name for owner in host.state.claims.owners}

        await do(lambda: server.put(PODS, shared_pod("book", "0.5", managed=True, node=None)))
        await do(lambda: server.put(BIND_REQUESTS, decision))
        await until(lambda: "default/book" in cluster._elsewhere.records)
        await do(lambda: server.delete(BIND_REQUESTS, decision))
        await do(lambda: server.put(BIND_REQUESTS, bind_request("train")))
        await until(lambda: "default/train" in owners())
        assert owners() == {"default/train"}

    run(tmp_path, story)


def test_a_name_that_no_node_has_is_said(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: "no node 'node-a'" in str(cluster.trouble))
        await do(lambda: server.put(NODES, node()))
        await until(lambda: cluster.trouble is None)

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, before=lambda server: server.clear(NODES))


def test_a_node_that_is_deleted_keeps_its_pool_and_is_said(tmp_path: Path) -> None:
    labelled = node({"pool": "off"})

    def before(server: ApiServer) -> None:
        server.put(CONFIG_MAPS, config_map('{"pools": {"pool=off": {"enabled": false}}}'))
        server.put(NODES, labelled)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: host.used == {"placement": "binpack"})
        await do(lambda: server.delete(NODES, labelled))
        await until(lambda: "'node-a' has been deleted" in str(cluster.trouble))
        assert host.used == {"placement": "binpack"}
        await do(lambda: server.put(NODES, node()))
        await until(lambda: cluster.trouble is None and host.used == {})

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, before=before)
