from __future__ import annotations

import re
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import CommandId, GpuUuid, WorkloadId
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState, PlanEntry
from nls_scheduler.core.model.workload import Phase, Workload
from nls_scheduler.views.metrics import CONTENT_TYPE, REASONS, Metrics, why_it_leaves

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
NB, RUN = WorkloadId("nb"), WorkloadId("run")
GIB = 2**30


def workload(id_: WorkloadId, **fields: object) -> Workload:
    spec = WorkloadSpec(f"secret-{id_}", Kind.NOTEBOOK, 4711, 4 * GIB, 8 * GIB)
    return replace(Workload(id_, spec, 0.0), **fields)  # type: ignore[arg-type]


def node(**entry: object) -> NodeState:
    """The notebook borrows GPU b, and the other one waits since 10."""
    gpus = {
        A: Gpu(A, 0, "H200", 16 * GIB, memory_used_bytes=GIB, unplaced_bytes=GIB, confirmed_bytes=GIB, utilisation=0.5),
        B: Gpu(B, 1, "H200", 16 * GIB, memory_used_bytes=None),
    }
    holder = workload(NB, phase=Phase.RUNNING, home=(A,), current=(B,), memory_used={B: 6 * GIB})
    waiter = workload(RUN, waiting_since=10.0, home=(B,))
    plan = {NB: replace(PlanEntry((A,), (A,), "because"), **entry)}  # type: ignore[arg-type]
    return NodeState(gpus=gpus, workloads={NB: holder, RUN: waiter}, plan=plan, at=12.0)


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


def test_a_guarantee_that_is_reclaimed_is_measured_from_its_wait_to_its_start() -> None:
    metrics, before = Metrics(node), node(deadline_at=40.0, cause=RUN)
    order = SuspendProcess(CommandId(1), NB, "needed", RUN)
    metrics.stepped(before, before, [order], 0.001)
    metrics.told({"event": "moved", "workload": NB})
    running = replace(before.workloads[RUN], phase=Phase.RUNNING, waiting_since=None, current=(B,))
    after = replace(before, workloads={**before.workloads, RUN: running}, at=13.5)
    metrics.stepped(before, after, [], 0.002)
    metrics.stepped(after, after, [], 0.002)
    told = samples(metrics)
    assert told["nls_reclaim_latency_seconds_count", ()] == 1
    assert told["nls_reclaim_latency_seconds_sum", ()] == 3.5
    assert told["nls_moves_total", (("reason", "guarantee"),)] == 1
    assert told["nls_step_duration_seconds_count", ()] == 3


def test_every_counter_is_there_from_the_start_and_a_wait_that_ends_without_a_start_is_not_measured() -> None:
    metrics, before = Metrics(node), node(deadline_at=40.0, cause=RUN)
    for reason in REASONS:
        assert samples(metrics)["nls_evictions_total", (("reason", reason),)] == 0
    metrics.stepped(before, before, [StopProcess(CommandId(1), NB, "needed", RUN, 1.0)], 0.001)
    metrics.told({"event": "evicted", "workload": NB})
    metrics.told({"event": "queued", "workload": NB})
    metrics.stepped(before, replace(before, workloads={NB: before.workloads[NB]}), [], 0.001)
    metrics.polled(0.01)
    told = samples(metrics)
    assert told["nls_evictions_total", (("reason", "guarantee"),)] == 1
    assert told["nls_reclaim_latency_seconds_count", ()] == 0
    assert told["nls_poll_duration_seconds_count", ()] == 1


def test_each_reason_to_leave_has_its_kind() -> None:
    def why(state: NodeState, **fields: object) -> str:
        return why_it_leaves(state, replace(state.workloads[NB], **fields))  # type: ignore[arg-type]

    assert why(node(deadline_at=1.0, cause=RUN)) == "guarantee"
    assert why(node(cause=RUN)) == "turn"
    assert why(node()) == "burst"
    assert why(node(target=())) == "other"
    assert why(replace(node(), plan={})) == "other"
    assert why(node(cause=RUN), release_reason="done") == "user"
    assert why(node(cause=RUN), suspend_reason="away") == "user"
    assert why(node(cause=RUN), memory_used={B: 9 * GIB}) == "limit"
    broken = node(cause=RUN)
    sick = {**broken.gpus, B: replace(broken.gpus[B], healthy=False)}
    assert why(replace(broken, gpus=sick)) == "unhealthy"
