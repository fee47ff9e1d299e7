"""`step(state, event) -> (state, commands)`: record the fact, plan again, order the next legal thing for each workload.

Release before acquire, on evidence: the planner counts memory that is being released as free, `has_room` does not hand
it out until the driver shows it free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model import gangs
from nls_scheduler.core.model.commands import (
    EndProcess,
    FreezeProcess,
    InterruptCell,
    ReportRefusal,
    SetTimer,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
)
from nls_scheduler.core.model.events import ProcessReady
from nls_scheduler.core.model.ids import CommandId
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace, updated
from nls_scheduler.core.model.workload import Move, Order, Pending, Phase
from nls_scheduler.core.planning.claims import settle_claims
from nls_scheduler.core.planning.gangs import have_room
from nls_scheduler.core.planning.line import joined
from nls_scheduler.core.planning.making_room.allowances import while_some_leave
from nls_scheduler.core.planning.making_room.rooms import borrows_beside_a_stranger, has_room
from nls_scheduler.core.planning.making_room.victims import may_be_suspended_from
from nls_scheduler.core.planning.places import freezing, trims
from nls_scheduler.core.planning.places.burst_moves import moves_of_last_hour
from nls_scheduler.core.planning.places.failed_allocations import answer_wanted
from nls_scheduler.core.planning.plan import make_plan, targets_in
from nls_scheduler.core.recording.above_limit import above_limit
from nls_scheduler.core.recording.of_a_workload import trimmed
from nls_scheduler.core.recording.of_the_node import record
from nls_scheduler.core.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from nls_scheduler.core.model.commands import Command, WorkloadCommand
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


# What a supervisor may take to carry out a stop, after the grace, before the daemon does it itself.
_STOP_ANSWER_S = 2.0
# So many plans are made to find who would stay of several at once, before each is tried alone.
_PLANS_TOGETHER = 3


def step(state: NodeState, event: Event) -> tuple[NodeState, tuple[Command, ...]]:
    """The state after `event` and the commands it leads to. Pure: the same input gives the same output."""
    before = state
    state = facts = _note_pressure(settle_claims(_give_up_trims(_forget_the_ended(record(before, event)))))
    if before.settled and (newcomers := _all_that_is_new(before, state)) is not None:
        if not newcomers:
            return replace(state, settled=True), ()
        if len(newcomers) == 1 and (with_one_more := joined(state, newcomers[0])) is not None:
            return replace(state, plan=with_one_more, settled=True), ()
    plan = make_plan(state)
    planned = [_planned(workload, plan.entries[key], state.at) for key, workload in state.workloads.items()]
    changed = [workload for workload in planned if workload is not state.workloads[workload.id]]
    state = replace(state.having(*changed), plan=plan.entries, remembered=plan.remembered, weighed=plan.weighed)
    state = answer_wanted(state)
    commands: list[Command] = []
    whom = () if state.quiet else [w.id for w in state.workloads.values() if not _is_at_rest(w, plan.entries[w.id])]
    in_order = gangs.side_by_side(state, whom) if whom else []
    together: Collection[WorkloadId] | None = None
    for number, workload_id in enumerate(in_order):
        entry, workload = plan.entries[workload_id], state.workloads[workload_id]
        decided = _decide(state, workload, entry) or _keep_limit(workload) or trims.order(workload, entry)
        if decided is Order.START and workload.sent_off_early:
            together = _who_would_stay_together(state, in_order[number:]) if together is None else together
            if not (workload_id in together if together else _would_stay(state, workload)):
                waits = replace(entry, reason=Why(Reason.BEING_FREED, gpus=entry.target))
                decided, state = None, replace(state, plan={**state.plan, workload_id: waits})
        refused = None if decided is None else refusal(state, workload, entry, decided)
        if refused != workload.refused:
            workload = replace(workload, refused=refused)
            state = state.having(workload)
            commands += [] if decided is None or refused is None else [ReportRefusal(workload_id, decided, refused)]
        if decided is not None and refused is None:
            state, command = _order(state, workload, entry, decided)
            commands.append(command)
    if any(isinstance(command, StartProcess | ThawProcess) for command in commands):
        state = _beside_who_comes(state)
    at = _next_timer_at(state, plan.wake_at)
    if at is not None:
        commands.append(SetTimer(at=at))
    timer_at = state.timer_at if at is None else at
    return replace(state, settled=state.workloads == facts.workloads, timer_at=timer_at), tuple(commands)


def _beside_who_comes(state: NodeState) -> NodeState:
    """With what everybody may use beside those who have been told to come, while others are still to leave."""
    targets = {key: entry.target for key, entry in state.plan.items()}
    now = while_some_leave(state, targets, {key: entry.allowance_bytes for key, entry in state.plan.items()})
    return replace(state, plan={key: updated(e, allowance_bytes=now[key]) for key, e in state.plan.items()})


def _is_at_rest(workload: Workload, entry: PlanEntry) -> bool:
    """Whether it is to stay on no Gpu, or runs where it is to be, within its limit, and keeps what it holds."""
    to_end = workload.frozen is not None and workload.release_reason is not None
    if entry.target != workload.current or workload.refused is not None or to_end:
        return False
    within = entry.trim_since is None and not workload.over_limit_polls
    return not workload.current or (workload.phase is Phase.RUNNING and within)


def _all_that_is_new(before: NodeState, state: NodeState) -> list[Workload] | None:
    """The workloads that are new, if else `state` has only what no plan reads, and a later time; `None`: it has more.

    What no plan reads is the use of Gpus, and cells where they count for nothing: most samples of an idle node have no
    more than that, and most cells of a crowded one.
    """
    if before.timer_at is not None and state.at >= before.timer_at:
        return None
    newcomers = []
    for key, workload in state.workloads.items():
        old_one = before.workloads.get(key)
        if old_one is None:
            newcomers.append(workload)
        elif workload is not old_one and _without_its_cell(before, old_one, workload) != old_one:
            return None
    if len(state.workloads) - len(newcomers) < len(before.workloads) or state.gpus.keys() != before.gpus.keys():
        return None
    same = {
        uuid: updated(gpu, utilisation=old.utilisation)
        for uuid, gpu in state.gpus.items()
        if (old := before.gpus.get(uuid)) is not None
    }
    is_all = before == replace(state, gpus=same, workloads=before.workloads, settled=True, at=before.at)
    return newcomers if is_all else None


def _without_its_cell(before: NodeState, old: Workload, workload: Workload) -> Workload:
    """`workload` with the cell and the times that it had before, where no plan reads them; else as it is.

    No plan reads those of one that has neither a home nor a Gpu. Nor of one that stays where it runs and holds what it
    held, unless the last plan has weighed there who is to leave, or may be moved (`NodeState.weighed`).
    """
    cells = {"cell_since": old.cell_since, "idle_since": old.idle_since, "unsaved": old.unsaved}
    if not workload.home and not workload.present:
        return replace(workload, **cells, woken_by_cell=old.woken_by_cell)
    entry = before.plan[old.id]
    stays = workload.phase is Phase.RUNNING and entry.target == workload.current and not entry.has_to_act
    if not stays or workload.place_facts != old.place_facts or not before.weighed.isdisjoint(workload.current):
        return workload
    return replace(workload, **cells, saved_bytes=old.saved_bytes)


def _planned(workload: Workload, entry: PlanEntry, at: float) -> Workload:
    """With what lasts of the plan: the home, since when deadlines count, and where it is being sent."""
    stays = entry.deadline_at is None and entry.cause is None and entry.bound is None and workload.move is None
    known = entry.home == workload.home and (workload.home_since is not None) is bool(entry.home)
    if stays and known and workload.told_since is None:
        return workload  # as most do
    home_since = _since(workload.home_since, at) if entry.home else None
    told_since = _since(workload.told_since, at) if entry.deadline_at is not None else None
    move = _move(workload, entry) if workload.present or entry.bound is not None else None
    lasts = (entry.home, home_since, told_since, move)
    if lasts == (workload.home, workload.home_since, workload.told_since, workload.move):
        return workload
    return replace(workload, home=entry.home, home_since=home_since, told_since=told_since, move=move)


def _move(workload: Workload, entry: PlanEntry) -> Move | None:
    """Of one that is on a Gpu, or bound to one. Who is off its Gpu goes on for whomever it left it."""
    if entry.bound is not None:
        for_whom = entry.cause if workload.present or workload.move is None else workload.move.for_whom
        return Move((entry.bound,), for_whom)
    follows = entry.cause is not None and not workload.spec.may_borrow
    return Move(entry.home, entry.cause) if follows and entry.home != workload.current else None


def outstanding(state: NodeState, workload: Workload) -> WorkloadCommand | None:
    """The command that `workload` has not answered, as it was sent: for a supervisor that connects again."""
    pending = workload.pending
    if pending is None:
        return None
    head = (pending.command_id, workload.id, pending.reason, None)
    match pending.order:
        case Order.START:
            return StartProcess(*head, gpus=workload.current)
        case Order.SUSPEND:
            return SuspendProcess(*head)
        case Order.FREEZE:
            left_s, beside_bytes = _left_to_freeze_s(state, pending.deadline_at), freezing.beside_bytes(state, workload)
            return FreezeProcess(*head, timeout_s=left_s, beside_bytes=beside_bytes)
        case Order.THAW:
            return ThawProcess(*head, gpus=workload.current, timeout_s=state.policy.start_timeout_s)
        case Order.STOP:
            return StopProcess(*head, grace_s=max(0.0, pending.deadline_at - state.at - _STOP_ANSWER_S))
        case _:
            return EndProcess(*head, process=workload.process)


def _forget_the_ended(state: NodeState) -> NodeState:
    released = [w for w in state.workloads.values() if w.release_reason is not None]
    ended = [w.id for w in released if not w.present and w.frozen is None]
    return replace(state, workloads={k: w for k, w in state.workloads.items() if k not in ended}) if ended else state


def _give_up_trims(state: NodeState) -> NodeState:
    late = (w for w in state.workloads.values() if w.trim is not None and state.at >= w.trim.deadline_at)
    return state.having(*(trimmed(workload, state.at, state.at) for workload in late))


def _note_pressure(state: NodeState) -> NodeState:
    """Remember since when the requests on a Gpu do not fit beside what is used there, for the deadline."""
    claimed = {uuid for workload in state.workloads.values() for uuid in workload.home}
    changed = {}
    for uuid, gpu in state.gpus.items():
        present = state.on(uuid)
        over_bytes = sum([w.size_bytes for w in present]) - gpu.capacity_bytes
        over_full = over_bytes > 0 and over_bytes > gangs.spared_bytes(present, lambda w: w.size_bytes)
        intruded = gpu.has_foreigners and any(w.borrowed for w in present)
        pressed = over_full or intruded or (bool(present) and not gpu.healthy)
        unclaimed_since = None if uuid in claimed else _since(gpu.unclaimed_since, state.at)
        pressed_since = _since(gpu.pressed_since, state.at) if pressed else None
        if (unclaimed_since, pressed_since) != (gpu.unclaimed_since, gpu.pressed_since):
            changed[uuid] = replace(gpu, unclaimed_since=unclaimed_since, pressed_since=pressed_since)
    return replace(state, gpus={**state.gpus, **changed}) if changed else state


def _since(before: float | None, now: float) -> float:
    return now if before is None else before


def _decide(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """The next legal thing on the way to the plan, or nothing for now."""
    match workload.phase:
        case Phase.SUSPENDED if workload.frozen is not None:
            return Order.THAW if freezing.can_thaw(state, workload, workload.frozen, entry) else None
        case Phase.QUEUED | Phase.SUSPENDED:
            fits = bool(entry.target) and all(has_room(state, workload, state.gpus[uuid]) for uuid in entry.target)
            return Order.START if fits and have_room(state, state.plan, workload) else None
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


def _would_stay(state: NodeState, workload: Workload) -> bool:
    """Whether a plan leaves it where it is to start, with all of its gang, once it runs there, or moves it for burst.

    Who is there may be what decides whose turn it is elsewhere, and then on whom it is to leave: it would be started
    and sent away without end.
    """
    off = (Phase.QUEUED, Phase.SUSPENDED, Phase.STARTING)
    coming = [w for w in (*gangs.fellows(state, workload), workload) if w.phase in off and state.plan[w.id].target]
    then = state
    for one in coming:
        then = _running(then, one)
    return not _who_would_leave(state, then, coming)


def _who_would_stay_together(state: NodeState, in_order: Sequence[WorkloadId]) -> Collection[WorkloadId]:
    """Who of those of `in_order` that were sent away early would stay once all who are to start now run.

    One plan for many: nobody where it is but one, or no few plans find any. Who would leave then is left out, and tried
    again in the next step.
    """
    left_out: set[WorkloadId] = set()
    for _ in range(_PLANS_TOGETHER):
        then, coming = state, []
        for workload in (state.workloads[key] for key in in_order if key not in left_out):
            entry = state.plan[workload.id]
            if _decide(then, workload, entry) is Order.START and not refusal(then, workload, entry, Order.START):
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
        state, _ = _order(state, workload, state.plan[workload.id], Order.START)
    pending = state.workloads[workload.id].pending
    return state if pending is None else record(state, ProcessReady(state.at, workload.id, pending.command_id))


def _who_would_leave(state: NodeState, then: NodeState, coming: Sequence[Workload]) -> list[Workload]:
    """Those of `coming` whom a plan for `then` does not leave where that for `state` has them, nor moves for burst."""
    targets, for_burst = targets_in(then)
    plan = state.plan
    return [w for w in coming if targets.get(w.id, ()) != plan[w.id].target and w.id not in for_burst]


def _has_just_come(state: NodeState, workload: Workload) -> bool:
    since = workload.resident_since
    return workload.phase is Phase.STARTING or (since is not None and state.at < since + state.policy.min_residency_s)


def _hurry(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """A suspend that takes too long is stopped; a stop that is not obeyed is done by the daemon itself."""
    pending = workload.pending
    if pending is None or pending.order is Order.END:
        return None
    if pending.order is Order.STOP:
        # Only who was told to freeze or thaw it can say whether it may be killed; its Gpu is lost to all until then.
        return Order.END if state.at >= pending.deadline_at and not workload.perhaps_locked else None
    if pending.order is Order.FREEZE:
        return Order.STOP if _overdue(state, workload, entry) else None
    return Order.STOP if workload.release_reason is not None or _overdue(state, workload, entry) else None


def _keep_limit(workload: Workload) -> Order | None:
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


def _order(state: NodeState, workload: Workload, entry: PlanEntry, order: Order) -> tuple[NodeState, WorkloadCommand]:
    command_id = state.next_command
    reason = _reason(workload, entry, order)
    head = (command_id, workload.id, reason, entry.cause)
    command: WorkloadCommand
    match order:
        case Order.TRIM:
            return _trim(state, workload, entry, TrimMemory(*head))
        case Order.INTERRUPT:
            return _interrupt(state, workload, entry, head)
        case Order.START:
            command = StartProcess(*head, gpus=entry.target)
            changed, timeout_s = _starting(workload, entry), state.policy.start_timeout_s
        case Order.SUSPEND:
            command = SuspendProcess(*head)
            changed, timeout_s = _suspending(state, workload, entry), state.policy.suspend_timeout_s
        case Order.FREEZE:
            freeze_s = _left_to_freeze_s(state, entry.deadline_at)
            command = FreezeProcess(*head, timeout_s=freeze_s, beside_bytes=freezing.beside_bytes(state, workload))
            changed = transition(workload, FreezeProcess, Phase.SUSPENDING, perhaps_locked=True)
            timeout_s = freeze_s + state.policy.ladder_s
        case Order.THAW:
            command, timeout_s = _thaw(state, workload, head)
            changed = transition(workload, ThawProcess, Phase.STARTING, current=command.gpus, perhaps_locked=True)
        case Order.STOP:
            grace_s = _grace_s(state, workload, entry)
            command = StopProcess(*head, grace_s=grace_s)
            changed = transition(workload, StopProcess, Phase.SUSPENDING, frozen=None)
            timeout_s = _STOP_ANSWER_S + grace_s
        case Order.END:
            command = EndProcess(*head, process=workload.process)
            changed, timeout_s = transition(workload, EndProcess, Phase.SUSPENDING), state.policy.stop_timeout_s
    if order in (Order.SUSPEND, Order.STOP) and workload.phase is not Phase.SUSPENDING:
        changed = replace(changed, sent_off_early=_has_just_come(state, workload))
    deadline_at = state.at + timeout_s
    if order is Order.SUSPEND and entry.deadline_at is not None:
        deadline_at = min(deadline_at, entry.deadline_at)
    changed = replace(changed, pending=Pending(order, command_id, state.at, deadline_at, reason), last_reason=reason)
    workloads = {**state.workloads, workload.id: changed}
    return replace(state, workloads=workloads, next_command=CommandId(command_id + 1)), command


def _trim(
    state: NodeState, workload: Workload, entry: PlanEntry, command: TrimMemory
) -> tuple[NodeState, WorkloadCommand]:
    """It goes on meanwhile; after the timeout it counts as trimmed, whatever its allocators did."""
    deadline_at = trims.deadline_at(state, entry)
    trim = Pending(Order.TRIM, command.command_id, state.at, deadline_at, command.reason)
    told = replace(workload, trim=trim, trimmed=workload.trimmed or above_limit(workload))
    workloads = {**state.workloads, workload.id: told}
    return replace(state, workloads=workloads, next_command=CommandId(command.command_id + 1)), command


def _interrupt(
    state: NodeState, workload: Workload, entry: PlanEntry, head: tuple[CommandId, WorkloadId, Why, WorkloadId | None]
) -> tuple[NodeState, WorkloadCommand]:
    """The cell goes on, or ends as it sees fit; nothing else is ordered until then or the deadline."""
    deadline_at = state.at if entry.deadline_at is None else entry.deadline_at
    command = InterruptCell(*head, grace_s=deadline_at - state.at)
    interrupt = Pending(Order.INTERRUPT, command.command_id, state.at, deadline_at, command.reason)
    workloads = {**state.workloads, workload.id: replace(workload, interrupt=interrupt)}
    return replace(state, workloads=workloads, next_command=CommandId(command.command_id + 1)), command


def _thaw(
    state: NodeState, workload: Workload, head: tuple[CommandId, WorkloadId, Why, WorkloadId | None]
) -> tuple[ThawProcess, float]:
    """The order to go on where it was, and when it counts as not obeyed."""
    if workload.frozen is None:
        raise ValueError(f"{workload.id} does not stand still")
    command = ThawProcess(*head, gpus=workload.frozen.gpus, timeout_s=state.policy.start_timeout_s)
    return command, command.timeout_s + _STOP_ANSWER_S


def _left_to_freeze_s(state: NodeState, deadline_at: float | None) -> float:
    """Until the cell would be interrupted: later there is no time to put right what went wrong."""
    return 0.0 if deadline_at is None else max(0.0, state.policy.interrupt_at(deadline_at) - state.at)


def _reason(workload: Workload, entry: PlanEntry, order: Order) -> Why:
    if workload.release_reason is None and order in (Order.TRIM, Order.STOP) and above_limit(workload):
        return Why(Reason.ABOVE_LIMIT, bytes=(workload.held_bytes, workload.spec.limit_bytes))
    if order is Order.END and workload.pending is not None:
        return workload.pending.reason
    if order is Order.TRIM:
        return Why(Reason.MEMORY_SHORT)
    starting = workload.pending if order is Order.STOP and workload.phase is Phase.STARTING else None
    if starting is not None and entry.target == workload.current and workload.release_reason is None:
        return Why(Reason.NOT_READY, numbers=(starting.deadline_at - starting.issued_at,))
    return workload.release_reason or entry.reason


def _starting(workload: Workload, entry: PlanEntry) -> Workload:
    return transition(workload, StartProcess, Phase.STARTING, current=entry.target)


def _suspending(state: NodeState, workload: Workload, entry: PlanEntry) -> Workload:
    """Without a target it stays off until its next cell; a move for burst alone starts the cool-down."""
    asked_for = workload.wish in entry.target
    for_burst = entry.bound is not None and entry.cause is None and entry.deadline_at is None and not asked_for
    return transition(
        workload,
        SuspendProcess,
        Phase.SUSPENDING,
        wants_gpu=bool(entry.target),
        moved_at=state.at if for_burst else workload.moved_at,
        burst_moves=(*moves_of_last_hour(workload.burst_moves, state.at), *((state.at,) if for_burst else ())),
    )


def _grace_s(state: NodeState, workload: Workload, entry: PlanEntry) -> float:
    """How long a command may take to end by itself, and a notebook that is released to save what it can."""
    if workload.spec.kind is not Kind.COMMAND:
        return 0.0 if workload.release_reason is None else _time_to_save_s(state, workload, entry)
    if entry.deadline_at is None and workload.spec.resizable:
        # Nobody waits for one that is to grow: it may take its time to save what it needs.
        return state.policy.reclaim_deadline_s
    left = 0.0 if entry.deadline_at is None else entry.deadline_at - state.at
    return max(state.policy.stop_grace_s, left)


def _time_to_save_s(state: NodeState, workload: Workload, entry: PlanEntry) -> float:
    """Until the deadline of whoever waits for its Gpu by now, else as long as a reclaim may take."""
    deadlines = [entry.deadline_at, workload.pending.deadline_at if workload.pending else None]
    known = (deadline for deadline in deadlines if deadline is not None)
    return max(0.0, min((state.at + state.policy.reclaim_deadline_s, *known)) - state.at)


def _next_timer_at(state: NodeState, wake_at: float | None) -> float | None:
    """When to be woken because a deadline passes; `None`: never, or as is already asked for."""
    times = [state.quiet_until] if state.quiet else []
    for workload in state.workloads.values():
        if workload.pending or workload.trim or workload.wanted:
            times += [p.deadline_at for p in (workload.pending, workload.trim, workload.wanted) if p is not None]
        if workload.trim_shows_by is not None:
            times.append(workload.trim_shows_by)
    times += [r.since + state.policy.stop_timeout_s for g in state.gpus.values() for r in g.releasing]
    times += [] if wake_at is None else [wake_at]
    next_at = min((t for t in times if t > state.at), default=None)
    return None if next_at == state.timer_at else next_at
