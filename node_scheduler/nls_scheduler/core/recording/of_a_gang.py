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
    others = []
    for other in fellows(state, dead):
        changed = replace(other, failures=failures, gang_trouble=trouble)
        if failures >= state.policy.max_failures and other.phase is Phase.QUEUED:
            reason = gave_up(failures, trouble)
            changed = transition(changed, ProcessExited, Phase.FAILED, waiting_since=None, last_reason=reason)
        others.append(changed)
    return state.having(*others)


def failures_with(state: NodeState, dead: Workload, at: float) -> int:
    """The gang's deaths in a row, with this one."""
    lasted = dead.resident_since is not None and at - dead.resident_since >= state.policy.start_timeout_s
    before = max((w.failures for w in (*fellows(state, dead), dead)), default=0)
    return 1 if lasted else before + 1


def after_a_success(state: NodeState, done: Workload) -> NodeState:
    """Record in every other member that `done` has ended well."""
    return state.having(*(replace(w, gang_done=w.gang_done + 1) for w in fellows(state, done)))


def death_of(dead: Workload, why: Why) -> Why:
    """What the others of its gang are told of its end."""
    return Why(Reason.GANG_MEMBER_ENDED, who=(dead.mention,), names=(dead.spec.gang or "",), because=(why,))


def gave_up(failures: int, why: Why) -> Why:
    """The last reason of a member."""
    return Why(Reason.GAVE_UP, numbers=(failures,), because=(why,))
