"""The ConfigMap's rules for a node's labels; misses and lateness; Events that never hold anything up."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import ROOT
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.daemon import config
from nls_scheduler.kubernetes_driver.events_out import EventWriter
from nls_scheduler.kubernetes_driver.pods import PodRecord
from nls_scheduler.kubernetes_driver.policy import DEFAULTS, chosen, unit_bytes
from nls_scheduler.kubernetes_driver.policy_in_use import PolicyInUse
from nls_scheduler.kubernetes_driver.reflector import ApiError
from nls_scheduler.kubernetes_driver.vacating import Vacating

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.state import NodeState

ZERO, ONE = GpuUuid("GPU-0"), GpuUuid("GPU-1")
POD = PodRecord("uid-1", "default", "train")


def policy(values: object) -> dict[str, str]:
    return {"policy.json": json.dumps(values)}


def test_the_guide_names_what_is_usual_in_a_cluster_and_nowhere_else() -> None:
    guide = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    told = guide.partition("other defaults (")[2].partition(")")[0]
    assert re.findall(r"`(.*?)`", told) == [f"{name} = {value}" for name, value in DEFAULTS.items()]


def test_the_first_pool_whose_label_the_node_has_is_its_pool() -> None:
    pools = {"team=b": {"placement": "binpack"}, "team=a": {"max_workloads_per_gpu": 2}, "zone=x": {}}
    values, pool = chosen(policy({"min_gain": 0.2, "pools": pools}), {"team": "a", "zone": "x"})
    assert (values, pool) == ({"min_gain": 0.2, "max_workloads_per_gpu": 2}, "team=a")


def test_a_pool_that_is_off_keeps_everybody_at_home() -> None:
    assert chosen(policy({"pools": {"a=b": {"enabled": False}}}), {"a": "b"})[0] == {"placement": "binpack"}


def test_without_a_config_map_nothing_changes() -> None:
    assert chosen(None, {"a": "b"}) == ({}, None)
    assert chosen({}, {}) == ({}, None)


def test_what_the_scheduler_means_by_gpu_memory_is_mib_unless_the_policy_says_otherwise() -> None:
    assert unit_bytes(None) == unit_bytes(policy({})) == 2**20
    data = policy({"gpu_memory_unit": "MB", "min_gain": 0.2})
    assert (unit_bytes(data), chosen(data, {})) == (10**6, ({"min_gain": 0.2}, None))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"policy.json": "{"}, "not JSON"),
        ({"policy.json": "[" * 100_000}, "not JSON"),
        ({"policy.json": "[]"}, "must be an object"),
        ({"policy.json": 3}, "must be a text"),
        (policy({"oversubscribe": 2}), "oversubscribe is 1.0"),
        (policy({"gpu_memory_unit": "GiB"}), "gpu_memory_unit is MiB or MB"),
        (policy({"pools": []}), "pools must be an object"),
        (policy({"pools": {"a100": {}}}), "no label"),
        (policy({"pools": {"a=b": []}}), "needs an object"),
        (policy({"pools": {"a=b": {"gpus": ["0"]}}}), "no rule 'gpus'"),
        (policy({"pools": {"a=b": {"enabled": "no"}}}), "neither true nor false"),
    ],
)
def test_a_policy_that_cannot_be_used_says_why(data: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        chosen(data, {})


def test_a_policy_that_is_refused_leaves_all_of_the_old_one_in_place() -> None:
    def use(values: Mapping[str, Any]) -> None:
        if "min_gian" in values:
            raise ValueError("no setting")

    in_use = PolicyInUse("nls-system/nls-policy", use)
    in_use.apply(policy({"min_gain": 0.2}), {})
    for refused in ({"policy.json": "[" * 100_000}, policy({"min_gian": 0.2, "gpu_memory_unit": "MB"})):
        in_use.apply(refused, {})
        assert "refused and the old one stays" in str(in_use.trouble)
        assert in_use.unit_bytes == 2**20
    in_use.apply(policy({"min_gain": 0.2, "gpu_memory_unit": "MB"}), {})
    assert (in_use.trouble, in_use.unit_bytes) == (None, 10**6)


def test_flags_go_before_the_cluster_s_settings_and_those_before_the_defaults() -> None:
    settings = config.load(["min_gain=0.3"], [], defaults=DEFAULTS, cluster={"min_gain": 0.2, "cool_down_s": 7.0})
    assert (settings.policy.min_gain, settings.policy.cool_down_s) == (0.3, 7.0)
    assert (settings.policy.reclaim_deadline_s, settings.policy.max_workloads_per_gpu) == (3.0, None)


def test_a_setting_that_there_is_not_is_refused() -> None:
    with pytest.raises(config.ConfigError, match="no setting"):
        config.load([], [], cluster={"min_gian": 0.2})


def lent() -> NodeState:
    """Somebody borrows GPU 1."""
    node = SimulatedNode.of(2)
    for _ in range(2):
        node.submit(given_home=(ZERO,))
        node.settle()
    assert {w.current for w in node.state.workloads.values()} == {(ZERO,), (ONE,)}
    return node.state


def claimed(state: NodeState, at: float, *gpus: GpuUuid, free: bool = False) -> NodeState:
    workloads = {} if free else state.workloads
    owner = Owner("uid-1", "default/train", gpus, devices_to_come=0 if gpus else 1)
    return replace(state, at=at, claims=Claims((owner,)), workloads=workloads)


def test_a_gpu_that_was_free_when_it_became_known_is_no_miss() -> None:
    vacating, state = Vacating(), lent()
    signals = {"uid-1": "bind_request"}
    vacating.observe(claimed(state, 10.0), signals, {})
    vacating.observe(claimed(state, 12.0, ONE, free=True), signals, {})
    assert (vacating.claims["bind_request"], vacating.misses["bind_request"]) == (1, 0)
    assert vacating.vacate_s["bind_request"].total == 2.0


def test_a_gpu_that_was_still_lent_when_it_became_known_is_a_miss() -> None:
    vacating, state = Vacating(), lent()
    signals = {"uid-1": "binding"}
    vacating.observe(claimed(state, 10.0), signals, {})
    vacating.observe(claimed(state, 11.0, ONE), signals, {})
    vacating.observe(claimed(state, 13.0, ONE, free=True), signals, {})
    assert vacating.misses["binding"] == 1
    assert vacating.vacate_s["binding"].total == 3.0


def test_a_share_that_kai_binds_is_one_claim_from_its_decision_on() -> None:
    """It is known by its group, by its BindRequest once the group has its GPU, and by itself once it is bound."""
    now, (vacating, state) = 0.0, (Vacating(wall=lambda: now), lent())
    ids = ("group:g1", "bind:uid-request", "uid-1")
    signals, pods = dict.fromkeys(ids, "bind_request"), {"uid-1": replace(POD, started_at=16.0)}
    for now, owner, free in ((10.0, ids[0], False), (12.0, ids[1], False), (13.0, ids[1], True), (17.0, ids[2], True)):
        claims = Claims((Owner(owner, "default/train", () if owner == ids[0] else (ONE,)),))
        seen = replace(state, at=now, claims=claims, workloads={} if free else state.workloads)
        vacating.observe(seen, signals, pods if owner == ids[2] else {})
    assert (vacating.claims["bind_request"], vacating.misses["bind_request"]) == (1, 1)
    assert (vacating.vacate_s["bind_request"].total, vacating.vacate_s["bind_request"].buckets[-1][1]) == (3.0, 1.0)
    assert (vacating.lateness_s.total, vacating.lateness_s.buckets[-1][1]) == (0.0, 1.0)


# The last two: the kubelet's clock is years ahead of this process's, or was set after the container's start.
# A kubelet tells of whole seconds: 1000 is any moment until 1001.
@pytest.mark.parametrize(
    ("started_at", "late_s"), [(997.0, 3.0), (999.0, 1.0), (1000.0, 0.0), (1004.0, 0.0), (4.1e9, 0.0), (0.0, 1000.0)]
)
def test_lateness_counts_from_the_container_s_start(started_at: float, late_s: float) -> None:
    vacating, state = Vacating(wall=lambda: 1000.7), lent()
    pods: Mapping[str, PodRecord] = {"uid-1": replace(POD, started_at=started_at)}
    vacating.observe(claimed(state, 10.0, ONE), {"uid-1": "binding"}, pods)
    vacating.observe(claimed(state, 11.0, ONE, free=True), {"uid-1": "binding"}, pods)
    vacating.observe(claimed(state, 12.0, ONE, free=True), {"uid-1": "binding"}, pods)
    assert vacating.lateness_s.total == late_s
    assert vacating.lateness_s.buckets[-1] == ("+Inf", 1.0)


STARTED = {"uid-1": replace(POD, started_at=947.0)}
NO_CLAIMS = Claims()
Seen = list[tuple[float, str]]


@pytest.mark.parametrize(
    ("sequence", "claims", "late_s"),
    [
        ([(1000.0, "free")], 0, None),
        ([(1000.0, "lent"), (1003.0, "free")], 1, 56.0),
        ([(940.0, "nobody"), (948.0, "free"), (990.0, "free")], 1, 0.0),
        ([(940.0, "nobody"), (946.0, "coming"), (947.0, "lent"), (949.2, "free")], 1, 2.0),
        ([(940.0, "nobody"), (941.0, "coming"), (946.0, "free")], 1, 0.0),
        ([(940.0, "nobody"), (946.0, "free"), (1100.0, "nobody"), (1107.7, "free")], 1, 0.0),
    ],
    ids=[
        "a daemon starts beside a training that has long had its Gpu",
        "a daemon starts and still holds the Gpu of a training that runs",
        "a training is known only after its start, on a Gpu that was free",
        "a Gpu is still held when its container starts",
        "a Gpu is free before its container starts",
        "an owner goes out of view for a moment, as at the deletion of its reservation",
    ],
)
def test_lateness_is_only_that_of_a_gpu_which_we_still_held(sequence: Seen, claims: int, late_s: float | None) -> None:
    now = 0.0
    vacating, state = Vacating(wall=lambda: now), lent()
    for now, what in sequence:
        seen = claimed(state, now, *(() if what == "coming" else (ONE,)), free=what != "lent")
        vacating.observe(replace(seen, claims=NO_CLAIMS) if what == "nobody" else seen, {"uid-1": "binding"}, STARTED)
    assert vacating.claims.total() == claims
    assert vacating.lateness_s.total == pytest.approx(late_s or 0.0)
    assert vacating.lateness_s.buckets[-1] == ("+Inf", 0.0 if late_s is None else 1.0)


class RefusingApi:
    """Takes nothing."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def create(self, path: str, _body: Mapping[str, Any]) -> None:
        assert path == "/api/v1/namespaces/default/events"
        self.asked.set()
        raise ApiError(403, "HTTP 403: no")


def test_a_long_message_is_cut_where_kubernetes_would_refuse_it_and_says_so() -> None:
    writer = EventWriter(RefusingApi(), "node-a")  # type: ignore[arg-type]
    writer.once(POD, "GpuRequestInvalid", "x" * 2000)
    writer.once(POD, "GpuSizeInvalid", "y" * 1000)
    long, short = (waiting.message for waiting in writer._waiting.values())
    assert (len(long), long[-1], short) == (1000, "…", "y" * 1000)


def test_events_that_are_refused_are_counted_and_hold_nothing_up() -> None:
    async def main() -> None:
        api = RefusingApi()
        writer = EventWriter(api, "node-a")  # type: ignore[arg-type]
        for number in range(400):
            pod = PodRecord(f"uid-{number % 300}", "default", "train")
            writer.once(pod, "GpuRequestInvalid", "half is no number")
        task = asyncio.create_task(writer.run())
        await asyncio.wait_for(api.asked.wait(), 10)
        await asyncio.sleep(0)
        task.cancel()
        assert writer.lost == 300 - 256 + 1
        assert writer.written == 0

    asyncio.run(main())
