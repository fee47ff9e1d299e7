"""Phases: what each says of the Gpu, the process and the command that is pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import is_ordered
from nls_scheduler.core.model.workload import Order, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step

_ON_A_GPU = (Phase.STARTING, Phase.RUNNING, Phase.SUSPENDING)


def the_phase_says_whether_there_is_a_gpu(step: Step) -> Iterator[str]:
    """Who starts, runs or leaves is on a Gpu, nobody else is."""
    for workload in step.state.workloads.values():
        if (workload.phase in _ON_A_GPU) != bool(workload.current):
            yield f"{workload.id} is {workload.phase} with current {workload.current}"


def no_process_without_a_gpu(step: Step) -> Iterator[str]:
    """Who is on no Gpu has no process, unless that is frozen, and no command."""
    for workload in step.state.workloads.values():
        has_process = workload.process is not None and workload.frozen is None
        has_some = has_process or workload.pending is not None
        if workload.phase not in _ON_A_GPU and has_some:
            yield f"{workload.id} is {workload.phase} with a process or a command"


def who_runs_has_a_process_and_no_command(step: Step) -> Iterator[str]:
    """Who runs has a process, and no command is pending."""
    for workload in step.state.workloads.values():
        is_complete = workload.process is not None and workload.pending is None
        if workload.phase is Phase.RUNNING and not is_complete:
            yield f"{workload.id} runs without a process or with a command pending"


def who_starts_was_told_to(step: Step) -> Iterator[str]:
    """Who starts, or goes on after it stood still, has been told to."""
    for workload in step.state.workloads.values():
        order = Order.START if workload.frozen is None else Order.THAW
        if workload.phase is Phase.STARTING and not is_ordered(workload, order):
            yield f"{workload.id} is starting without StartProcess"


def who_leaves_was_told_to(step: Step) -> Iterator[str]:
    """Who leaves has been told to."""
    for workload in step.state.workloads.values():
        told = is_ordered(workload, Order.SUSPEND, Order.FREEZE, Order.STOP, Order.END)
        if workload.phase is Phase.SUSPENDING and not told:
            yield f"{workload.id} is suspending without a command"


def since_when_one_waits_is_known(step: Step) -> Iterator[str]:
    """Of everybody who wants a Gpu and has none it is known since when."""
    for workload in step.state.workloads.values():
        waits = workload.wants_gpu and workload.phase in (Phase.QUEUED, Phase.SUSPENDED)
        if waits and workload.waiting_since is None:
            yield f"{workload.id} waits, but since when is not known"


SENTENCES = (
    the_phase_says_whether_there_is_a_gpu,
    no_process_without_a_gpu,
    who_runs_has_a_process_and_no_command,
    who_starts_was_told_to,
    who_leaves_was_told_to,
    since_when_one_waits_is_known,
)
