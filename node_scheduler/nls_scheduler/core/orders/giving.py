"""An order as it is given: the command, and what of the workload changes with it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.commands import (
    EndProcess,
    FreezeProcess,
    InterruptCell,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
)
from nls_scheduler.core.model.ids import CommandId, WorkloadId
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.transitions import transition
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Order, Pending, Phase
from nls_scheduler.core.planning.places import freezing, trims
from nls_scheduler.core.planning.places.burst_moves import moves_of_last_hour
from nls_scheduler.core.recording.above_limit import above_limit

if TYPE_CHECKING:
    from nls_scheduler.core.model.commands import WorkloadCommand
    from nls_scheduler.core.model.reasons import Mention
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


# What a supervisor may take to carry out a stop, after the grace, before the daemon does it itself.
_STOP_ANSWER_S = 2.0


def give(state: NodeState, workload: Workload, entry: PlanEntry, order: Order) -> tuple[NodeState, WorkloadCommand]:
    """`state` in which `workload` has been told, and the command for its supervisor."""
    command_id = state.next_command
    reason = _reason(workload, entry, order)
    cause, owed = _for_whom(state, workload, entry, order)
    head = (command_id, workload.id, reason, None if cause is None else WorkloadId(cause.id))
    command: WorkloadCommand
    match order:
        case Order.TRIM:
            return _trim(state, workload, entry, TrimMemory(*head))
        case Order.INTERRUPT:
            return _interrupt(state, workload, entry, head, cause)
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
    pending = Pending(order, command_id, state.at, state.at + timeout_s, reason, cause, owed)
    changed = replace(changed, pending=pending, last_reason=reason)
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
    state: NodeState,
    workload: Workload,
    entry: PlanEntry,
    head: tuple[CommandId, WorkloadId, Why, WorkloadId | None],
    cause: Mention | None,
) -> tuple[NodeState, WorkloadCommand]:
    """The cell goes on, or ends as it sees fit; nothing else is ordered until then or the deadline."""
    deadline_at = state.at if entry.deadline_at is None else entry.deadline_at
    command = InterruptCell(*head, grace_s=deadline_at - state.at)
    interrupt = Pending(Order.INTERRUPT, command.command_id, state.at, deadline_at, command.reason, cause, owed=True)
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


def outstanding(state: NodeState, workload: Workload) -> WorkloadCommand | None:
    """The command that `workload` has not answered, as it was sent: for a supervisor that connects again."""
    pending = workload.pending or workload.interrupt
    if pending is None:
        return None
    cause = None if pending.cause is None else WorkloadId(pending.cause.id)
    head = (pending.command_id, workload.id, pending.reason, cause)
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
        case Order.INTERRUPT:
            return InterruptCell(*head, grace_s=max(0.0, pending.deadline_at - state.at))
        case Order.STOP:
            return StopProcess(*head, grace_s=max(0.0, pending.deadline_at - state.at - _STOP_ANSWER_S))
        case _:
            return EndProcess(*head, process=workload.process)


def _left_to_freeze_s(state: NodeState, deadline_at: float | None) -> float:
    """Until the cell would be interrupted: later there is no time to put right what went wrong."""
    return 0.0 if deadline_at is None else max(0.0, state.policy.interrupt_at(deadline_at) - state.at)


def _reason(workload: Workload, entry: PlanEntry, order: Order) -> Why:
    if workload.release_reason is None and order in (Order.TRIM, Order.STOP) and above_limit(workload):
        return Why(Reason.ABOVE_LIMIT, bytes=(workload.held_bytes, workload.spec.limit_bytes))
    if (before := _leaves_already(workload, order)) is not None:
        # The plan says by now where it comes back, or why it waits.
        return Why(Reason.ENDED_BY_DAEMON, because=(before.reason,)) if order is Order.END else before.reason
    if order is Order.TRIM:
        return Why(Reason.MEMORY_SHORT)
    if order is Order.SUSPEND and workload.suspend_reason is not None:
        return workload.suspend_reason  # the plan says that it has failed before
    starting = workload.pending if order is Order.STOP and workload.phase is Phase.STARTING else None
    if starting is not None and entry.target == workload.current and workload.release_reason is None:
        return Why(Reason.NOT_READY, numbers=(starting.allowed_s,))
    return workload.release_reason or entry.reason


def _for_whom(state: NodeState, workload: Workload, entry: PlanEntry, order: Order) -> tuple[Mention | None, bool]:
    """Who makes the order necessary, and whether a guarantee does."""
    before, owed = _leaves_already(workload, order), entry.deadline_at is not None
    return (state.mention(entry.cause), owed) if before is None else (before.cause, owed or before.owed)


def _leaves_already(workload: Workload, order: Order) -> Pending | None:
    """The order that `order` goes on with, where it has been told to leave before."""
    leaves = workload.phase is Phase.SUSPENDING and workload.release_reason is None
    return workload.pending if leaves or order is Order.END else None


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


def _has_just_come(state: NodeState, workload: Workload) -> bool:
    since = workload.resident_since
    return workload.phase is Phase.STARTING or (since is not None and state.at < since + state.policy.min_residency_s)


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
