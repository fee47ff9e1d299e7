"""Queues, gangs and elastic commands under random histories, policies, reloads and failures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.requests.joining import difference
from nls_scheduler.requests.queue_access import check_growth
from nls_scheduler.views.explain import explain
from nls_scheduler.views.history import Recorder
from nls_scheduler.wire.errors import Problem
from properties.test_histories import LONG, Histories, connections, quarters, rules, sliced, tried
from properties.test_shares import NAMES, queue_sets

policies = st.builds(
    Policy,
    queues=st.one_of(queue_sets(), st.just(())),
    pools=st.one_of(st.just(()), st.sampled_from([("1", "3"), ("0",), ("0", "2")]).map(lambda g: (Pool("second", g),))),
    **rules,
)


def _but_for_interrupts(entries):
    return [replace(entry, time="", sequence=0) for entry in entries if entry.event != "interrupted"]


class QueueHistories(Histories):
    """Everything that can happen to a node, with queues."""

    @initialize(
        policy=policies, gpus=st.integers(1, 4), strangers=st.booleans(), connect=connections, slices=st.booleans()
    )
    def start(self, policy, gpus, strangers, connect, slices):
        self.node = SimulatedNode.of(gpus, 16 * GIB, policy, sliced(connect, slices))
        self.foreign = strangers
        recorder, kept, written, tell = Recorder(), [], 0, self.node.tell

        def told(event):
            nonlocal recorder, written
            is_behind = isinstance(event, ev.DaemonRestarted) and self.written is not None
            if is_behind:
                del kept[written:]
            before, told_before, begins = self.node.state, len(kept), Recorder()
            begins.go_on_after(kept, before)
            commands = tell(event)
            if is_behind:
                recorder = begins  # the one before knows what is lost
            found = recorder.entries(before, event, self.node.state, commands)
            again = found if recorder is begins else begins.entries(before, event, self.node.state, commands)
            # A daemon that begins here tells what the one before it would have, unless a report comes between. But for
            # interrupts: of one that is answered the state knows its time alone, and here many have one.
            between = len(kept) > told_before
            assert between or _but_for_interrupts(found) == _but_for_interrupts(again)
            kept.extend(found)
            written = len(kept) if self.written is None else written
            for entry in found:
                assert entry.why, f"an entry of the history without a reason: {entry}"
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
        if workload is not None and self.written is None:
            known = self.node.state.workloads[workload]
            spec = replace(known.spec, priority=priority, queue=queue)
            if difference(spec, (other.spec for other in fellows(self.node.state, known))) is not None:
                return
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
        if not entry.home and alone and entry.reason.kind is not Reason.RESERVED:
            told = explain(state, workload.id, self.node.now)
            takes = [gpu["gpu"] for gpu in told["gpus"] if gpu["why_not_home"] is None]
            assert not takes, f"{workload} waits while it fits on {takes}: {entry.reason}"


TestQueueHistories = pytest.mark.timeout(300)(tried(QueueHistories, 60, 40))
TestManyQueueHistories = LONG(pytest.mark.timeout(1200)(tried(QueueHistories, 120, 40)))
