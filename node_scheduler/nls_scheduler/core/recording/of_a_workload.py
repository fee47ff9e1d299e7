"""What each event about a workload changes in the state: its process, its cells, what its user wants. Pure."""

from __future__ import annotations

from functools import singledispatch

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.allocations import Wanted
from nls_scheduler.core.model.reasons import Why, said
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Departure, Frozen, Order, Pending, Phase, Workload
from nls_scheduler.core.recording.of_an_end import (
    ended,
    let_go,
    off_the_gpu,
    phase_without_process,
    told_to_end,
    without,
)


@singledispatch
def record_of_workload(event: ev.WorkloadEvent, workload: Workload, state: NodeState) -> NodeState:
    """`state` with what `event` says of `workload`, which is in it."""
    raise TypeError(f"no rule for {event!r} of {workload.id} in {state.at}")


@record_of_workload.register
def _(event: ev.WorkloadRespecified, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, spec=event.spec))


@record_of_workload.register
def _(event: ev.HomeAssigned, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, given_home=event.gpus))


@record_of_workload.register
def _(event: ev.WorkloadReleased, workload: Workload, state: NodeState) -> NodeState:
    reason = workload.release_reason or said(event.reason)
    return state.having(replace(workload, release_reason=reason, wants_gpu=False))


@record_of_workload.register
def _(event: ev.SupervisorLost, workload: Workload, state: NodeState) -> NodeState:
    return without(let_go(state, workload, event.at), workload.id)


@record_of_workload.register
def _(event: ev.SuspendRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.spec.kind is Kind.COMMAND or workload.cell_waits:
        return state  # a cell that waits brings it back, as the next one would
    reason = said(event.reason)
    off = replace(workload, wants_gpu=False, suspend_reason=reason, waiting_since=None, woken_by_cell=False)
    # Its user knows best whether it can be tried again.
    return state.having(replace(off, suspend_failed_at=None, suspend_trouble=None))


@record_of_workload.register
def _(event: ev.ResumeRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase is Phase.FAILED:
        workload = transition(workload, ev.ResumeRequested, phase_without_process(workload), failures=0)
        others = [w for w in gangs.fellows(state, workload) if w.phase is Phase.FAILED and w.release_reason is None]
        for other in others:
            again = transition(other, ev.ResumeRequested, Phase.QUEUED, failures=0)
            state = state.having(wanting(again, event.at))
    return state.having(wanting(replace(workload, woken_by_cell=False, suspend_reason=None), event.at))


@record_of_workload.register
def _(event: ev.KeepRequested, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, keep_until=event.until))


@record_of_workload.register
def _(event: ev.MigrateRequested, workload: Workload, state: NodeState) -> NodeState:
    """A wish of one that runs; it holds until its process is ready again, there or elsewhere."""
    return state.having(replace(workload, wish=event.gpu)) if workload.phase is Phase.RUNNING else state


@record_of_workload.register
def _(event: ev.CellStarted, workload: Workload, state: NodeState) -> NodeState:
    return state.having(cell_started(workload, event.at))


def cell_started(workload: Workload, at: float) -> Workload:
    """A cell of it runs from now on, or waits for the Gpu."""
    woken = workload.woken_by_cell or not workload.wants_gpu
    started = replace(workload, cell_since=at, woken_by_cell=woken, unsaved=True, interrupt=None, wished_bytes=0)
    if workload.freezable and workload.frozen is None:
        started = replace(started, freeze_trouble=None)  # what failed in the cell before is tried in this one
    if workload.phase is Phase.RUNNING:
        started = replace(started, suspend_reason=None)  # it goes on where it is, whatever its user wanted before
    return wanting(started, at)


@record_of_workload.register
def _(event: ev.CellFinished, workload: Workload, state: NodeState) -> NodeState:
    return state.having(cell_finished(workload, event.at))


def cell_finished(workload: Workload, at: float) -> Workload:
    """Its cell has ended, or waits no more."""
    workload = replace(workload, cell_since=None, idle_since=at, interrupt=None)
    if workload.phase is Phase.RUNNING:
        return replace(workload, failures=0, unsaved=True)
    if workload.woken_by_cell and not workload.present:
        return replace(workload, wants_gpu=False, woken_by_cell=False, waiting_since=None)
    return workload


@record_of_workload.register
def _(event: ev.StateSaved, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, saved_bytes=event.saved_bytes, unsaved=workload.cell_since is not None))


