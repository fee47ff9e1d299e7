"""Looks at what the core does while it does it: a defect that all tests have missed is told, and stops nothing."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.invariants import broken
from nls_scheduler.core.model.commands import ReportRefusal, WorkloadCommand
from nls_scheduler.core.model.events import WorkloadEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_scheduler.core.invariants import Broken
    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.views.metrics import Metrics

PART_OF_A_CORE: Final = 0.01
"""What the sentences may cost, in the long run."""
AT_ONCE_S: Final = 0.05
"""What they may cost at once after a time in which little happened."""
FOR_ORDERS_S: Final = 0.25
"""What they may cost in advance where something is ordered: such steps are rare, and matter most."""
TOLD_AGAIN_AFTER_S: Final = 600.0
"""A sentence that is broken again and again is in the log once in this time."""
log = logging.getLogger(__name__)


class Watch:
    """Tells the log and the metrics what must not be. Its methods are called by the daemon, in its loop."""

    def __init__(
        self,
        metrics: Metrics,
        now_s: Callable[[], float] = time.monotonic,
        cost_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """`cost_s` is the processor time that this thread has had."""
        self._metrics = metrics
        self._now_s, self._cost_s = now_s, cost_s
        self._credit_s, self._credited_at = AT_ONCE_S, now_s()
        self._told_at: dict[str, float] = {}

    def look(self, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]) -> None:
        """After each step, when its commands are on their way. Never raises: a defect here is only told as well."""
        try:
            for command in commands:
                if isinstance(command, ReportRefusal):
                    self._refused(event, after, command)
            if self._can_afford(commands):
                self._hold_against_the_sentences(event, before, after, commands)
        except Exception:
            if self._is_news("the watch itself"):
                log.exception("DEFECT: a step could not be looked at; the daemon goes on")

    def _refused(self, event: Event, state: NodeState, refused: ReportRefusal) -> None:
        self._metrics.refused()
        log.error(
            "DEFECT: %s of %s was planned after %s and is refused: %s. The plan: %r",
            refused.order,
            _named(state, refused.workload),
            type(event).__name__,
            refused.why,
            state.plan[refused.workload],
        )

    def _can_afford(self, commands: tuple[Command, ...]) -> bool:
        """Whether this step is looked at: each where little happens, at least those with orders where much does."""
        now_s = self._now_s()
        earned_s = (now_s - self._credited_at) * PART_OF_A_CORE
        self._credit_s, self._credited_at = min(AT_ONCE_S, self._credit_s + earned_s), now_s
        ordered = any(isinstance(command, WorkloadCommand | ReportRefusal) for command in commands)
        return self._credit_s > (-FOR_ORDERS_S if ordered else 0.0)

    def _hold_against_the_sentences(
        self, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]
    ) -> None:
        began_s = self._cost_s()
        try:
            for each in broken(before, after, commands):
                self._metrics.violated()
                if self._is_news(each.sentence):
                    _tell(each, event, before, after, commands)
        finally:
            self._credit_s -= self._cost_s() - began_s

    def _is_news(self, sentence: str) -> bool:
        now_s = self._now_s()
        if now_s < self._told_at.get(sentence, -TOLD_AGAIN_AFTER_S) + TOLD_AGAIN_AFTER_S:
            return False
        self._told_at[sentence] = now_s
        return True


def _tell(each: Broken, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]) -> None:
    log.error(
        "DEFECT: after %s this does not hold: %s: %s. Ordered: %s",
        " of ".join((type(event).__name__, *_whom(event, before, after))),
        each.sentence.replace("_", " "),
        each.instead,
        ", ".join(_in_words(after, commands)) or "nothing",
    )


def _whom(event: Event, before: NodeState, after: NodeState) -> Iterator[str]:
    if isinstance(event, WorkloadEvent):
        yield _named(after if event.workload in after.workloads else before, event.workload)


def _in_words(state: NodeState, commands: tuple[Command, ...]) -> Iterator[str]:
    for command in commands:
        if isinstance(command, WorkloadCommand):
            yield f"{type(command).__name__} to {_named(state, command.workload)}"


def _named(state: NodeState, workload_id: WorkloadId) -> str:
    workload = state.workloads.get(workload_id)
    return workload_id if workload is None else f"{workload.spec.name} ({workload_id})"
