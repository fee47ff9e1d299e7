"""What the daemon tells Prometheus: the node as it is at the scrape, and what has happened since the start.

Labels of a Gpu are those of DCGM's exporter (`gpu`, `UUID`, `modelName`), so that both join. No user names, no pids.
"""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nls_scheduler import __version__
from nls_scheduler.core.model.commands import StopProcess, SuspendProcess
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Departure, Order, Phase
from nls_scheduler.core.planning.making_room.rooms import out_of_service
from nls_scheduler.units.clock import awake_s
from nls_scheduler.views.queues import queue_views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.workload import Workload

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REASONS: Final = ("guarantee", "turn", "burst", "user", "unhealthy", "limit", "other")
"""Why a workload had to leave a Gpu: for a request within its guarantee; for another's turn at burst; for a better
spread; because its user said so; because the Gpu is out of service; because it was above its limit."""
_RECLAIM_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 20, 30, 45, 60, 120)
_STEP_BUCKETS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
_POLL_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)
_QUEUE_FIGURES: Final = (
    ("used_gpus", "used", "Gpus on which requests of admitted workloads count"),
    ("requested_gpus", "requested", "Gpus that its workloads ask for, those that wait included"),
    ("fair_share_gpus", "fair_share", "Gpus that nobody can take from it"),
    ("quota_gpus", "quota", "Guaranteed Gpus"),
    ("limit_gpus", "limit", "Most Gpus that it may have"),
)
_GPU_LABELS: Final = ("gpu", "UUID", "modelName")


class Metrics:
    """One daemon's numbers, in a registry of its own. All methods run in the daemon's loop."""

    def __init__(self, state: Callable[[], NodeState]) -> None:
        """`state` gives the node as it is now."""
        self._registry = CollectorRegistry()
        self._registry.register(_Node(state))
        self._events = {
            "moved": self._counter("nls_moves", "GPU processes that went to another Gpu with their saved state"),
            "suspended": self._counter("nls_suspends", "GPU processes that gave their Gpu up with their state saved"),
            "evicted": self._counter("nls_evictions", "GPU processes that were stopped"),
        }
        self._reclaim = self._histogram(
            "nls_reclaim_latency_seconds", "From a guarantee's wait to its start on a Gpu", _RECLAIM_BUCKETS
        )
        self._step = self._histogram("nls_step_duration_seconds", "One event: record, plan, decide", _STEP_BUCKETS)
        self._poll = self._histogram("nls_poll_duration_seconds", "Asking the driver once", _POLL_BUCKETS)
        self._refusals = Counter(
            "nls_plan_refusals",
            "Orders that were planned and would have broken a promise: a defect, told in the log, and not given",
            registry=self._registry,
        )
        self._violations = Counter(
            "nls_invariant_violations",
            "Sentences that must hold after each step and did not: a defect, told in the log",
            registry=self._registry,
        )
        self._before = NodeState()
        self._reclaiming: dict[WorkloadId, float] = {}

    def register(self, collector: Collector) -> None:
        """Numbers of somebody else's, such as a cluster's."""
        self._registry.register(collector)

    def text(self) -> bytes:
        """Everything in Prometheus's text form, of type CONTENT_TYPE."""
        return generate_latest(self._registry)

    def go_on_from(self, state: NodeState) -> None:
        """The state in which an earlier daemon was: for whom others were leaving waits on."""
        for workload in state.workloads.values():
            self._leaves(state, workload)

    def polled(self, seconds: float) -> None:
        """The driver was asked once."""
        self._poll.observe(seconds)

    def refused(self) -> None:
        """An order that was planned was not given."""
        self._refusals.inc()

    def violated(self) -> None:
        """A sentence that must hold after each step did not."""
        self._violations.inc()

    def stepped(self, before: NodeState, after: NodeState, commands: Sequence[Command], seconds: float) -> None:
        """One event was applied."""
        self._before = before
        self._step.observe(seconds)
        for command in commands:
            if isinstance(command, SuspendProcess | StopProcess):
                self._leaves(after, after.workloads[command.workload])
        for workload_id in self._reclaiming.keys() & before.workloads.keys():
            now = after.workloads.get(workload_id)
            if now is not None and now.phase is Phase.RUNNING:
                self._reclaim.observe(max(0.0, after.at - self._reclaiming.pop(workload_id)))
        for ended in before.workloads.keys() - after.workloads.keys():
            self._reclaiming.pop(ended, None)

    def told(self, entry: Mapping[str, Any]) -> None:
        """An entry of the history; comes after `stepped` of the same event."""
        counter, workload = self._events.get(entry["event"]), self._before.workloads.get(entry["workload"])
        if counter is not None:
            counter.labels("other" if workload is None else why_it_leaves(self._before, workload)).inc()

    def _leaves(self, state: NodeState, workload: Workload) -> None:
        left = _departure(workload)
        if left is None or left.order.cause is None or why_it_leaves(state, workload) != "guarantee":
            return
        cause = state.workloads.get(WorkloadId(left.order.cause.id))
        if cause is not None and cause.waiting_since is not None:
            self._reclaiming.setdefault(cause.id, cause.waiting_since)

    def _counter(self, name: str, help_text: str) -> Counter:
        counter = Counter(name, help_text, ["reason"], registry=self._registry)
        for reason in REASONS:
            counter.labels(reason)  # a series that is there from the start has a rate from its first event
        return counter

    def _histogram(self, name: str, help_text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, help_text, buckets=buckets, registry=self._registry)


