"""The ladder of harm: each rung for a cause and once, and a running cell is stopped at the very last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import (
    HOUR_S,
    SAMPLES_TO_STOP,
    SAMPLES_TO_TRIM,
    fellows,
    gangs,
    is_ordered,
    takes_bytes,
    to_be_told_s,
)
from nls_scheduler.core.model.commands import EndProcess, InterruptCell, StopProcess, SuspendProcess, TrimMemory
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


def who_is_kept_leaves_for_a_guarantee_only(step: Step) -> Iterator[str]:
    """Whom its user keeps is suspended for a guarantee only, or because its user says so."""
    for command, workload, entry in step.ordered:
        kept = workload.keep_until is not None and step.state.at < workload.keep_until
        asked = workload.suspend_reason is not None or workload.wish is not None or entry.deadline_at is not None
        if isinstance(command, SuspendProcess) and kept and not asked:
            yield f"{workload.id} is suspended for less than a guarantee while its user keeps it"


def a_cell_is_interrupted_once_and_for_a_guarantee(step: Step) -> Iterator[str]:
    """A cell is interrupted once, for a deadline, and no sooner than so long before it."""
    for command, workload, entry in step.ordered:
        was = step.before.workloads.get(workload.id)
        if not isinstance(command, InterruptCell) or was is None:
            continue
        same_cell = was.cell_since == workload.cell_since != step.state.at  # one that begins now may be the next one
        if entry.deadline_at is None or (same_cell and was.interrupt is not None):
            yield f"{workload.id} is interrupted without a deadline, or twice in one cell"
        elif step.state.at < entry.deadline_at - to_be_told_s(step.state):
            yield f"{workload.id} is interrupted long before its deadline"


def nobody_is_suspended_in_mid_cell(step: Step) -> Iterator[str]:
    """A running cell is never suspended."""
    for command, workload, _ in step.ordered:
        if isinstance(command, SuspendProcess) and _ran(step, workload) and workload.cell_since is not None:
            yield f"{workload.id} is suspended in mid-cell"


def a_running_cell_is_stopped_at_its_deadline_only(step: Step) -> Iterator[str]:
    """A running cell is stopped for a guarantee at its deadline, above its limit, or because its workload ends."""
    for workload, entry in _stopped(step):
        if workload.cell_since is not None and not _is_due(step.state, workload, entry):
            yield f"{workload.id} is stopped in mid-cell before any deadline"


def a_cell_is_interrupted_before_it_is_stopped(step: Step) -> Iterator[str]:
    """A cell that has begun before and is stopped for a guarantee was interrupted, and not in the same step."""
    for workload, _ in _stopped(step):
        for_another_reason = workload.release_reason is not None or _is_above_limit(workload)
        ran = workload.cell_since is not None and workload.cell_since < step.state.at
        if not ran or for_another_reason:
            continue
        interrupt = step.before.workloads[workload.id].interrupt
        if interrupt is None or interrupt.issued_at >= step.state.at:
            yield f"{workload.id} is stopped in mid-cell, and nobody has interrupted it"


def a_suspend_is_cut_off_for_a_guarantee_only(step: Step) -> Iterator[str]:
    """Who saves for a suspend is stopped for a guarantee at its deadline, or because its workload ends."""
    for command, workload, entry in step.ordered:
        was = step.before.workloads.get(workload.id)
        saves = was is not None and is_ordered(was, Order.SUSPEND) and was.release_reason is None
        overdue = entry.deadline_at is not None and entry.deadline_at <= step.state.at
        if isinstance(command, StopProcess) and saves and not overdue and workload.release_reason is None:
            yield f"{workload.id} is stopped while it saves, and nobody is owed its place"


def a_command_that_cannot_start_again_is_stopped_at_its_deadline_only(step: Step) -> Iterator[str]:
    """A command that would not start again is stopped as a running cell is, or because its gang stops."""
    for workload, entry in _stopped(step):
        lasts = workload.spec.kind is Kind.COMMAND and not workload.spec.requeue
        if lasts and not _is_due(step.state, workload, entry) and not _gang_stops(step, workload):
            yield f"{workload.id} would not start again, and is stopped before any deadline"


def a_trim_has_a_cause(step: Step) -> Iterator[str]:
    """A trim is for somebody above its limit, or above its request where memory is short, once for each cause."""
    for command, workload, entry in step.ordered:
        was = step.before.workloads.get(workload.id)
        above_limit = workload.over_limit_polls >= SAMPLES_TO_TRIM
        if not isinstance(command, TrimMemory) or was is None or above_limit:
            continue
        over_request = any(takes_bytes(workload, u) > workload.spec.request_bytes for u in workload.current)
        if entry.trim_since is None or not over_request:
            yield f"{workload.id} is trimmed without a cause"
        elif was.trimmed_at is not None and was.trimmed_at >= entry.trim_since:
            yield f"{workload.id} is trimmed twice for what began at {entry.trim_since}"


def a_sample_above_the_limit_counts_once(step: Step) -> Iterator[str]:
    """Samples above the limit count one each, and no others count."""
    for workload in step.state.workloads.values():
        was = step.before.workloads.get(workload.id)
        more = workload.over_limit_polls - (0.0 if was is None else was.over_limit_polls)
        above = any(used > workload.spec.limit_bytes for used in workload.memory_used.values())
        if more > 1 or (more > 0 and not above):
            yield f"{workload.id} was counted above its limit {more} times in one step"


def moves_for_burst_are_rare(step: Step) -> Iterator[str]:
    """Nobody moves for burst alone more often in an hour than `max_moves_per_hour`."""
    for _, workload, _ in step.ordered:
        was = step.before.workloads.get(workload.id)
        recent = [at for at in workload.burst_moves if at + HOUR_S > step.state.at]
        moved_now = was is not None and not set(workload.burst_moves) <= set(was.burst_moves)
        if moved_now and len(recent) > step.state.policy.max_moves_per_hour:
            yield f"{workload.id} has moved {len(recent)} times for burst alone within an hour"


def _stopped(step: Step) -> list[tuple[Workload, PlanEntry]]:
    """Who ran and is told to stop."""
    return [(w, entry) for command, w, entry in step.ordered if isinstance(command, StopProcess) and _ran(step, w)]


def _ran(step: Step, workload: Workload) -> bool:
    was = step.before.workloads.get(workload.id)
    return was is not None and was.phase is Phase.RUNNING


def _is_due(state: NodeState, workload: Workload, entry: PlanEntry) -> bool:
    overdue = entry.deadline_at is not None and entry.deadline_at <= state.at
    return overdue or _is_above_limit(workload) or workload.release_reason is not None


def _is_above_limit(workload: Workload) -> bool:
    return workload.over_limit_polls >= SAMPLES_TO_STOP[workload.spec.kind]


def _gang_stops(step: Step, workload: Workload) -> bool:
    """Whether its gang is not whole, or somebody of it has no place on a Gpu but for this step's orders.

    Who is ended because it disobeys was told to stop before; a start that takes too long is over, and who is above its
    limit stops by itself.
    """
    told_now = {command.workload for command, _, _ in step.ordered if not isinstance(command, EndProcess)}
    if any(workload in gang.members and not gang.whole for gang in gangs(step.state)):
        return True
    others = fellows(step.state, workload)
    gone = any(other.phase not in (Phase.STARTING, Phase.RUNNING) for other in others if other.id not in told_now)
    planned = step.state.plan
    due = any(other.id in told_now and _is_due(step.state, other, planned[other.id]) for other in others)
    return gone or due or any(_started_too_long(step, other) for other in others)


def _started_too_long(step: Step, workload: Workload) -> bool:
    was = step.before.workloads.get(workload.id)
    if was is None or was.phase is not Phase.STARTING or was.pending is None:
        return False
    return was.pending.deadline_at <= step.state.at


SENTENCES = (
    who_is_kept_leaves_for_a_guarantee_only,
    a_cell_is_interrupted_once_and_for_a_guarantee,
    nobody_is_suspended_in_mid_cell,
    a_running_cell_is_stopped_at_its_deadline_only,
    a_cell_is_interrupted_before_it_is_stopped,
    a_suspend_is_cut_off_for_a_guarantee_only,
    a_command_that_cannot_start_again_is_stopped_at_its_deadline_only,
    a_trim_has_a_cause,
    a_sample_above_the_limit_counts_once,
    moves_for_burst_are_rare,
)
