"""Commands: numbered, one at a time for each workload, each with a reason, and each remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.commands import InterruptCell, TrimMemory, WorkloadCommand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.workload import Pending, Workload


def ids_are_consecutive(step: Step) -> Iterator[str]:
    """Commands have consecutive ids, none of them used before, nor by an earlier daemon as far as is known."""
    ids = [c.command_id for c in step.commands if isinstance(c, WorkloadCommand)]
    first = step.state.next_command - len(ids)
    if first < step.before.next_command or ids != list(range(first, step.state.next_command)):
        yield f"command ids are not consecutive: {ids} after {step.before.next_command}"


def one_command_each(step: Step) -> Iterator[str]:
    """Nobody gets two commands in one step."""
    targets = [c.workload for c in step.commands if isinstance(c, WorkloadCommand)]
    if len(set(targets)) != len(targets):
        yield "a workload got two commands in one step"


def every_command_says_why(step: Step) -> Iterator[str]:
    """Every command has a reason."""
    for command, _, _ in step.ordered:
        if not command.reason:
            yield f"command {command.command_id} has no reason"


def every_command_is_pending(step: Step) -> Iterator[str]:
    """A command that was given is remembered until it is answered."""
    for command, workload, _ in step.ordered:
        pending = _pending_of(workload, command)
        if pending is None or pending.command_id != command.command_id:
            yield f"command {command.command_id} is not pending"


def _pending_of(workload: Workload, command: WorkloadCommand) -> Pending | None:
    if isinstance(command, InterruptCell):
        return workload.interrupt
    return workload.trim if isinstance(command, TrimMemory) else workload.pending


SENTENCES = (ids_are_consecutive, one_command_each, every_command_says_why, every_command_is_pending)
