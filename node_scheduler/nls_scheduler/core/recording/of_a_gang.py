"""What the end of one member changes in the others of its gang. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.events import ProcessExited
from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def after_a_death(state: NodeState, dead: Workload, trouble: Why, at: float) -> NodeState:
    """Record in every other member that `dead` (still as it was while it ran) ended by itself without success.

    Deaths in a row are the gang's, not a member's; one that had run longer than a start may take begins a new row.
    """
    failures = failures_with(state, dead, at)
    others = (replace(other, failures=failures, gang_trouble=trouble) for other in fellows(state, dead))
    return state.having(*(_given_up(state, other, trouble) for other in others))


def failures_with(state: NodeState, dead: Workload, at: float) -> int:
    """The gang's deaths in a row, with this one."""
    lasted = dead.resident_since is not None and at - dead.resident_since >= state.policy.start_timeout_s
    before = max((w.failures for w in (*fellows(state, dead), dead)), default=0)
    return 1 if lasted else before + 1


def after_a_success(state: NodeState, done: Workload) -> NodeState:
    """Record in every other member that `done` has ended well: who was stopped before cannot start again."""
    others = (replace(other, gang_done=other.gang_done + 1) for other in fellows(state, done))
    return state.having(*(_given_up(state, other, other.gang_trouble) for other in others))


def _given_up(state: NodeState, member: Workload, trouble: Why | None) -> Workload:
    """`member`, which has failed if it waits for a start that never comes."""
    why = why_given_up(state, member, member.failures, trouble)
    if why is None or member.phase is not Phase.QUEUED:
        return member
    return transition(member, ProcessExited, Phase.FAILED, waiting_since=None, last_reason=why)


def why_given_up(state: NodeState, workload: Workload, failures: int, trouble: Why | None) -> Why | None:
    """Why what has no process any more gets none again; `None`: it does. All workloads count failures."""
    because = () if trouble is None else (trouble,)
    if workload.gang_done:
        names = (workload.spec.gang or "",)
        return Why(Reason.GANG_CANNOT_RESTART, numbers=(workload.gang_done,), names=names, because=because)
    if failures >= state.policy.max_failures:
        return Why(Reason.GAVE_UP, numbers=(failures,), because=because)
    return None


def death_of(dead: Workload, why: Why) -> Why:
    """What the others of its gang are told of its end."""
    return Why(Reason.GANG_MEMBER_ENDED, who=(dead.mention,), names=(dead.spec.gang or "",), because=(why,))
