"""Plans: everybody has an entry that says why, and is where it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import may_borrow, name_of, unheard_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step


def everybody_is_planned(step: Step) -> Iterator[str]:
    """Everybody has an entry in the plan."""
    for workload_id in step.state.workloads.keys() - step.state.plan.keys():
        yield f"{workload_id} is not in the plan"


def every_entry_says_why(step: Step) -> Iterator[str]:
    """Every entry of the plan has a reason."""
    for workload, entry in step.planned:
        if not entry.reason and workload.release_reason is None:
            yield f"{workload.id} has no reason"


def who_is_to_run_is_admitted(step: Step) -> Iterator[str]:
    """Who is to run has a home; where there are queues, who has lost it may stay where it is."""
    for workload, entry in step.planned:
        stays = bool(step.state.policy.queues) and entry.target == workload.current
        if entry.target and not entry.home and not stays:
            yield f"{workload.id} is to run without being admitted"


def who_may_not_borrow_goes_home_only(step: Step) -> Iterator[str]:
    """Who may not borrow goes nowhere but home; where it is it may stay."""
    for workload, entry in step.planned:
        away = bool(entry.target) and entry.target not in (entry.home, workload.current)
        if away and not may_borrow(workload.spec):
            yield f"{workload.id} may not borrow, and is to run away from home"


def planned_requests_fit(step: Step) -> Iterator[str]:
    """The requests that the plan puts on a Gpu are never more than it has.

    Who has not reported since a restart is planned where it was, and may be elsewhere by now.
    """
    unheard = unheard_of(step.state)
    heard = [(w, entry) for w, entry in step.planned if w.id not in unheard]
    for uuid, gpu in step.state.gpus.items():
        planned = sum(w.spec.request_bytes for w, entry in heard if uuid in entry.target)
        if planned > gpu.memory_total_bytes:
            yield f"the plan puts more requests on {name_of(gpu)} than it has"


SENTENCES = (
    everybody_is_planned,
    every_entry_says_why,
    who_is_to_run_is_admitted,
    who_may_not_borrow_goes_home_only,
    planned_requests_fit,
)
