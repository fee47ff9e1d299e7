"""Waits: nobody else ends the wish of a cell for its Gpu."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.workload import Workload


def a_cell_that_waits_gets_its_gpu(step: Step) -> Iterator[str]:
    """A cell that waits for its Gpu gets it, or is interrupted, or its notebook ends."""
    for workload in step.state.workloads.values():
        was = step.before.workloads.get(workload.id)
        over = workload.release_reason is not None or workload.phase is Phase.FAILED
        waited = was is not None and was.wants_gpu and _cell_waits(was)
        if waited and _cell_waits(workload) and not workload.wants_gpu and not over:
            yield f"a cell of {workload.id} waits, and nothing brings its Gpu back any more"


def _cell_waits(workload: Workload) -> bool:
    return workload.cell_since is not None and workload.phase is not Phase.RUNNING


SENTENCES = (a_cell_that_waits_gets_its_gpu,)
