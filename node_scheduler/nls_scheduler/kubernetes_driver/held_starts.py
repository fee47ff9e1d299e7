"""Pods whose start is held until their Gpus are vacated: for how long, and which one started all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from nls_scheduler.kubernetes_driver.starting import waits_for
from nls_scheduler.kubernetes_driver.vacating import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.core import Metric

    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.kubernetes_driver.events_out import EventWriter
    from nls_scheduler.kubernetes_driver.pods import PodRecord

ANYWAY: Final = "GpuStartedBeforeVacated"
"""The reason of the Event."""


@dataclass(slots=True)
class _Start:
    """Since when a pod asks, and whether its containers were told to start."""

    since: float
    over: bool = False


class HeldStarts(Collector):
    """Answers each pod that asks. Lives in the daemon's loop, but for `collect`."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._starts: dict[str, _Start] = {}
        self.held_s = Histogram()
        self.anyway = 0

    def asked(
        self,
        pod: PodRecord,
        state: NodeState,
        pods: Mapping[str, PodRecord],
        at: float,
        heard_at: float | None,
        *,
        gives_up: bool,
        somewhere: bool = False,
    ) -> dict[str, Any]:
        """The answer to `pod` at `at`: whether it may start, and why not.

        `pods`: by UID, who is on this node. `heard_at`: when the kubelet told its allocations last. `gives_up`: it has
        waited for as long as it may and starts all the same. `somewhere`: see `waits_for`.
        """
        self._starts = {uid: start for uid, start in self._starts.items() if uid in pods}
        start = self._starts.setdefault(pod.uid, _Start(at))
        heard = heard_at is not None and heard_at > start.since
        why = waits_for(state, pod, kubelet_heard=heard, somewhere=somewhere)
        if not start.over and (why is None or gives_up):
            start.over = True
            self.held_s.observe(at - start.since)
            if why is not None:
                self.anyway += 1
                self._events.once(pod, ANYWAY, f"It starts after a wait of {at - start.since:.0f} s, although: {why}")
        return {"vacated": why is None, "reason": why or ""}

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client."""
        yield HistogramMetricFamily(
            "nls_kubernetes_start_held_seconds",
            "For how long pods that ask before they start were held until their Gpus were vacated",
            self.held_s.buckets,
            self.held_s.total,
        )
        anyway = CounterMetricFamily(
            "nls_kubernetes_starts_anyway", "Pods that had waited for as long as they may and started on a held Gpu"
        )
        anyway.add_metric([], self.anyway)
        yield anyway
