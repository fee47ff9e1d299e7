"""How well Gpus are vacated for the cluster's pods: how early it was known, how late it was done; and the metrics.

A claim is *missed* when its Gpu becomes known while somebody still borrows it; its *lateness* is how long after the
container's start we still held the Gpu, in whole seconds, 0 where it was free before. Who was there already when this
daemon started, or comes back into view, claims nothing anew.
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.kubernetes_driver.first_list import UNKNOWN
from nls_scheduler.kubernetes_driver.overfull import counted_bytes
from nls_scheduler.kubernetes_driver.starting import is_lent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client.core import Metric

    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.kubernetes_driver.events_out import EventWriter
    from nls_scheduler.kubernetes_driver.pods import PodRecord

SIGNALS: Final = ("bind_request", "binding", "allocation")
_BUCKETS_S: Final = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0)
_DECIDED: Final = ("group:", "bind:")
"""How the ids of owners begin whose pods are not bound yet; see `View`."""
_MEBIBYTE: Final = 2**20
_POD_LABELS: Final = ("namespace", "pod", "pod_uuid", "gpu_uuid", "gpu")


@dataclass(slots=True)
class _Claim:
    """An owner on its way: whose it is, since when it is known, by what, and on which Gpus."""

    name: str
    since: float
    signal: str
    gpus: tuple[GpuUuid, ...] = ()
    held: bool = False
    free_at: float | None = None
    free_wall: float = 0.0
    lateness_told: bool = False


class Histogram:
    """Counts in buckets, as Prometheus wants them."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.total += seconds
        self._counts[next((n for n, edge in enumerate(_BUCKETS_S) if seconds <= edge), len(_BUCKETS_S))] += 1

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative."""
        edges = [*map(str, _BUCKETS_S), "+Inf"]
        return [(edge, float(sum(self._counts[: n + 1]))) for n, edge in enumerate(edges)]


class Vacating:
    """Follows each owner from the first signal until its Gpus are free. Called by the daemon's loop only."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        """`wall` is the clock of the kubelet's timestamps, seconds since the epoch."""
        self._wall = wall
        self._claims: dict[str, _Claim] = {}
        self._began = False
        self.claims = Tally[str]()
        self.misses = Tally[str]()
        self.vacate_s = {signal: Histogram() for signal in SIGNALS}
        self.lateness_s = Histogram()

    def observe(self, state: NodeState, signals: Mapping[str, str], pods: Mapping[str, PodRecord]) -> None:
        """Hold the state against the claims; `signals` as in `View`."""
        owners = {owner.id: owner for owner in state.claims.owners if owner.id != UNKNOWN}
        before, self._claims = self._claims, {k: c for k, c in self._claims.items() if k in owners or k in pods}
        # Whom KAI binds is known by its group first, by its BindRequest then, and by itself at last.
        decided = {c.name: c for k, c in before.items() if k not in self._claims and k.startswith(_DECIDED)}
        for key, owner in owners.items():
            claim = self._claims.get(key) or decided.pop(owner.name, None)
            if claim is not None:
                self._claims[key] = claim
            else:
                signal = signals.get(key, SIGNALS[-1])
                claim = self._claims[key] = _Claim(owner.name, state.at, signal)
                if not self._began and owner.gpus and not any(is_lent(state, uuid) for uuid in owner.gpus):
                    claim.gpus, claim.free_at, claim.lateness_told = owner.gpus, state.at, True
                    continue
                self.claims[signal] += 1
            if owner.gpus and not claim.gpus:
                claim.gpus = owner.gpus
                # Known for the first time at the very moment when it became known at all: nobody had time to leave.
                if any(is_lent(state, uuid) for uuid in owner.gpus):
                    self.misses[claim.signal] += claim.since < state.at or claim.signal == SIGNALS[-1]
            self._freed(state, claim, pods.get(key))
        self._began = True

    def _freed(self, state: NodeState, claim: _Claim, pod: PodRecord | None) -> None:
        lent = any(is_lent(state, uuid) for uuid in claim.gpus)
        claim.held = claim.held or lent
        if claim.free_at is None and claim.gpus and not lent:
            claim.free_at, claim.free_wall = state.at, self._wall()
            self.vacate_s[claim.signal].observe(max(0.0, claim.free_at - claim.since))
        if claim.free_at is not None and not claim.lateness_told and pod is not None and pod.started_at is not None:
            claim.lateness_told = True
            # Whole seconds, as the kubelet tells of: a start in the second that saw the Gpu free is not late.
            late_s = float(floor(claim.free_wall) - floor(pod.started_at))
            self.lateness_s.observe(max(0.0, late_s) if claim.held else 0.0)


class ClusterMetrics(Collector):
    """What Prometheus gets, under names of our own and under Run:ai's, so that their dashboards find them."""

    def __init__(
        self,
        state: Callable[[], NodeState],
        pods: Callable[[], Mapping[str, PodRecord]],
        ages_s: Callable[[], Mapping[str, float | None]],
        vacating: Vacating,
        events: EventWriter,
    ) -> None:
        """`ages_s`: how old what is known of each collection may be; `None`: this cluster has no such objects."""
        self._state = state
        self._pods = pods
        self._ages_s = ages_s
        self._vacating = vacating
        self._events = events

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client."""
        yield from self._of_vacating()
        ages = GaugeMetricFamily(
            "nls_kubernetes_age_seconds",
            "How old what is known may be; what was never heard of is as old as the daemon's asking",
            labels=["resource"],
        )
        for name, age_s in self._ages_s().items():
            if age_s is not None:
                ages.add_metric([name], age_s)
        yield ages
        events = CounterMetricFamily("nls_kubernetes_events", "Kubernetes Events", labels=["outcome"])
        events.add_metric(["written"], self._events.written)
        events.add_metric(["lost"], self._events.lost)
        yield events
        yield from self._of_homes()
        yield from self._of_runai()

    def _of_vacating(self) -> Iterator[Metric]:
        claims = CounterMetricFamily(
            "nls_kubernetes_claims", "Pods that claimed a Gpu, by first signal", labels=["signal"]
        )
        misses = CounterMetricFamily(
            "nls_kubernetes_claims_missed", "Claims whose Gpu was still lent when it became known", labels=["signal"]
        )
        vacated = HistogramMetricFamily(
            "nls_kubernetes_vacate_seconds", "From the first signal of a claim to its free Gpus", labels=["signal"]
        )
        for signal in SIGNALS:
            claims.add_metric([signal], self._vacating.claims[signal])
            misses.add_metric([signal], self._vacating.misses[signal])
            histogram = self._vacating.vacate_s[signal]
            vacated.add_metric([signal], histogram.buckets, histogram.total)
        late = self._vacating.lateness_s
        yield from (claims, misses, vacated)
        yield HistogramMetricFamily(
            "nls_kubernetes_vacate_lateness_seconds",
            "How long after the start of a claim's container its Gpus were still held; 0: they were free before",
            late.buckets,
            late.total,
        )

    def _of_homes(self) -> Iterator[Metric]:
        state = self._state()
        family = GaugeMetricFamily(
            "nls_gpu_home_overcommitted",
            "1: a cluster's scheduler counts more there than it has",
            labels=["gpu", "UUID"],
        )
        for gpu in state.gpus.values():
            family.add_metric([str(gpu.index), gpu.uuid], float(counted_bytes(state, gpu) > gpu.memory_total_bytes))
        yield family

    def _of_runai(self) -> Iterator[Metric]:
        state, pods = self._state(), self._pods()
        per_gpu = GaugeMetricFamily("runai_gpu_memory_used_mebibytes_per_gpu", "As in Run:ai", labels=["gpu", "UUID"])
        for gpu in state.gpus.values():
            if gpu.memory_used_bytes is not None:
                per_gpu.add_metric([str(gpu.index), gpu.uuid], gpu.memory_used_bytes / _MEBIBYTE)
        yield per_gpu
        per_workload = GaugeMetricFamily(
            "runai_gpu_memory_used_mebibytes_per_workload", "As in Run:ai", labels=["namespace", "pod"]
        )
        idle = GaugeMetricFamily("runai_gpu_idle_seconds_per_workload", "As in Run:ai", labels=["namespace", "pod"])
        used = GaugeMetricFamily("gpu_fractioning_gpu_memory_used_bytes", "As in KAI Scheduler", labels=_POD_LABELS)
        for uid, pod in pods.items():
            own = [w for w in state.workloads.values() if w.spec.tenant == uid]
            if not own:
                continue
            labels = [pod.namespace, pod.name]
            per_workload.add_metric(labels, sum(sum(w.memory_used.values()) for w in own) / _MEBIBYTE)
            if not any(w.executing for w in own):
                idle.add_metric(labels, max(0.0, state.at - max(w.idle_since or w.submitted_at for w in own)))
            sums = Tally[GpuUuid]()
            for workload in own:
                sums.update(workload.memory_used)
            for uuid, size in sums.items():
                index = str(state.gpus[uuid].index) if uuid in state.gpus else ""
                used.add_metric([*labels, uid, uuid, index], size)
        yield from (per_workload, idle, used)
