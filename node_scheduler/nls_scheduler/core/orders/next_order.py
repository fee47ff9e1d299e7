"""The next legal thing on the way to the plan: the rungs of the ladder, least harm first. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase
from nls_scheduler.core.planning.gangs import have_room
from nls_scheduler.core.planning.making_room.rooms import borrows_beside_a_stranger, has_room
from nls_scheduler.core.planning.making_room.victims import may_be_suspended_from
from nls_scheduler.core.planning.places import freezing, trims
from nls_scheduler.core.recording.above_limit import above_limit

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


def next_order(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """The next legal thing on the way to the plan, or nothing for now."""
    match workload.phase:
        case Phase.SUSPENDED if workload.frozen is not None:
            return Order.THAW if freezing.can_thaw(state, workload, workload.frozen, entry) else None
        case Phase.QUEUED | Phase.SUSPENDED:
            fits = bool(entry.target) and all(has_room(state, workload, state.gpus[uuid]) for uuid in entry.target)
            gang = [workload, *gangs.fellows(state, workload)]
            return Order.START if fits and have_room(state, gang, lambda key: state.plan[key].target) else None
        case Phase.STARTING:
            # What was saved stands, so that giving a start up loses nothing, but for one that stands still or its gang.
            costs = workload.frozen is not None or (not entry.target and gangs.would_end(state, workload))
            gives_up = entry.target != workload.current and not costs
            return Order.STOP if gives_up or _overdue(state, workload, entry) else None
        case Phase.SUSPENDING:
            return _hurry(state, workload, entry)
        case Phase.RUNNING if entry.target != workload.current:
            return _leave(state, workload, entry)
        case _:
            return None


def _hurry(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """A suspend is stopped at the deadline of a guarantee; a stop that is not obeyed is done by the daemon itself."""
    pending = workload.pending
    if pending is None or pending.order is Order.END:
        return None
    if pending.order is Order.STOP:
        # Only who was told to freeze or thaw it can say whether it may be killed; its Gpu is lost to all until then.
        return Order.END if state.at >= pending.deadline_at and not workload.perhaps_locked else None
    if pending.order is Order.FREEZE:
        return Order.STOP if _overdue(state, workload, entry) else None
    owed = entry.deadline_at is not None and state.at >= entry.deadline_at
    return Order.STOP if workload.release_reason is not None or owed else None


def keep_limit(workload: Workload) -> Order | None:
    """Above its limit in too many samples: trim, and if that did not help, stop."""
    if workload.phase is not Phase.RUNNING or not above_limit(workload) or workload.trim is not None:
        return None
    may_trim = workload.spec.kind is Kind.NOTEBOOK and not workload.trimmed
    return Order.TRIM if may_trim else Order.STOP


def _leave(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """Least harm first: trim, wait for the end of the cell, freeze or interrupt it, suspend, at the deadline stop."""
    overdue = _overdue(state, workload, entry)
    if workload.release_reason is not None:
        return Order.STOP
    if not overdue and trims.is_open(state, workload, entry):
        return trims.order(workload, entry)
    if workload.spec.kind is Kind.COMMAND:
        # Waiting makes a command that starts again lose more; one that cannot keeps the whole time to shrink.
        gang_stops = workload.spec.gang is not None and not entry.target and not gangs.runs(state, workload)
        return Order.STOP if workload.spec.requeue or gang_stops or overdue else None
    if overdue:
        return Order.STOP
    asked_for = workload.suspend_reason is not None or workload.wish in entry.target
    if workload.kept(state.at) and entry.deadline_at is None and not asked_for:
        return None
    if workload.executing and freezing.is_due(state, workload, entry):
        return Order.FREEZE
    if workload.executing:
        return Order.INTERRUPT if _interrupt_is_due(state, workload, entry) else None
    in_doubt = any(borrows_beside_a_stranger(workload, state.gpus[uuid]) for uuid in entry.target)
    if in_doubt and entry.deadline_at is None:
        return None
    return Order.SUSPEND if may_be_suspended_from(state, workload) <= state.at else None


def _interrupt_is_due(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    if workload.interrupt is not None or entry.deadline_at is None:
        return False
    return state.at >= state.policy.interrupt_at(entry.deadline_at)


def _overdue(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    deadlines = [entry.deadline_at, workload.pending.deadline_at if workload.pending else None]
    return any(deadline is not None and state.at >= deadline for deadline in deadlines)
