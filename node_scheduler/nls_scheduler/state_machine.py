"""`step(state, event) -> (state, commands)`: record the fact, plan again, order the next legal thing for each workload.

Release before acquire, on evidence: the planner counts memory that is being released as free, `has_room` does not hand
it out until the driver shows it free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.commands import SetTimer, StartProcess, StopProcess, SuspendProcess
from nls_scheduler.facts import record
from nls_scheduler.model import CommandId, Kind, Order, Pending, Phase
from nls_scheduler.planner import make_plan
from nls_scheduler.rooms import has_room
from nls_scheduler.transitions import transition
from nls_scheduler.victims import suspend_failed_lately

if TYPE_CHECKING:
    from nls_scheduler.commands import Command
    from nls_scheduler.events import Event
    from nls_scheduler.model import NodeState, PlanEntry, Workload


def step(state: NodeState, event: Event) -> tuple[NodeState, tuple[Command, ...]]:
    """The state after `event` and the commands it leads to. Pure: the same input gives the same output."""
    state = _note_pressure(_forget_the_ended(record(state, event)))
    plan = make_plan(state)
    housed = {k: replace(w, home=plan.entries[k].home) for k, w in state.workloads.items()}
    state = replace(state, plan=plan.entries, workloads=housed)
    commands: list[Command] = []
    for workload_id in sorted(state.workloads):
        entry, workload = plan.entries[workload_id], state.workloads[workload_id]
        decided = _decide(state, workload, entry)
        if decided is not None:
            state, command = _order(state, workload, entry, decided)
            commands.append(command)
    return _set_timer(state, plan.wake_at, commands)


def _forget_the_ended(state: NodeState) -> NodeState:
    ended = [k for k, w in state.workloads.items() if w.release_reason is not None and not w.present]
    return replace(state, workloads={k: w for k, w in state.workloads.items() if k not in ended}) if ended else state


def _note_pressure(state: NodeState) -> NodeState:
    """Remember since when the requests on a Gpu do not fit beside what is used there, for the deadline."""
    gpus = {}
    for uuid, gpu in state.gpus.items():
        present = [w for w in state.workloads.values() if uuid in w.current]
        pressed = sum(w.size_bytes for w in present) > gpu.capacity_bytes
        intruded = bool(gpu.unplaced) and any(w.borrowed for w in present)
        if pressed or intruded or (present and not gpu.healthy):
            gpus[uuid] = replace(gpu, pressed_since=state.at if gpu.pressed_since is None else gpu.pressed_since)
        else:
            gpus[uuid] = replace(gpu, pressed_since=None)
    return replace(state, gpus=gpus)


def _decide(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """The next legal thing on the way to the plan, or nothing for now."""
    match workload.phase:
        case Phase.QUEUED | Phase.SUSPENDED:
            fits = bool(entry.target) and all(has_room(state, workload, state.gpus[uuid]) for uuid in entry.target)
            return Order.START if fits else None
        case Phase.STARTING:
            # What was saved stands, so that giving a start up loses nothing.
            return Order.STOP if entry.target != workload.current or _overdue(state, workload, entry) else None
        case Phase.SUSPENDING:
            stopping = workload.pending is not None and workload.pending.order is Order.STOP
            hurry = workload.release_reason is not None or _overdue(state, workload, entry)
            return Order.STOP if hurry and not stopping else None
        case Phase.RUNNING if entry.target != workload.current:
            return _leave(state, workload, entry)
        case _:
            return None


def _leave(state: NodeState, workload: Workload, entry: PlanEntry) -> Order | None:
    """Least harm first: wait for the end of the cell, suspend, and only at the deadline stop."""
    overdue = _overdue(state, workload, entry)
    if workload.release_reason is not None:
        return Order.STOP
    if workload.spec.kind is Kind.COMMAND:
        # Waiting makes a command that starts again lose more; one that cannot keeps the whole time to shrink.
        return Order.STOP if workload.spec.requeue or overdue else None
    if overdue:
        return Order.STOP
    if workload.executing or suspend_failed_lately(state, workload):
        return None
    return Order.SUSPEND


def _overdue(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    deadlines = [entry.deadline_at, workload.pending.deadline_at if workload.pending else None]
    return any(deadline is not None and state.at >= deadline for deadline in deadlines)


def _order(
    state: NodeState, workload: Workload, entry: PlanEntry, order: Order
) -> tuple[NodeState, StartProcess | SuspendProcess | StopProcess]:
    command_id = state.next_command
    reason = workload.release_reason or entry.reason
    head = (command_id, workload.id, reason, entry.cause)
    command: StartProcess | SuspendProcess | StopProcess
    match order:
        case Order.START:
            command = StartProcess(*head, gpus=entry.target)
            changed, timeout_s = _starting(workload, entry), state.policy.start_timeout_s
        case Order.SUSPEND:
            command = SuspendProcess(*head)
            changed, timeout_s = _suspending(state, workload, entry), state.policy.suspend_timeout_s
        case Order.STOP:
            command = StopProcess(*head, grace_s=_grace_s(state, workload, entry))
            changed = transition(workload, StopProcess, Phase.SUSPENDING)
            timeout_s = state.policy.stop_timeout_s + command.grace_s
    deadline_at = state.at + timeout_s
    if order is Order.SUSPEND and entry.deadline_at is not None:
        deadline_at = min(deadline_at, entry.deadline_at)
    changed = replace(changed, pending=Pending(order, command_id, state.at, deadline_at, reason), last_reason=reason)
    workloads = {**state.workloads, workload.id: changed}
    return replace(state, workloads=workloads, next_command=CommandId(command_id + 1)), command


def _starting(workload: Workload, entry: PlanEntry) -> Workload:
    return transition(workload, StartProcess, Phase.STARTING, current=entry.target)


def _suspending(state: NodeState, workload: Workload, entry: PlanEntry) -> Workload:
    """Without a target it stays off until its next cell; a move for burst alone starts the cool-down."""
    for_burst = bool(entry.target) and entry.cause is None and entry.deadline_at is None
    return transition(
        workload,
        SuspendProcess,
        Phase.SUSPENDING,
        wants_gpu=bool(entry.target),
        moved_at=state.at if for_burst else workload.moved_at,
    )


def _grace_s(state: NodeState, workload: Workload, entry: PlanEntry) -> float:
    """How long a command may take to end by itself: what is left until the deadline."""
    if workload.spec.kind is not Kind.COMMAND:
        return 0.0
    left = 0.0 if entry.deadline_at is None else entry.deadline_at - state.at
    return max(state.policy.stop_grace_s, left)


def _set_timer(
    state: NodeState, wake_at: float | None, commands: list[Command]
) -> tuple[NodeState, tuple[Command, ...]]:
    """Ask to be woken when a deadline passes, unless that is already asked for."""
    times = [w.pending.deadline_at for w in state.workloads.values() if w.pending is not None]
    times += [r.since + state.policy.stop_timeout_s for g in state.gpus.values() for r in g.releasing]
    times += [] if wake_at is None else [wake_at]
    next_at = min((t for t in times if t > state.at), default=None)
    if next_at is None or next_at == state.timer_at:
        return state, tuple(commands)
    return replace(state, timer_at=next_at), (*commands, SetTimer(at=next_at))
