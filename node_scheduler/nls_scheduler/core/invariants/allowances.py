"""Allowances: between request and limit, and for everybody at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import for_plans_bytes, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step


def an_allowance_is_between_request_and_limit(step: Step) -> Iterator[str]:
    """Nobody may use less than its request nor more than its limit."""
    for workload, entry in step.planned:
        spec = workload.spec
        if entry.target and not spec.request_bytes <= entry.allowance_bytes <= spec.limit_bytes:
            yield f"{workload.id} has an allowance outside its request and limit"


def allowances_fit_together(step: Step) -> Iterator[str]:
    """Everybody may use what they are allowed to at the same time, or nobody more than their request."""
    for uuid, gpu in step.state.gpus.items():
        there = [(workload, entry) for workload, entry in step.planned if uuid in entry.target]
        requests = sum(workload.spec.request_bytes for workload, _ in there)
        if sum(entry.allowance_bytes for _, entry in there) > max(requests, for_plans_bytes(gpu)):
            yield f"the allowances on {name_of(gpu)} are more than it has"


SENTENCES = (an_allowance_is_between_request_and_limit, allowances_fit_together)