def why_it_leaves(state: NodeState, workload: Workload) -> str:
    """One of REASONS, for a workload that has been ordered off its Gpus, or has left them and is on none again yet."""
    left = _departure(workload)
    if left is None:
        return "other"
    order, why = left.order, left.order.reason
    kind = (why.because[0] if why.kind is Reason.ENDED_BY_DAEMON else why).kind
    if kind is Reason.SAID:
        return "user"
    if any(uuid in state.gpus and not state.gpus[uuid].healthy for uuid in left.gpus):
        return "unhealthy"
    if kind is Reason.ABOVE_LIMIT:
        return "limit"
    if order.owed:
        return "guarantee"
    if order.cause is not None:
        return "turn"
    return "burst" if workload.wants_gpu else "other"


def _departure(workload: Workload) -> Departure | None:
    """As it will have left, where it was told to: nothing is known of its end yet."""
    order = workload.pending
    if order is not None and order.order in (Order.SUSPEND, Order.STOP, Order.END):
        return Departure(workload.current, order, order.issued_at, 0)
    return workload.departure


class _Node(Collector):
    """The state at the scrape."""

    def __init__(self, state: Callable[[], NodeState]) -> None:
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Called by prometheus_client."""
        state, now = self._state(), awake_s()
        info = GaugeMetricFamily("nls_build_info", "The daemon's version", labels=["version"])
        info.add_metric([__version__], 1)
        yield info
        yield from _gpus(state)
        yield from _workloads(state, now)
        yield from _queues(state)


def _gpus(state: NodeState) -> Iterator[GaugeMetricFamily]:
    homes: Tally[str] = Tally()
    for workload in state.workloads.values():
        homes.update(dict.fromkeys(workload.home, workload.spec.request_bytes))
    out = out_of_service(state)
    figures: tuple[tuple[str, str, Callable[[Gpu], float | None]], ...] = (
        ("memory_total_bytes", "Memory that can be handed out", lambda gpu: gpu.memory_total_bytes),
        ("memory_used_bytes", "Memory in use by everybody", lambda gpu: gpu.memory_used_bytes),
        ("memory_unplaced_bytes", "Memory in use by processes that nobody placed", lambda gpu: gpu.unplaced_bytes),
        (
            "memory_paper_free_bytes",
            "Memory that no request counts on; below zero: more is promised than there is",
            lambda gpu: gpu.capacity_bytes - homes[gpu.uuid],
        ),
        (
            "memory_borrowed_bytes",
            "Memory in use by workloads whose home is another Gpu",
            lambda gpu: sum(_borrowed(gpu, workload) for workload in state.workloads.values()),
        ),
        ("utilisation_ratio", "Busy part of the last sample period", lambda gpu: gpu.utilisation),
        ("healthy", "1 in service, 0 out of service", lambda gpu: float(gpu.uuid not in out)),
    )
    for name, help_text, figure in figures:
        family = GaugeMetricFamily(f"nls_gpu_{name}", help_text, labels=_GPU_LABELS)
        for gpu in state.gpus.values():
            value = figure(gpu)
            # What the driver does not say is absent, not zero.
            if value is not None:
                family.add_metric([str(gpu.index), gpu.uuid, gpu.name], value)
        yield family


def _borrowed(gpu: Gpu, workload: Workload) -> int:
    return workload.used_bytes(gpu.uuid) if gpu.uuid in workload.current and gpu.uuid not in workload.home else 0


def _queues(state: NodeState) -> Iterator[GaugeMetricFamily]:
    """Only where queues are configured; what has no bound is absent."""
    views = queue_views(state)
    for name, field, help_text in _QUEUE_FIGURES if views else ():
        family = GaugeMetricFamily(f"nls_queue_{name}", help_text, labels=["queue", "pool"])
        for view in views:
            for figures in view["pools"]:
                if figures[field] is not None:
                    family.add_metric([view["name"], figures["pool"]], figures[field])
        yield family
    if views:
        waiting = GaugeMetricFamily("nls_queue_workloads_waiting", "Workloads that want a Gpu", labels=["queue"])
        for view in views:
            waiting.add_metric([view["name"]], view["waiting"])
        yield waiting


def _workloads(state: NodeState, now: float) -> Iterator[GaugeMetricFamily]:
    there = Tally((workload.phase, workload.spec.kind) for workload in state.workloads.values())
    family = GaugeMetricFamily("nls_workloads", "Workloads by phase and kind", labels=["phase", "kind"])
    for phase in Phase:
        for kind in Kind:
            family.add_metric([phase.value, kind.value], there[phase, kind])
    yield family
    waits = [now - w.waiting_since for w in state.workloads.values() if w.waiting_since is not None]
    yield GaugeMetricFamily("nls_workloads_waiting", "Workloads that want a Gpu and have none", value=len(waits))
    longest_s = max(waits, default=0.0)
    yield GaugeMetricFamily("nls_longest_wait_seconds", "Since when the first of them waits", value=longest_s)
