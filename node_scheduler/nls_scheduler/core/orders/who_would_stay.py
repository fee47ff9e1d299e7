"""Whether who is to start would stay: who is there may be what decides who is to leave. Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.events import ProcessReady
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.orders.giving import give
from nls_scheduler.core.orders.next_order import next_order
from nls_scheduler.core.orders.refusals import refusal
from nls_scheduler.core.planning.plan import targets_in
from nls_scheduler.core.recording.of_the_node import record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


# So many plans are made to find who would stay of several at once, before each is tried alone.
_PLANS_TOGETHER = 3


class SentOffEarly:
    """Those of one step who were sent off early and are to start: whoever is there may be what decides who is to leave.

    One would be started and sent away without end that a plan does not leave where it is then.
    """

    def __init__(self, in_order: Sequence[WorkloadId]) -> None:
        self._in_order = in_order
        self._together: Collection[WorkloadId] | None = None

    def may_start(self, state: NodeState, workload: Workload) -> bool:
        """Whether it would stay, or has waited for a while and nobody is on the way, so that only its start helps."""
        if state.at >= self.starts_anyway_at(state, workload) and _nobody_is_on_the_way(state):
            return True
        if self._together is None:
            in_order = self._in_order[self._in_order.index(workload.id) :]
            self._together = who_would_stay_together(state, in_order)
        return workload.id in self._together if self._together else would_stay(state, workload)

    def starts_anyway_at(self, state: NodeState, workload: Workload) -> float:
        """From then on it is started where nobody is on the way."""
        return inf if workload.waiting_since is None else workload.waiting_since + state.policy.cool_down_s


def _nobody_is_on_the_way(state: NodeState) -> bool:
    return all(w.pending is None and _stays(w, state.plan[w.id]) for w in state.workloads.values())


def _stays(workload: Workload, entry: PlanEntry) -> bool:
    return not workload.present or (entry.target == workload.current and not entry.yields)


def would_stay(state: NodeState, workload: Workload) -> bool:
    """Whether a plan leaves it where it is to start, with all of its gang, once they run, or moves it for burst."""
    off = (Phase.QUEUED, Phase.SUSPENDED, Phase.STARTING)
    coming = [w for w in (*gangs.fellows(state, workload), workload) if w.phase in off and state.plan[w.id].target]
    then = state
    for one in coming:
        then = _running(then, one)
    return not _who_would_leave(state, then, coming)


def who_would_stay_together(state: NodeState, in_order: Sequence[WorkloadId]) -> Collection[WorkloadId]:
    """Who of those of `in_order` that were sent away early would stay once all who are to start now run.

    One plan for many: nobody where it is but one, or no few plans find any. Who would leave then is left out, and tried
    again in the next step.
    """
    left_out: set[WorkloadId] = set()
    for _ in range(_PLANS_TOGETHER):
        then, coming = state, []
        for workload in (state.workloads[key] for key in in_order if key not in left_out):
            entry = state.plan[workload.id]
            if next_order(then, workload, entry) is Order.START and not refusal(then, workload, entry, Order.START):
                then = _running(then, workload)
                coming.append(workload)
        early = [w for w in coming if any(one.sent_off_early for one in (*gangs.fellows(state, w), w))]
        if not early or (len(early) == 1 and not left_out):
            break
        leavers = _who_would_leave(state, then, early)
        if not leavers:
            return {w.id for w in early}
        left_out.update(fellow.id for w in leavers for fellow in (*gangs.fellows(state, w), w))
    return ()


def _running(state: NodeState, workload: Workload) -> NodeState:
    """`state` once `workload`, which is to start or starts, runs where it is to be."""
    if workload.phase is not Phase.STARTING:
        state, _ = give(state, workload, state.plan[workload.id], Order.START)
    pending = state.workloads[workload.id].pending
    return state if pending is None else record(state, ProcessReady(state.at, workload.id, pending.command_id))


def _who_would_leave(state: NodeState, then: NodeState, coming: Sequence[Workload]) -> list[Workload]:
    """Those of `coming` whom a plan for `then` does not leave where that for `state` has them, nor moves for burst."""
    targets, for_burst = targets_in(then)
    plan = state.plan
    return [w for w in coming if targets.get(w.id, ()) != plan[w.id].target and w.id not in for_burst]
