"""Deadlines: only for a guarantee, and never sooner than somebody who has to leave can obey."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import brings_bytes, fellows, stands_on, to_be_told_s
from nls_scheduler.core.model.commands import FreezeProcess
from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.state import NodeState


def only_a_guarantee_sets_a_deadline(step: Step) -> Iterator[str]:
    """Only a guarantee sets a deadline: somebody within their request who comes home, or a Gpu pressed from outside.

    A gang leaves whole, by the deadline of the one that is in the way.
    """
    state = step.state
    told_now = {command.workload for command in step.commands if isinstance(command, FreezeProcess)}
    for workload, entry in step.planned:
        if entry.deadline_at is None:
            continue
        leaving = [workload.id, *(w.id for w in fellows(state, workload))]
        left = {uuid for key in leaving for uuid in state.workloads[key].current}
        pressed = any(state.gpus[uuid].pressed_since is not None for uuid in left if uuid in state.gpus)
        claimed = False
        for other, claim in step.planned:
            arrives = other.phase is not Phase.RUNNING or other.current != claim.target
            stands = None if other.id in told_now else stands_on(other)  # planned before it was told so
            owed = brings_bytes(other) == other.spec.request_bytes and stands in (None, other.home)
            comes_home = left.intersection(claim.target, claim.home)
            claimed |= other.id not in leaving and arrives and owed and bool(comes_home)
        if not pressed and not claimed:
            yield f"{workload.id} has a deadline, and no guarantee waits for it to leave"


def who_has_to_leave_is_told_before(step: Step) -> Iterator[str]:
    """Nobody's deadline is sooner than `interrupt_grace_s`, or half of `reclaim_deadline_s`, after it was told."""
    for workload, entry in step.planned:
        if entry.deadline_at is None:
            continue
        if workload.told_since is None or entry.deadline_at < workload.told_since + to_be_told_s(step.state):
            yield f"{workload.id} is to leave by {entry.deadline_at}, and was told at {workload.told_since}"


def a_deadline_does_not_slide(step: Step) -> Iterator[str]:
    """Who has been told to leave is not given longer than told, as long as the same wait for the same to leave.

    That is, as long as nobody comes, goes, moves or is to, nor uses more or less, who is told for whom is the same, and
    the step before ordered nothing. Only whose cell should have been interrupted before, or is another one than the
    interrupted, has its time from now on.
    """
    was, state = step.before, step.state
    if not was.settled or was.policy != state.policy or _who_is_where(was) != _who_is_where(state):
        return
    for workload, entry in step.planned:
        told = was.plan.get(workload.id)
        if told is None or told.deadline_at is None or entry.deadline_at is None:
            continue
        until = told.deadline_at
        before = was.workloads[workload.id]
        is_another = workload.cell_since != before.cell_since  # of the end of the one before nobody told
        if workload.cell_since is not None and (before.interrupt is None or is_another):
            until = max(until, state.at + to_be_told_s(state))
        if before.told_since == workload.told_since and entry.deadline_at > until:
            yield f"{workload.id} was to leave by {told.deadline_at}, and is given until {entry.deadline_at}"


def _who_is_where(state: NodeState) -> list[tuple[object, ...]]:
    """Where everybody is and is to be, and for whom they leave: another claim on a Gpu has another deadline."""
    pressed: list[tuple[object, ...]] = [
        (
            gpu.uuid,
            gpu.healthy,
            gpu.pressed_since,
            gpu.memory_used_bytes,
            gpu.confirmed_bytes,
            gpu.owners,
            gpu.releasing,
        )
        for gpu in state.gpus.values()
    ]
    told = {key: (entry.target, entry.cause) for key, entry in state.plan.items()}
    return pressed + [
        (
            w.id,
            w.spec,
            w.home,
            w.current,
            told.get(w.id),
            w.phase,
            w.process,
            w.waiting_since,
            w.home_since,
            w.memory_used,
            w.saved_bytes,
        )
        for w in state.workloads.values()
    ]


SENTENCES = (only_a_guarantee_sets_a_deadline, who_has_to_leave_is_told_before, a_deadline_does_not_slide)
