from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import CommandId, GpuUuid, WorkloadId
from nls_scheduler.core.model.reasons import Mention, Reason, Why, said
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Departure, Order, Pending, Phase, Workload
from nls_scheduler.views.metrics import CONTENT_TYPE, REASONS, Metrics, why_it_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
NB, RUN = WorkloadId("nb"), WorkloadId("run")
GIB = 2**30


def workload(id_: WorkloadId, **fields: object) -> Workload:
    spec = WorkloadSpec(f"secret-{id_}", Kind.NOTEBOOK, 4711, 4 * GIB, 8 * GIB)
    return replace(Workload(id_, spec, 0.0), **fields)  # type: ignore[arg-type]


def node(order: Pending | None = None) -> NodeState:
    """The notebook borrows GPU b, which it leaves by `order`, and the other one waits since 10."""
    gpus = {
        A: Gpu(A, 0, "H200", 16 * GIB, memory_used_bytes=GIB, unplaced_bytes=GIB, confirmed_bytes=GIB, utilisation=0.5),
        B: Gpu(B, 1, "H200", 16 * GIB, memory_used_bytes=None),
    }
    phase = Phase.RUNNING if order is None else Phase.SUSPENDING
    holder = workload(NB, phase=phase, home=(A,), current=(B,), memory_used={B: 6 * GIB}, pending=order)
    waiter = workload(RUN, waiting_since=10.0, home=(B,))
    return NodeState(gpus=gpus, workloads={NB: holder, RUN: waiter}, at=12.0)


def leaves(
    kind: Reason = Reason.NEEDED, cause: WorkloadId | None = RUN, *, stop: bool = False, owed: bool = False
) -> Pending:
    """The order to leave, for the other one."""
    order, mention = Order.STOP if stop else Order.SUSPEND, None if cause is None else Mention(cause, cause, "notebook")
    return Pending(order, CommandId(1), 11.0, 40.0, Why(kind), mention, owed)


def has_left(state: NodeState) -> NodeState:
    """The same once the notebook is off, and on its way to where it goes."""
    before = state.workloads[NB]
    assert before.pending is not None
    start = Pending(Order.START, CommandId(2), 12.0, 40.0, Why(Reason.AT_HOME))
    departure = Departure(before.current, before.pending, 12.0, GIB)
    return state.having(replace(before, phase=Phase.STARTING, current=(A,), pending=start, departure=departure))


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def on(uuid: str, index: int) -> tuple[tuple[str, str], ...]:
    return (("UUID", uuid), ("gpu", str(index)), ("modelName", "H200"))


def test_the_node_is_told_in_base_units_and_what_is_unknown_is_absent() -> None:
    told = samples(Metrics(node))
    assert told["nls_gpu_memory_total_bytes", on("GPU-a", 0)] == 16 * GIB
    assert told["nls_gpu_memory_unplaced_bytes", on("GPU-a", 0)] == GIB
    assert told["nls_gpu_memory_paper_free_bytes", on("GPU-a", 0)] == 11 * GIB
    assert told["nls_gpu_memory_paper_free_bytes", on("GPU-b", 1)] == 12 * GIB
    assert told["nls_gpu_memory_borrowed_bytes", on("GPU-b", 1)] == 6 * GIB
    assert told["nls_gpu_memory_borrowed_bytes", on("GPU-a", 0)] == 0
    assert told["nls_gpu_memory_used_bytes", on("GPU-a", 0)] == GIB
    assert ("nls_gpu_memory_used_bytes", on("GPU-b", 1)) not in told
    assert told["nls_gpu_utilisation_ratio", on("GPU-a", 0)] == 0.5
    assert told["nls_workloads", (("kind", "notebook"), ("phase", "running"))] == 1
    assert told["nls_workloads_waiting", ()] == 1
    assert told["nls_longest_wait_seconds", ()] > 0


