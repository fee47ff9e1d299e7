"""Queues under random histories, policies, reloads and failures; and the arithmetic of fair shares."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from nls_scheduler import events as ev
from nls_scheduler.errors import Problem
from nls_scheduler.explain import explain
from nls_scheduler.history import Recorder
from nls_scheduler.model import Kind, Phase, Policy
from nls_scheduler.pools import Pool
from nls_scheduler.queue_access import check_growth
from nls_scheduler.queue_config import parse_queues
from nls_scheduler.queues import Queue, Tree, fair_shares
from nls_scheduler.simulator import GIB, SimulatedNode
from properties.test_histories import Histories, quarters, rules

POOL = "default"
amounts = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0])
weights = st.sampled_from([0.0, 1.0, 1.0, 2.0])
NAMES = ("a", "b", "a1", "a2")


@st.composite
def queue_sets(draw):
    """`a` with `a1` and `a2` in it, and `b`: whatever `queue_config` lets through."""
    written = {}
    for name in NAMES:
        quota = draw(st.one_of(amounts, st.none()))
        limit = draw(st.one_of(st.none(), amounts))
        written[name] = {
            "quota": {"*": quota},
            "limit": {"*": limit},
            "over_quota_weight": draw(weights),
            "priority": draw(st.integers(0, 1)),
        }
        if name in ("a1", "a2"):
            written[name]["parent"] = "a"
    kept = [name for name in NAMES if name == "a" or draw(st.booleans())]
    try:
        return parse_queues({name: written[name] for name in kept}, (), int, int)
    except ValueError:
        assume(False)


policies = st.builds(
    Policy,
    queues=st.one_of(queue_sets(), st.just(())),
    pools=st.one_of(st.just(()), st.just((Pool("second", ("1", "3")),))),
    **rules,
)


class QueueHistories(Histories):
    """Everything that can happen to a node, with queues."""

    @initialize(policy=policies, gpus=st.integers(1, 4), strangers=st.booleans())
    def start(self, policy, gpus, strangers):
        self.node = SimulatedNode.of(gpus, 16 * GIB, policy)
        self.foreign = strangers
        recorder, tell = Recorder(), self.node.tell

        def told(event):
            before = self.node.state
            commands = tell(event)
            for entry in recorder.entries(before, event, self.node.state, commands):
                assert entry["reason"], f"an entry of the history without a reason: {entry}"
            return commands

        self.node.tell = told

    @rule(
        request=quarters,
        burst=st.integers(0, 16),
        priority=st.sampled_from([0, 50, 50, 100, 125]),
        kind=st.sampled_from(Kind),
        requeue=st.booleans(),
        gpus=st.sampled_from([1, 1, 1, 2]),
        pools=st.sampled_from([("default",), ("default",), ("second", "default")]),
        queue=st.sampled_from(["a", "b", "a1", "a2", "default"]),
    )
    def submit(self, request, burst, priority, kind, requeue, gpus, pools, queue):
        self.node.submit(
            pools=pools,
            kind=kind,
            request_bytes=request * GIB,
            limit_bytes=min(16, request + burst) * GIB,
            priority=priority,
            requeue=requeue and kind is Kind.COMMAND,
            gpu_count=gpus if kind is Kind.COMMAND else 1,
            queue=queue,
        )

    @rule(choice=st.integers(0, 50), priority=st.sampled_from([0, 50, 100]), queue=st.sampled_from(NAMES))
    def user_asks_for_something_else(self, choice, priority, queue):
        workload = self.pick(choice)
        if workload is not None:
            known = self.node.state.workloads[workload]
            spec = replace(known.spec, priority=priority, queue=queue)
            try:
                check_growth(self.node.state, known, spec)
            except Problem:
                return
            self.node.workloads[workload].spec = spec
            self.node.tell(ev.WorkloadRespecified(self.node.now, workload, spec))

    @rule(policy=policies)
    def the_administrator_changes_the_rules(self, policy):
        self.node.tell(ev.PolicyChanged(self.node.now, policy))

    @invariant()
    def everything_can_be_explained(self):
        if not hasattr(self, "node") or self.node.down:
            return
        for workload_id, workload in self.node.state.workloads.items():
            told = explain(self.node.state, workload_id, self.node.now)
            assert told["reason"]
            assert all(told["steps"])
            assert {gpu["uuid"] for gpu in told["gpus"]} == set(self.node.state.gpus)
            if workload.phase is Phase.QUEUED and workload.wants_gpu:
                assert len(told["ahead"]) == self.node.state.plan[workload_id].position - 1

    def waits_only_with_a_reason(self, workload):
        """As for all; and what `explain` says about each Gpu agrees with the plan."""
        state = self.node.state
        if not workload.wants_gpu or workload.phase not in (Phase.QUEUED, Phase.SUSPENDED):
            return
        entry = state.plan[workload.id]
        assert entry.reason
        assert entry.position is not None
        alone = workload.spec.gpu_count == 1 and workload.spec.gang is None
        if not entry.home and alone and "reserved" not in entry.reason:
            told = explain(state, workload.id, self.node.now)
            takes = [gpu["gpu"] for gpu in told["gpus"] if gpu["why_not_home"] is None]
            assert not takes, f"{workload} waits while it fits on {takes}: {entry.reason}"


QueueHistories.TestCase.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestQueueHistories = pytest.mark.timeout(300)(QueueHistories.TestCase)

demands = st.dictionaries(st.sampled_from(NAMES[1:]), st.floats(0, 6), max_size=3)
capacities = st.sampled_from([0.0, 1.0, 4.0, 8.0])


def shares_of(queues, demand, capacity):
    tree = Tree(queues)
    demand = {name: amount for name, amount in demand.items() if tree.is_leaf(name)}
    return tree, demand, fair_shares(tree, POOL, demand, capacity)


def wanted(tree, queue, demand):
    below = tree.children.get(queue.name)
    amount = demand.get(queue.name, 0.0) if below is None else sum(wanted(tree, child, demand) for child in below)
    limit = queue.limit_in(POOL)
    return amount if limit is None else min(amount, limit)


@given(queue_sets(), demands, capacities)
def test_a_queue_is_owed_its_quota_as_far_as_it_asks_and_never_more_than_it_asks_or_may_have(
    queues, demand, capacity
) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    for queue in tree.queues.values():
        quota, most = queue.quota_in(POOL), wanted(tree, queue, demand)
        assert shares[queue.name] <= most + 1e-6
        if queue.parent is None:
            assert shares[queue.name] >= min(most, most if quota is None else quota) - 1e-6


@given(queue_sets(), demands, capacities)
def test_shares_are_no_more_than_there_is_unless_quotas_are(queues, demand, capacity) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    top = tree.children[None]
    owed = sum(min(wanted(tree, q, demand), m if (m := q.quota_in(POOL)) is not None else float("inf")) for q in top)
    assert sum(shares[queue.name] for queue in top) <= max(capacity, owed) + 1e-6


@given(queue_sets(), demands, capacities)
def test_nothing_is_left_over_while_a_queue_with_a_weight_wants_it(queues, demand, capacity) -> None:
    tree, demand, shares = shares_of(queues, demand, capacity)
    top = tree.children[None]
    if sum(shares[queue.name] for queue in top) < capacity - 1e-6:
        for queue in top:
            if queue.weight_in(POOL) > 0:
                assert shares[queue.name] >= wanted(tree, queue, demand) - 1e-6


@given(queue_sets(), demands, capacities, st.randoms())
def test_the_order_in_the_configuration_changes_no_share(queues, demand, capacity, chance) -> None:
    mixed = list(queues)
    chance.shuffle(mixed)
    one, other = shares_of(queues, demand, capacity)[2], shares_of(tuple(mixed), demand, capacity)[2]
    assert one == pytest.approx(other, abs=1e-6)


@given(st.floats(0.5, 4), st.floats(0.5, 4))
def test_what_is_over_quota_is_divided_by_weight(first, second) -> None:
    queues = tuple(Queue(name, over_quota_weight={POOL: w}) for name, w in (("b", first), ("c", second)))
    shares = fair_shares(Tree(queues), POOL, {"b": 100.0, "c": 100.0}, 8.0)
    assert shares["b"] / shares["c"] == pytest.approx(first / second)
    assert shares["b"] + shares["c"] == pytest.approx(8.0)
