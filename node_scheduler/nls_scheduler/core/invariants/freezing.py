"""Frozen processes: they live, stand still for a guarantee only, go on where they were, and are never killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import is_ordered, pool_of, stands_on, to_be_told_s
from nls_scheduler.core.model.commands import EndProcess, FreezeProcess, ThawProcess
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Order, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.ids import GpuUuid


def who_stands_still_has_its_process_and_no_gpu(step: Step) -> Iterator[str]:
    """A frozen process lives; it is on no Gpu, unless it is being thawed."""
    for workload in step.state.workloads.values():
        if workload.frozen is None:
            continue
        thaws = workload.phase is Phase.STARTING and workload.current == workload.frozen.gpus
        if workload.process is None or not (workload.phase is Phase.SUSPENDED or thaws):
            yield f"{workload.id} stands still, is {workload.phase} on {workload.current}, process {workload.process}"


def a_frozen_process_stays_the_same(step: Step) -> Iterator[str]:
    """What stands still, and goes on, is one process on the same Gpus."""
    for workload in step.state.workloads.values():
        was = step.before.workloads.get(workload.id)
        if was is None or was.frozen is None or workload.process is None:
            continue
        if workload.process != was.process or stands_on(workload) not in (None, was.frozen.gpus):
            yield f"{workload.id} stood still as {was.process} and is {workload.process} on {workload.current} now"


def only_a_running_cell_is_frozen(step: Step) -> Iterator[str]:
    """Frozen is a notebook's running cell, for a deadline, before its interrupt, where its driver and pool allow it."""
    for command, workload, entry in step.ordered:
        was = step.before.workloads.get(workload.id)
        if not isinstance(command, FreezeProcess) or was is None:
            continue
        ran = was.phase is Phase.RUNNING or is_ordered(was, Order.SUSPEND)  # that has just failed
        if workload.spec.kind is not Kind.NOTEBOOK or not ran or workload.cell_since is None:
            yield f"{workload.id} is frozen, and runs no cell"
        if entry.deadline_at is None or step.state.at >= entry.deadline_at - to_be_told_s(step.state):
            yield f"{workload.id} is frozen without a deadline, or when its cell was to be interrupted"
        if not workload.freezable or not all(_allows(step, uuid) for uuid in workload.current):
            yield f"{workload.id} is frozen where that is not allowed, or cannot be done"


def a_cell_that_could_not_be_frozen_is_not_frozen(step: Step) -> Iterator[str]:
    """Freezing a cell is tried once, and never after it was interrupted."""
    for command, workload, _ in step.ordered:
        was = step.before.workloads.get(workload.id)
        if not isinstance(command, FreezeProcess) or was is None or was.cell_since != workload.cell_since:
            continue
        if workload.freeze_trouble is not None or workload.interrupt is not None:
            yield f"{workload.id} is frozen again, or after its cell was interrupted"


def who_stands_still_gets_no_other_order(step: Step) -> Iterator[str]:
    """A frozen process is thawed before anything else is ordered of it."""
    for command, workload, _ in step.ordered:
        if workload.frozen is not None and not isinstance(command, ThawProcess):
            yield f"{workload.id} stands still and is told {type(command).__name__}"


def nobody_kills_what_the_driver_may_hold(step: Step) -> Iterator[str]:
    """The daemon ends no process by itself that it told to freeze or to thaw, before somebody says how that ended."""
    for command, workload, _ in step.ordered:
        if isinstance(command, EndProcess) and workload.perhaps_locked:
            yield f"{workload.id} is killed while the driver may hold its process"


def _allows(step: Step, uuid: GpuUuid) -> bool:
    gpu = step.state.gpus.get(uuid)
    pool = None if gpu is None else pool_of(step.state, gpu)
    own = None if pool is None else pool.freeze_cells
    return step.state.policy.freeze_cells if own is None else own


SENTENCES = (
    who_stands_still_has_its_process_and_no_gpu,
    a_frozen_process_stays_the_same,
    only_a_running_cell_is_frozen,
    a_cell_that_could_not_be_frozen_is_not_frozen,
    who_stands_still_gets_no_other_order,
    nobody_kills_what_the_driver_may_hold,
)
