"""Tells of homes that are over-full: in the log, and in Events of the pods that have to wait for them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nls_scheduler.kubernetes_driver.overfull import overfull

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.kubernetes_driver.events_out import EventWriter
    from nls_scheduler.kubernetes_driver.pods import PodRecord

log = logging.getLogger(__name__)


class OverfullHomes:
    """Those that have been told."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._told: frozenset[GpuUuid] = frozenset()

    def tell(self, state: NodeState, pods: Mapping[str, PodRecord]) -> None:
        """Once for each Gpu and time; `pods` by UID."""
        found = overfull(state)
        for uuid, home in found.items():
            if uuid not in self._told:
                log.warning("home_overcommitted: %s", home.sentence)
            for tenant in home.tenants:
                if (pod := pods.get(tenant)) is not None:
                    self._events.once(pod, "GpuHomeOvercommitted", home.sentence)
        self._told = frozenset(found)