@record_of_workload.register
def _(event: ev.VariablesLost, workload: Workload, state: NodeState) -> NodeState:
    """For the history: nobody goes anywhere for it."""
    del event, workload
    return state


@record_of_workload.register
def _(event: ev.FreezeTested, workload: Workload, state: NodeState) -> NodeState:
    if event.refusal is None and workload.freezable:
        return state  # told again to a daemon that knows it: what failed in this cell since then stays so
    trouble = None if event.refusal is None else said(event.refusal)
    return state.having(replace(workload, freezable=event.refusal is None, freeze_trouble=trouble))


@record_of_workload.register
def _(event: ev.ProcessFrozen, workload: Workload, state: NodeState) -> NodeState:
    """It keeps its process and its cell; what it held counts as being released until the driver shows it free."""
    if workload.phase is not Phase.RUNNING and not _answers(workload, event, Order.FREEZE):
        return state
    why = workload.last_reason if workload.pending is None else workload.pending.reason
    frozen = Frozen(workload.current, event.frozen_bytes, event.at, why)
    state = let_go(state, workload, event.at)
    off = replace(off_the_gpu(workload, event.at), move=None, wish=None)
    still = transition(off, ev.ProcessFrozen, Phase.SUSPENDED, frozen=frozen, process=workload.process)
    still = replace(still, freezable=workload.freezable, wants_gpu=workload.release_reason is None)
    return state.having(replace(still, waiting_since=event.at if still.wants_gpu else None))


@record_of_workload.register
def _(event: ev.FreezeFailed, workload: Workload, state: NodeState) -> NodeState:
    """Once in a cell: it goes on, and is interrupted when that is due."""
    if not _answers(workload, event, Order.FREEZE):
        return state
    back = transition(workload, ev.FreezeFailed, Phase.RUNNING, pending=None, perhaps_locked=False)
    return state.having(replace(back, freeze_trouble=said(event.reason)))


@record_of_workload.register
def _(event: ev.ProcessThawed, workload: Workload, state: NodeState) -> NodeState:
    frozen = workload.frozen
    if frozen is None or not (workload.phase is Phase.SUSPENDED or _answers(workload, event, Order.THAW)):
        return state
    waited = event.at - (workload.pending.issued_at if workload.pending else event.at)
    runs = transition(
        workload,
        ev.ProcessThawed,
        Phase.RUNNING,
        pending=None,
        perhaps_locked=False,
        frozen=None,
        current=frozen.gpus,
        # All of it has come back at once: nobody has to see that first.
        memory_used=dict.fromkeys(frozen.gpus, frozen.bytes),
        measured=True,
        waiting_since=None,
        wants_gpu=workload.release_reason is None and workload.suspend_reason is None,
        resident_since=event.at,
        last_move_s=waited,
    )
    return state.having(runs)


@record_of_workload.register
def _(event: ev.ThawFailed, workload: Workload, state: NodeState) -> NodeState:
    """It stands still as before; whatever came back to its Gpu is gone when the driver shows that."""
    if workload.frozen is None or not _answers(workload, event, Order.THAW):
        return state
    state, frozen = let_go(state, workload, event.at), replace(workload.frozen, failed_at=event.at)
    back = transition(workload, ev.ThawFailed, Phase.SUSPENDED, frozen=frozen, pending=None, perhaps_locked=False)
    return state.having(replace(back, current=(), memory_used={}, measured=False, freeze_trouble=said(event.reason)))


@record_of_workload.register
def _(event: ev.MemoryTrimmed, workload: Workload, state: NodeState) -> NodeState:
    if workload.trim is None or workload.trim.command_id != event.command_id:
        return state
    return state.having(trimmed(workload, event.at, workload.trim.deadline_at))


def trimmed(workload: Workload, at: float, shows_by: float) -> Workload:
    """Its trim is answered, or given up; the driver shows what that freed by `shows_by`."""
    return replace(workload, trim=None, trimmed_at=at, trim_shows_by=shows_by)


@record_of_workload.register
def _(event: ev.MemoryWanted, workload: Workload, state: NodeState) -> NodeState:
    """Said again after a lost connection, it is the same allocation."""
    if workload.answer is not None and event.number <= workload.answer.number:
        return state
    deadline_at = event.at + state.policy.allocation_wait_s
    wanted = Wanted(event.number, event.gpu, event.bytes, event.held_bytes, event.at, deadline_at)
    known = workload.wanted is not None and event.number <= workload.wanted.number
    return state if known else state.having(replace(workload, wanted=wanted))


