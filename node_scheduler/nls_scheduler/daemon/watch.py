"""Looks at what the core does while it does it: a defect that all tests have missed is told, and stops nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nls_scheduler.core.model.commands import ReportRefusal

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.views.metrics import Metrics

log = logging.getLogger(__name__)


class Watch:
    """Tells the log and the metrics what must not be. Its methods are called by the daemon, in its loop."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def look(self, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]) -> None:
        """After each step, when its commands are on their way."""
        del before
        for command in commands:
            if isinstance(command, ReportRefusal):
                self._refused(event, after, command)

    def _refused(self, event: Event, state: NodeState, refused: ReportRefusal) -> None:
        self._metrics.refused()
        log.error(
            "DEFECT: %s of %s (%s) was planned after %s and is refused: %s. The plan: %r",
            refused.order,
            state.workloads[refused.workload].spec.name,
            refused.workload,
            type(event).__name__,
            refused.why,
            state.plan[refused.workload],
        )