def test_nobody_is_named() -> None:
    text = Metrics(node).text().decode()
    assert "secret" not in text
    assert not re.search(r'"[^"]*4711', text), "a label names a user; a figure may have these digits"
    assert "text/plain" in CONTENT_TYPE


@pytest.mark.parametrize("restarted", [False, True])
def test_a_guarantee_that_is_reclaimed_is_measured_from_its_wait_to_its_start(restarted: bool) -> None:
    metrics, before = Metrics(node), node(leaves(owed=True))
    order = SuspendProcess(CommandId(1), NB, Why(Reason.NEEDED), RUN)
    metrics.stepped(node(), before, [order], 0.001)
    if restarted:
        metrics = Metrics(node)
        metrics.go_on_from(before)
    there = has_left(before)
    metrics.stepped(there, there, [], 0.001)
    metrics.told({"event": "moved", "workload": NB})
    running = replace(before.workloads[RUN], phase=Phase.RUNNING, waiting_since=None, current=(B,))
    after = replace(there.having(running), at=13.5)
    metrics.stepped(there, after, [], 0.002)
    metrics.stepped(after, after, [], 0.002)
    told = samples(metrics)
    assert told["nls_reclaim_latency_seconds_count", ()] == 1
    assert told["nls_reclaim_latency_seconds_sum", ()] == 3.5
    assert told["nls_moves_total", (("reason", "guarantee"),)] == 1
    assert told["nls_step_duration_seconds_count", ()] == (3 if restarted else 4)


def test_every_counter_is_there_from_the_start_and_a_wait_that_ends_without_a_start_is_not_measured() -> None:
    metrics, before = Metrics(node), node(leaves(stop=True, owed=True))
    for reason in REASONS:
        assert samples(metrics)["nls_evictions_total", (("reason", reason),)] == 0
    metrics.stepped(before, before, [StopProcess(CommandId(1), NB, Why(Reason.NEEDED), RUN, 1.0)], 0.001)
    metrics.told({"event": "evicted", "workload": NB})
    metrics.told({"event": "queued", "workload": NB})
    metrics.stepped(before, replace(before, workloads={NB: before.workloads[NB]}), [], 0.001)
    metrics.polled(0.01)
    told = samples(metrics)
    assert told["nls_evictions_total", (("reason", "guarantee"),)] == 1
    assert told["nls_reclaim_latency_seconds_count", ()] == 0
    assert told["nls_poll_duration_seconds_count", ()] == 1


@pytest.mark.parametrize("now", [lambda state: state, has_left], ids=["leaves", "has left"])
def test_each_reason_to_leave_has_its_kind(now: Callable[[NodeState], NodeState]) -> None:
    def why(order: Pending, **fields: object) -> str:
        state = now(node(order))
        return why_it_leaves(state, replace(state.workloads[NB], **fields))  # type: ignore[arg-type]

    assert why(leaves(owed=True)) == "guarantee"
    assert why(leaves()) == "turn"
    assert why(leaves(Reason.MORE_ROOM, None)) == "burst"
    assert why(leaves(Reason.IDLE, None), wants_gpu=False) == "other"
    assert why(leaves(Reason.SAID), suspend_reason=said("away")) == "user"
    assert why(leaves(Reason.SAID)) == "user", "also when its user has changed their mind since"
    assert why(leaves(Reason.ABOVE_LIMIT)) == "limit"
    sick = now(node(leaves()))
    sick = replace(sick, gpus={**sick.gpus, B: replace(sick.gpus[B], healthy=False)})
    assert why_it_leaves(sick, sick.workloads[NB]) == "unhealthy"


def test_who_was_ended_by_the_daemon_left_for_what_it_was_told_to_stop_for() -> None:
    order = replace(leaves(owed=True), order=Order.END, reason=Why(Reason.ENDED_BY_DAEMON, because=(said("away"),)))
    state = node(order)
    assert why_it_leaves(state, state.workloads[NB]) == "user"
    assert why_it_leaves(node(), node().workloads[NB]) == "other"
