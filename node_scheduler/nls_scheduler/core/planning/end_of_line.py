"""Who comes last, and asks in vain for what others wait for already, changes nothing for anybody else. Pure.

So a plan is good for one more such newcomer: a burst of submissions to a full node costs next to nothing each.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model.state import PlanEntry
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.known import KnownHomes
from nls_scheduler.core.planning.homes.paper import admission_order, waiting_order

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def entry_of_last(state: NodeState, newcomer: Workload) -> PlanEntry | None:
    """What a plan would have for `newcomer`, if it would have for all others what `state.plan` has; else `None`.

    `state.plan` was made from just what `state` has besides `newcomer`, and time alone has not changed it since.
    """
    known = state.remembered
    if not isinstance(known, KnownHomes) or (reason := known.in_vain_for(newcomer, state.at)) is None:
        return None
    if newcomer.phase is not Phase.QUEUED or not newcomer.wants_gpu:
        return None
    without_home = [w for w in state.workloads.values() if not w.home]
    if any(max(without_home, key=order) is not newcomer for order in (admission_order, waiting_order)):
        return None
    waits_since = (w.waiting_since for w in without_home if w.waiting_since is not None and w is not newcomer)
    starve = [at for since in waits_since if (at := since + state.policy.starvation_s) > state.at]
    # For who is last in line no room is kept, and one is that no more: the plan has to be made again before it starves.
    if not any(state.at < wake_at <= min(starve, default=inf) for wake_at in known.homes.wake_at):
        return None
    holders = ((w.size_bytes, w.id) for w in state.workloads.values() if w.current or w.home)
    positions = [entry.position for entry in state.plan.values()]
    _, largest = max(holders, default=(0, None))
    return PlanEntry((), (), reason, largest, position=len(positions) - positions.count(None) + 1)
