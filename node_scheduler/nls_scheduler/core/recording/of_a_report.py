"""What a supervisor says of its workload when it connects again: it makes up for what nobody heard. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.ids import CommandId
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.model.workload import Order, Pending, Phase
from nls_scheduler.core.recording.of_a_workload import cell_finished, cell_started, record_of_workload
from nls_scheduler.core.recording.of_an_end import ended, off_the_gpu

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def record_report(event: ev.WorkloadReported, workload: Workload, state: NodeState) -> NodeState:
    """Make up for what was said while nobody listened."""
    workload, state, has_lost = _with_what_is_now(event, workload, state)
    unheard = _unheard(event, workload, has_lost=has_lost)
    if isinstance(unheard, ev.ProcessExited):
        return ended(state, workload, event.at, said(unheard.reason), ev.ProcessExited)
    if event.process is not None and (workload.present or unheard is not None):
        workload = replace(workload, process=event.process)
        state = state.having(workload)
    return state if unheard is None else record_of_workload(unheard, workload, state)


def as_if_heard(event: ev.WorkloadReported, state: NodeState) -> ev.WorkloadEvent:
    """What nobody heard until this report in `state`, as the event that would have told it; else the report itself."""
    workload = state.workloads.get(event.workload)
    if workload is None:
        return event
    workload, _, has_lost = _with_what_is_now(event, workload, state)
    return _unheard(event, workload, has_lost=has_lost) or event


def _with_what_is_now(
    event: ev.WorkloadReported, workload: Workload, state: NodeState
) -> tuple[Workload, NodeState, bool]:
    """With what is so by the report, whatever was known, and whether the journal has lost its end."""
    received = event.received or CommandId(0)
    # An order that is not known: the journal has lost its end, and with it where that order has led.
    has_lost = workload.id in state.unreported and received >= state.known_until
    state = replace(state.after_command(received), unreported=state.unreported - {workload.id})
    if has_lost and event.gpus and set(event.gpus) <= state.gpus.keys():
        workload = _as_reported(event, workload, state)
        state = _not_releasing(state, event)
    saved_bytes = workload.saved_bytes if event.saved_bytes is None else event.saved_bytes
    workload = replace(_with_its_cell(event, workload), saved_bytes=saved_bytes)
    return workload, state.having(workload), has_lost


def _with_its_cell(event: ev.WorkloadReported, workload: Workload) -> Workload:
    """With the begin or the end of its cell that was not heard: one that is known and runs on changes nothing."""
    if event.executing:
        goes_on = workload.cell_since is not None and event.process is not None
        since = event.at if workload.cell_since is None else workload.cell_since
        return workload if goes_on else replace(cell_started(workload, event.at), cell_since=since)
    if workload.cell_since is None:
        return workload
    has_died = workload.present and event.process is None
    return replace(workload, cell_since=None) if has_died else cell_finished(workload, event.at)


def _unheard(event: ev.WorkloadReported, workload: Workload, *, has_lost: bool) -> ev.WorkloadEvent | None:
    """The answer to the order that was given last, if that was not heard, or the end of its process."""
    pending = workload.pending
    answered = pending is None or event.command_id >= pending.command_id
    if event.process is not None:
        if (told := _told_of_standing(event, workload, answered=answered)) is not None:
            return told
        if event.ready and answered and pending is not None and pending.order is Order.START:
            return ev.ProcessReady(event.at, workload.id, pending.command_id)
        return None
    does_something_else = has_lost and event.doing not in ("", Order.START)
    starting = pending is not None and pending.order is Order.START and not answered and not does_something_else
    if not (workload.present or workload.frozen) or starting:
        # A start is on its way to it, or being carried out: its answer is still to come.
        return None
    if answered and pending is not None and pending.order is Order.SUSPEND and event.saved_bytes is not None:
        return ev.ProcessSuspended(event.at, workload.id, pending.command_id, event.saved_bytes)
    return ev.ProcessExited(event.at, workload.id, workload.process, Why(Reason.ENDED_UNHEARD))


def _not_releasing(state: NodeState, event: ev.WorkloadReported) -> NodeState:
    """What was seen of its process, where nobody knew it to be, is not on its way back."""
    gpus = dict(state.gpus)
    for uuid in event.gpus:
        left = tuple(r for r in gpus[uuid].releasing if r.process != event.process)
        gpus[uuid] = updated(gpus[uuid], releasing=left)
    return replace(state, gpus=gpus)


def _as_reported(event: ev.WorkloadReported, workload: Workload, state: NodeState) -> Workload:
    """Where and how it is by its own account: what was known of it is from before."""
    phase, pending = Phase.RUNNING, None
    under_way = {
        Order.START.value: (Order.START, Phase.STARTING, state.policy.start_timeout_s),
        Order.SUSPEND.value: (Order.SUSPEND, Phase.SUSPENDING, state.policy.suspend_timeout_s),
    }
    if event.received is not None and event.doing in under_way:
        order, phase, timeout_s = under_way[event.doing]
        pending = Pending(order, event.received, event.at, event.at + timeout_s, Why(Reason.ADOPTED))
    # Who may not borrow runs at home only.
    home = workload.home if workload.given_home is not None or workload.spec.may_borrow else event.gpus
    runs = phase is not Phase.STARTING
    is_the_same = (event.process, event.gpus) == (workload.process, workload.current)
    # Whom its user had suspended, and who is back all the same, was resumed.
    suspend_reason = workload.suspend_reason if is_the_same or phase is Phase.SUSPENDING else None
    return transition(
        off_the_gpu(workload, event.at),
        ev.WorkloadReported,
        phase,
        home=home,
        home_since=workload.home_since if workload.home_since is not None or not home else event.at,
        current=event.gpus,
        # The next sample tells it of another process; until then its memory is a stranger's, or nobody has seen it.
        measured=workload.measured and is_the_same,
        memory_used=workload.memory_used if is_the_same else {},
        pending=pending,
        departure=None,
        move=None,
        suspend_reason=suspend_reason,
        wants_gpu=workload.release_reason is None and suspend_reason is None,
        last_reason=Why(Reason.ADOPTED) if pending is not None else workload.last_reason or Why(Reason.ADOPTED),
        waiting_since=None if runs else event.at,
        resident_since=event.at if runs else None,
        idle_since=event.at if runs else None,
    )


def _told_of_standing(event: ev.WorkloadReported, workload: Workload, *, answered: bool) -> ev.CommandEvent | None:
    """What became of freezing or thawing its process, if that is not known yet."""
    pending, head = workload.pending, (event.at, workload.id)
    command_id = event.command_id if pending is None else pending.command_id
    order = None if pending is None or not answered else pending.order
    if event.frozen_bytes is None:
        if order is Order.FREEZE:
            return ev.FreezeFailed(*head, command_id, Why(Reason.FAILED_UNHEARD))
        stands = workload.frozen is not None and pending is None
        return ev.ProcessThawed(*head, command_id) if stands or order is Order.THAW else None
    if order is Order.THAW:
        return ev.ThawFailed(*head, command_id, Why(Reason.FAILED_UNHEARD))
    runs = workload.phase is Phase.RUNNING
    return ev.ProcessFrozen(*head, command_id, event.frozen_bytes) if runs or order is Order.FREEZE else None
