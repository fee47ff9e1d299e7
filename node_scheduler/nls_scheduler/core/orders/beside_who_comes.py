"""What the plan says of all others once some have been told to come: what they may use, and who came first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.planning.entries import WHY_THERE
from nls_scheduler.core.planning.making_room.allowances import while_some_leave
from nls_scheduler.core.planning.making_room.rooms import has_room

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


def beside_who_comes(state: NodeState) -> NodeState:
    """With what everybody may use while others are still to leave, and why who was to come as well waits after all."""
    targets = {key: entry.target for key, entry in state.plan.items()}
    now = while_some_leave(state, targets, {key: entry.allowance_bytes for key, entry in state.plan.items()})
    plan = {}
    for key, entry in state.plan.items():
        waits = not state.workloads[key].present and entry.reason.kind in WHY_THERE
        why = _who_came_first(state, state.workloads[key], entry) if waits else entry.reason
        plan[key] = updated(entry, reason=why, allowance_bytes=now[key])
    return replace(state, plan=plan)


def _who_came_first(state: NodeState, workload: Workload, entry: PlanEntry) -> Why:
    """The largest of those on what `workload` was to have: with who has just been told to come, they leave no room."""
    lacking = [uuid for uuid in entry.target if not has_room(state, workload, state.gpus[uuid])]
    there = {w.id: w for uuid in lacking for w in state.on(uuid)}.values()
    if not there:
        gang = workload.spec.gang
        return Why(Reason.WAITS) if gang is None else Why(Reason.GANG_WITHOUT_ROOM, names=(gang,))
    holder = max(there, key=lambda w: (w.size_bytes, w.id))
    held = tuple([uuid for uuid in lacking if uuid in holder.current])
    return Why(Reason.HELD, gpus=held, who=(holder.mention,))
