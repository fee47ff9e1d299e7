"""What each event about a workload changes in the state: its process, its cells, what its user wants. Pure."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.allocations import Wanted
from nls_scheduler.core.model.gpu import Releasing
from nls_scheduler.core.model.ids import CommandId
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.model.workload import Frozen, Kind, Order, Pending, Phase, Workload
from nls_scheduler.core.recording import of_a_gang

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId

# One sample may have met a process in the middle of giving memory back.
_POLLS_ABOVE_LIMIT = 2
# Above in one sample of three is forgiven; more often, it adds up.
_FORGIVEN_BY_ONE_WITHIN = 0.5


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
    return _without(_let_go(state, workload, event.at), workload.id)


@record_of_workload.register
def _(event: ev.SuspendRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.spec.kind is Kind.COMMAND or workload.cell_waits:
        return state  # a cell that waits brings it back, as the next one would
    reason = said(event.reason)
    off = replace(workload, wants_gpu=False, suspend_reason=reason, waiting_since=None, woken_by_cell=False)
    return state.having(replace(off, suspend_failed_at=None))  # its user knows best whether it can be tried again


@record_of_workload.register
def _(event: ev.ResumeRequested, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase is Phase.FAILED:
        workload = transition(workload, ev.ResumeRequested, _phase_without_process(workload), failures=0)
        others = [w for w in gangs.fellows(state, workload) if w.phase is Phase.FAILED and w.release_reason is None]
        for other in others:
            again = transition(other, ev.ResumeRequested, Phase.QUEUED, failures=0)
            state = state.having(_wanting(again, event.at))
    return state.having(_wanting(replace(workload, woken_by_cell=False, suspend_reason=None), event.at))


@record_of_workload.register
def _(event: ev.KeepRequested, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, keep_until=event.until))


@record_of_workload.register
def _(event: ev.MigrateRequested, workload: Workload, state: NodeState) -> NodeState:
    """A wish of one that runs; it holds until its process is ready again, there or elsewhere."""
    return state.having(replace(workload, wish=event.gpu)) if workload.phase is Phase.RUNNING else state


@record_of_workload.register
def _(event: ev.CellStarted, workload: Workload, state: NodeState) -> NodeState:
    woken = workload.woken_by_cell or not workload.wants_gpu
    started = replace(workload, cell_since=event.at, woken_by_cell=woken, unsaved=True, interrupt=None, wished_bytes=0)
    if workload.freezable and workload.frozen is None:
        started = replace(started, freeze_trouble=None)  # what failed in the cell before is tried in this one
    return state.having(_wanting(started, event.at))


@record_of_workload.register
def _(event: ev.CellFinished, workload: Workload, state: NodeState) -> NodeState:
    workload = replace(workload, cell_since=None, idle_since=event.at, interrupt=None)
    if workload.phase is Phase.RUNNING:
        workload = replace(workload, failures=0, unsaved=True)
    elif workload.woken_by_cell and not workload.present:
        workload = replace(workload, wants_gpu=False, woken_by_cell=False, waiting_since=None)
    return state.having(workload)


@record_of_workload.register
def _(event: ev.StateSaved, workload: Workload, state: NodeState) -> NodeState:
    return state.having(replace(workload, saved_bytes=event.saved_bytes, unsaved=workload.cell_since is not None))


@record_of_workload.register
def _(event: ev.VariablesLost, workload: Workload, state: NodeState) -> NodeState:
    """For the history: nobody goes anywhere for it."""
    del event, workload
    return state


@record_of_workload.register
def _(event: ev.WorkloadReported, workload: Workload, state: NodeState) -> NodeState:
    """Make up for what was said while nobody listened."""
    received = event.received or CommandId(0)
    # An order that is not known: the journal has lost its end, and with it where that order has led.
    has_lost = workload.id in state.unreported and received >= state.known_until
    following = max(state.next_command, CommandId(received + 1))
    state = replace(state, unreported=state.unreported - {workload.id}, next_command=following)
    if has_lost and event.gpus and set(event.gpus) <= state.gpus.keys():
        workload = _as_reported(event, workload, state)
        state = _not_releasing(state, event)
    cell_since = (workload.cell_since or event.at) if event.executing else None
    saved_bytes = workload.saved_bytes if event.saved_bytes is None else event.saved_bytes
    workload = replace(workload, cell_since=cell_since, saved_bytes=saved_bytes)
    if event.executing:
        workload = _wanting(workload, event.at)
    state = state.having(workload)
    pending = workload.pending
    answered = pending is None or event.command_id >= pending.command_id
    if event.process is not None and (told := _told_of_standing(event, workload, answered=answered)) is not None:
        return record_of_workload(told, replace(workload, process=event.process), state)
    if event.process is not None:
        state = state.having(replace(workload, process=event.process)) if workload.present else state
        if event.ready and answered and pending is not None and pending.order is Order.START:
            ready = ev.ProcessReady(event.at, workload.id, pending.command_id)
            return record_of_workload(ready, state.workloads[workload.id], state)
        return state
    does_something_else = has_lost and event.doing not in ("", Order.START)
    starting = pending is not None and pending.order is Order.START and not answered and not does_something_else
    if not (workload.present or workload.frozen) or starting:
        # A start is on its way to it, or being carried out: its answer is still to come.
        return state
    if answered and pending is not None and pending.order is Order.SUSPEND and event.saved_bytes is not None:
        saved = ev.ProcessSuspended(event.at, workload.id, pending.command_id, event.saved_bytes)
        return record_of_workload(saved, state.workloads[workload.id], state)
    return _ended(state, workload, event.at, Why(Reason.ENDED_UNHEARD), ev.ProcessExited)


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
    keeps = workload.home or workload.given_home is not None or workload.spec.movable
    home = workload.home if keeps else event.gpus
    runs = phase is not Phase.STARTING
    return transition(
        _off_the_gpu(workload, event.at),
        ev.WorkloadReported,
        phase,
        home=home,
        home_since=workload.home_since if workload.home_since is not None or not home else event.at,
        current=event.gpus,
        pending=pending,
        move=None,
        wants_gpu=workload.release_reason is None and workload.suspend_reason is None,
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
    state = _let_go(state, workload, event.at)
    off = replace(_off_the_gpu(workload, event.at), move=None, wish=None)
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
    state, frozen = _let_go(state, workload, event.at), replace(workload.frozen, failed_at=event.at)
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
    )
    return state.having(ready)


@record_of_workload.register
def _(event: ev.StartFailed, workload: Workload, state: NodeState) -> NodeState:
    pending = workload.pending
    older = pending is not None and pending.order is Order.START and pending.command_id != event.command_id
    if not workload.present or older:
        return state
    return _ended(state, workload, event.at, said(event.reason), ev.StartFailed)


@record_of_workload.register
def _(event: ev.ProcessSuspended, workload: Workload, state: NodeState) -> NodeState:
    if workload.phase is not Phase.SUSPENDING:
        return state
    took = event.at - (workload.pending.issued_at if workload.pending else event.at)
    state = _let_go(state, workload, event.at)
    saved = transition(
        _off_the_gpu(workload, event.at), ev.ProcessSuspended, Phase.SUSPENDED, saved_bytes=event.saved_bytes
    )
    return state.having(replace(saved, last_move_s=took, failures=0))


@record_of_workload.register
def _(event: ev.SuspendFailed, workload: Workload, state: NodeState) -> NodeState:
    if not _answers(workload, event, Order.SUSPEND):
        return state
    failed_at = workload.suspend_failed_at if event.busy else event.at
    back = transition(workload, ev.SuspendFailed, Phase.RUNNING, pending=None, suspend_failed_at=failed_at)
    # The planner may have given it up for lost; while it has a process and no wish of its user's, it wants to stay.
    wants = workload.wants_gpu or workload.suspend_reason is None
    return state.having(replace(back, wants_gpu=wants))


@record_of_workload.register
def _(event: ev.ProcessExited, workload: Workload, state: NodeState) -> NodeState:
    # Of an earlier process: a start is answered by ProcessStarted before its process can exit.
    stale = event.process is not None and event.process != workload.process
    # A stop that found no process answers a stop; it may have crossed with a newer start.
    gone = not (workload.present or workload.frozen)
    if stale or gone or (event.process is None and not _told_to_end(workload)):
        return state
    return _ended(state, workload, event.at, said(event.reason), ev.ProcessExited, event.code)


def _answers(workload: Workload, event: ev.CommandEvent, order: Order) -> bool:
    pending = workload.pending
    return pending is not None and pending.order is order and pending.command_id == event.command_id


def _wanting(workload: Workload, at: float) -> Workload:
    since = at if workload.waiting_since is None and not workload.present else workload.waiting_since
    return replace(workload, wants_gpu=workload.release_reason is None, waiting_since=since)


def _phase_without_process(workload: Workload) -> Phase:
    return Phase.QUEUED if workload.saved_bytes is None else Phase.SUSPENDED


def _without(state: NodeState, workload_id: WorkloadId) -> NodeState:
    left = {k: w for k, w in state.workloads.items() if k != workload_id}
    return replace(state, workloads=left, unreported=state.unreported - {workload_id})


def _let_go(state: NodeState, workload: Workload, at: float) -> NodeState:
    """Its process is gone; what it held counts as being released until the driver shows it free."""
    if workload.process is None:
        return state
    gpus = dict(state.gpus)
    for uuid in workload.current:
        if uuid in gpus and gpus[uuid].healthy:
            held = max(workload.used_bytes(uuid), workload.spec.request_bytes)
            releasing = Releasing(workload.process, workload.id, held, at)
            gpus[uuid] = replace(gpus[uuid], releasing=(*gpus[uuid].releasing, releasing))
    return replace(state, gpus=gpus)


def _off_the_gpu(workload: Workload, at: float) -> Workload:
    return replace(
        workload,
        current=(),
        process=None,
        pending=None,
        measured=False,
        trim=None,
        trimmed=False,
        trimmed_at=None,
        trim_shows_by=None,
        wanted=None,
        answer=None,
        wished_bytes=0,
        interrupt=None,
        over_limit_polls=0.0,
        memory_used={},
        freezable=False,
        freeze_trouble=None,
        frozen=None,
        perhaps_locked=False,
        resident_since=None,
        waiting_since=at if workload.wants_gpu else None,
    )


def _told_to_end(workload: Workload) -> bool:
    return workload.pending is not None and workload.pending.order in (Order.STOP, Order.END)


def polls_above_limit(workload: Workload, *, above: bool) -> float:
    """What the samples amount to after one that shows it `above` its limit, or within.

    One above counts 1, one within takes half of that back: not only samples in a row add up. No more is counted where
    something is to be done already, and who is on its way out leaves for what was counted.
    """
    if workload.phase is Phase.SUSPENDING:
        return workload.over_limit_polls
    if above:
        return workload.over_limit_polls + (0 if above_limit(workload) else 1)
    return max(0.0, workload.over_limit_polls - _FORGIVEN_BY_ONE_WITHIN)


def above_limit(workload: Workload) -> bool:
    """Whether the samples amount to so much that it is to be trimmed, or stopped where it has been trimmed for that."""
    return workload.over_limit_polls >= _polls_to_act(workload)


def _polls_to_act(workload: Workload) -> int:
    """As much again after a trim: what that gives back has to show first."""
    return _POLLS_ABOVE_LIMIT * (2 if workload.trimmed and workload.trim is None else 1)


def _ended(
    state: NodeState, workload: Workload, at: float, reason: Why, trigger: type, code: int | None = None
) -> NodeState:
    """Its process ended, asked for (StopProcess) or by itself. `code`: its exit status, if that was told."""
    asked = _told_to_end(workload)
    if asked and workload.pending is not None:
        reason = workload.pending.reason  # by which signal it ended then says nothing
    state = _let_go(state, workload, at)
    if workload.release_reason is not None:
        return _without(state, workload.id)
    if gangs.is_member(workload.spec):
        return _member_ended(state, workload, at, reason, trigger, well=code == 0)
    if workload.spec.kind is Kind.COMMAND and not (asked and workload.spec.requeue):
        # A command that ended has nothing to come back for.
        return _without(state, workload.id)
    failures = workload.failures + (0 if asked and not _was_at_fault(workload) else 1)
    return _off(state, workload, at, trigger, failures, reason)


def _was_at_fault(workload: Workload) -> bool:
    """Whether it was above its limit when it was told to end, for whatever reason: a command in one sample already."""
    return workload.over_limit_polls > 0 if workload.spec.kind is Kind.COMMAND else above_limit(workload)


def _member_ended(
    state: NodeState, workload: Workload, at: float, reason: Why, trigger: type, *, well: bool
) -> NodeState:
    """What ended well is done; a death is counted in the whole gang; a stop is no death, unless for its own fault."""
    if well and not _told_to_end(workload):
        return _without(of_a_gang.after_a_success(state, workload), workload.id)
    if _told_to_end(workload) and not _was_at_fault(workload):
        return _off(state, workload, at, trigger, workload.failures, workload.gang_trouble or reason)
    failures = of_a_gang.failures_with(state, workload, at)
    trouble = of_a_gang.death_of(workload, reason)
    state = of_a_gang.after_a_death(state, workload, trouble, at)
    return _off(state, replace(workload, gang_trouble=trouble), at, trigger, failures, trouble)


def _off(state: NodeState, workload: Workload, at: float, trigger: type, failures: int, reason: Why) -> NodeState:
    """Without its process it queues again, or has failed for good."""
    given_up = of_a_gang.why_given_up(state, workload, failures, reason)
    phase = _phase_without_process(workload) if given_up is None else Phase.FAILED
    ended = transition(_off_the_gpu(workload, at), trigger, phase, failures=failures, last_move_s=0.0)
    if given_up is not None:
        ended = replace(ended, last_reason=given_up, waiting_since=None)
    return state.having(ended)
