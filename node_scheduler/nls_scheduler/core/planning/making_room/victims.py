"""Who has to make room, and in which order. The least harm comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def harm(workload: Workload, at: float) -> tuple[bool, int, int, int, float, float, str]:
    """The order of victims at `at`: a smaller key goes first.

    Idle before executing or kept by its user, lowest priority, largest over-request, then (as a request within bounds
    has none) the fewest bytes to move, longest idle, latest arrival, id.
    """
    return (
        workload.executing or workload.kept(at),
        workload.spec.priority,
        -workload.over_request_bytes,
        workload.moved_bytes,
        workload.idle_since if workload.idle_since is not None else workload.submitted_at,
        -workload.submitted_at,
        workload.id,
    )


def may_be_suspended_from(state: NodeState, workload: Workload) -> float:
    """From when on a suspend of it is tried for somebody's burst: not just after one has failed."""
    return state.at if workload.suspend_failed_at is None else workload.suspend_failed_at + state.policy.cool_down_s


def keeps_until(state: NodeState, workload: Workload) -> float:
    """Until when a holder of burst keeps its Gpu whoever waits."""
    if workload.resident_since is None:
        return state.at
    return workload.resident_since + state.policy.residency_s(workload)
