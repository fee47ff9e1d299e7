"""A node on which nothing happens any more comes to rest: orders that are taken back, without end, are found here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.commands import WorkloadCommand
from nls_scheduler.core.model.reasons import Reason

if TYPE_CHECKING:
    from nls_scheduler.core.simulator import SimulatedNode

HOUR_S = 3600.0
NOT_FOR_LONG = (Reason.BEING_FREED, Reason.WOULD_LEAVE, Reason.WAITS, Reason.RESTARTED)


def comes_to_rest(node: SimulatedNode) -> None:
    """Once nothing happens any more, nothing is ordered any more, and nobody waits for what is to be ordered."""
    node.settle()
    node.sample()  # who has lost a home to a stranger is seen to borrow from the next one on
    node.advance(4 * HOUR_S)  # what has been put off: deadlines, turns, moves of which an hour has only so many
    ordered = _orders(node)
    node.advance(2 * HOUR_S)
    without_end = [f"{type(c).__name__} {c.workload} {c.reason.kind}" for c in _orders(node)[len(ordered) :]]
    assert not without_end[:6], "it goes on without end"
    plan = node.state.plan
    assert not [key for key, entry in plan.items() if entry.reason.kind in NOT_FOR_LONG], "nobody leaves any more"


def _orders(node: SimulatedNode) -> list[WorkloadCommand]:
    """All that was ever ordered."""
    return [each for _, commands in node.history for each in commands if isinstance(each, WorkloadCommand)]