@record_of_workload.register
def _(event: ev.CellInterrupted, workload: Workload, state: NodeState) -> NodeState:
    """What counts is that the cell ends, or that the deadline comes."""
    del event, workload
    return state


@record_of_workload.register
def _(event: ev.ProcessStarted, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, process=event.process)) if workload.present else state


@record_of_workload.register
def _(event: ev.ProcessReady, workload: Workload, state: NodeState) -> NodeState:
    if not _answers(workload, event, Order.START):
        return state
    waited = event.at - (workload.pending.issued_at if workload.pending else event.at)
    ready = transition(
        workload,
        ev.ProcessReady,
        Phase.RUNNING,
        pending=None,
        waiting_since=None,
        woken_by_cell=False,
        suspend_reason=None,
        # Where it is now is where it was wished, or the wish could not be met.
        wish=None,
        moved_at=event.at if workload.wish is not None else workload.moved_at,
        resident_since=event.at,
        idle_since=event.at,
        last_move_s=workload.last_move_s + waited,
        departure=None,
    )
    return state.having(ready)


@record_of_workload.register
def _(event: ev.StartFailed, workload: Workload, state: NodeState) -> NodeState:
    pending = workload.pending
    older = pending is not None and pending.order is Order.START and pending.command_id != event.command_id
    if workload.phase not in (Phase.STARTING, Phase.SUSPENDING) or older:
        return state  # what runs has started, whatever is said of it
    return ended(state, workload, event.at, said(event.reason), ev.StartFailed)


@record_of_workload.register
def _(event: ev.ProcessSuspended, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase not in (Phase.SUSPENDING, Phase.RUNNING):
        return state
    left = departure_of(workload, event)
    state = let_go(state, workload, event.at)
    saved = transition(
        off_the_gpu(workload, event.at), ev.ProcessSuspended, Phase.SUSPENDED, saved_bytes=event.saved_bytes
    )
    return state.having(replace(saved, departure=left, last_move_s=event.at - left.order.issued_at, failures=0))


def departure_of(workload: Workload, event: ev.ProcessSuspended) -> Departure:
    """How `workload`, as it was before the event, has left; an order that was given up before has become that."""
    late = Pending(Order.SUSPEND, event.command_id, event.at, event.at, workload.last_reason)
    return Departure(workload.current, workload.pending or late, event.at, event.saved_bytes)


@record_of_workload.register
def _(event: ev.SuspendFailed, workload: Workload, state: NodeState) -> NodeState:
    if not _answers(workload, event, Order.SUSPEND):
        return state
    if event.busy:
        return state.having(_not_suspended(workload))
    return state.having(not_suspended(workload, event.at, said(event.reason)))


def not_suspended(workload: Workload, at: float, trouble: Why) -> Workload:
    """It goes on where it is; `trouble`: why its suspend has failed."""
    return replace(_not_suspended(workload), suspend_failed_at=at, suspend_trouble=trouble)


def _not_suspended(workload: Workload) -> Workload:
    # The planner may have given it up for lost; while it has a process and no wish of its user's, it wants to stay.
    wants = workload.wants_gpu or workload.suspend_reason is None
    reason = None if wants else workload.suspend_reason
    return transition(workload, ev.SuspendFailed, Phase.RUNNING, pending=None, wants_gpu=wants, suspend_reason=reason)


@record_of_workload.register
def _(event: ev.ProcessExited, workload: Workload, state: NodeState) -> NodeState:
    # Of an earlier process: a start is answered by ProcessStarted before its process can exit.
    stale = event.process is not None and event.process != workload.process
    # A stop that found no process answers a stop; it may have crossed with a newer start.
    gone = not (workload.present or workload.frozen)
    if stale or gone or (event.process is None and not told_to_end(workload)):
        return state
    return ended(state, workload, event.at, said(event.reason), ev.ProcessExited, event.code)


def _answers(workload: Workload, event: ev.CommandEvent, order: Order) -> bool:
    pending = workload.pending
    return pending is not None and pending.order is order and pending.command_id == event.command_id


def wanting(workload: Workload, at: float) -> Workload:
    """It wants a Gpu, unless it is to end; it waits from now on if it has none."""
    since = at if workload.waiting_since is None and not workload.present else workload.waiting_since
    return replace(workload, wants_gpu=workload.release_reason is None, waiting_since=since)
