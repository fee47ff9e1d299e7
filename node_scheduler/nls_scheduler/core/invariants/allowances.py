"""Allowances: between request and limit, and for everybody at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.invariants.definitions import for_plans_bytes, may_borrow, name_of
from nls_scheduler.core.model.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId

_ROUNDED: Final = 1e-4


def an_allowance_is_between_request_and_limit(step: Step) -> Iterator[str]:
    """Nobody may use less than its request nor more than its limit."""
    for workload, entry in step.planned:
        spec = workload.spec
        if (entry.target or workload.current) and not spec.request_bytes <= entry.allowance_bytes <= spec.limit_bytes:
            yield f"{workload.id} has an allowance outside its request and limit"


def allowances_fit_together(step: Step) -> Iterator[str]:
    """Everybody may use what they are allowed to at the same time, or nobody more than their request.

    Those who are there now, and those who are to be there and are on no other Gpu.
    """
    for uuid, gpu in step.state.gpus.items():
        now = [(workload, entry) for workload, entry in step.planned if uuid in workload.current]
        to_be = [(w, entry) for w, entry in step.planned if uuid in entry.target and w.current in ((), entry.target)]
        for there in (now, to_be):
            requests = sum(workload.spec.request_bytes for workload, _ in there)
            if sum(entry.allowance_bytes for _, entry in there) > max(requests, for_plans_bytes(gpu)):
                yield f"the allowances on {name_of(gpu)} are more than it has"


def moves_for_burst_take_from_nobody_with_less(step: Step) -> Iterator[str]:
    """The shares of all, compared from the smallest on, are no worse for the moves that serve burst alone."""
    before: dict[WorkloadId, tuple[GpuUuid, ...]] = {}
    after: dict[WorkloadId, tuple[GpuUuid, ...]] = {}
    moved = []
    for workload, entry in step.planned:
        before[workload.id] = after[workload.id] = entry.target
        for_burst = bool(entry.reason) and entry.reason.kind in (Reason.GOES_HOME, Reason.MORE_ROOM)
        if for_burst and workload.current != entry.target and entry.roomier not in entry.target:
            before[workload.id] = workload.current
            moved.append(workload.id)
        elif workload.current != entry.target:
            return  # others are on their way, and where all are is not known yet
    for old, new in zip(_shares(step, before), _shares(step, after), strict=True):
        if new < old - _ROUNDED:
            yield f"{', '.join(moved)} would move for burst, and take from who has less: {new} instead of {old}"
        if abs(new - old) > _ROUNDED:
            return


def _shares(step: Step, places: Mapping[WorkloadId, tuple[GpuUuid, ...]]) -> list[float]:
    """The part of (limit - request) that each who may borrow can have at the same time at these places; sorted."""
    shares = []
    for uuid, gpu in step.state.gpus.items():
        there = [workload.spec for workload, _ in step.planned if uuid in places[workload.id]]
        bursts = [spec.limit_bytes - spec.request_bytes for spec in there if may_borrow(spec)]
        room = max(0, for_plans_bytes(gpu) - sum(spec.request_bytes for spec in there))
        shares += [min(1.0, room / sum(bursts)) for _ in bursts]
    return sorted(shares)


SENTENCES = (
    an_allowance_is_between_request_and_limit,
    allowances_fit_together,
    moves_for_burst_take_from_nobody_with_less,
)
