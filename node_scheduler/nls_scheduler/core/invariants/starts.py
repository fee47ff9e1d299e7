"""Starts: on evidence, on a Gpu in service, at home or where one may borrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import (
    is_ordered,
    may_borrow,
    name_of,
    on,
    owned_bytes,
    pool_of,
    takes_bytes,
)
from nls_scheduler.core.model.commands import StartProcess, ThawProcess
from nls_scheduler.core.model.workload import Order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.state import NodeState


def no_start_before_a_release(step: Step) -> Iterator[str]:
    """What is on a Gpu, what is on its way out and what starts or goes on there fit together."""
    for gpu in {gpu.uuid: gpu for _, gpu in (*_starts(step), *_thaws(step))}.values():
        taken = max(gpu.unplaced_bytes, owned_bytes(gpu))
        taken += sum(releasing.bytes for releasing in gpu.releasing)
        taken += sum(takes_bytes(workload, gpu.uuid) for workload in on(step.state, gpu.uuid))
        if taken > gpu.memory_total_bytes:
            yield f"a process starts on {name_of(gpu)} before there is room: {taken} > {gpu.memory_total_bytes}"


def a_start_is_on_a_gpu_in_service(step: Step) -> Iterator[str]:
    """Nobody starts or goes on on a Gpu that is broken, whose memory is not known, or on which a process is stuck."""
    for command, gpu in (*_starts(step), *_thaws(step)):
        if not gpu.healthy or gpu.memory_used_bytes is None or _is_stuck(step.state, gpu):
            yield f"{command.workload} starts on {name_of(gpu)}, which is out of service"


def a_start_is_at_home_or_borrows(step: Step) -> Iterator[str]:
    """Who starts away from home may borrow, and nobody whom we do not look after is there."""
    for command, gpu in _starts(step):
        workload = step.state.workloads[command.workload]
        if gpu.uuid in workload.home:
            continue
        if not may_borrow(workload.spec) or gpu.unplaced or gpu.owners:
            yield f"{workload.id} starts on {name_of(gpu)}, which it may not borrow"


def a_start_is_in_a_pool_of_its_own(step: Step) -> Iterator[str]:
    """Who starts does so in a pool that it names and that takes new ones, unless a cluster chose its home."""
    for command, gpu in _starts(step):
        workload, pool = step.state.workloads[command.workload], pool_of(step.state, gpu)
        name, is_open = ("default", True) if pool is None else (pool.name, pool.enabled)
        if workload.given_home is None and not (is_open and name in workload.spec.pools):
            yield f"{workload.id} starts on {name_of(gpu)}, whose pool is not for it"


def a_start_is_where_the_plan_says(step: Step) -> Iterator[str]:
    """A process starts where the plan wants it, and nowhere else."""
    for command, workload, entry in step.ordered:
        if isinstance(command, StartProcess) and not command.gpus == entry.target == workload.current:
            yield f"{workload.id} starts on {command.gpus}, and the plan says {entry.target}"


def _starts(step: Step) -> list[tuple[StartProcess, Gpu]]:
    starts = [c for c in step.commands if isinstance(c, StartProcess)]
    return [(c, step.state.gpus[uuid]) for c in starts for uuid in c.gpus if uuid in step.state.gpus]


def _thaws(step: Step) -> list[tuple[ThawProcess, Gpu]]:
    thaws = [c for c in step.commands if isinstance(c, ThawProcess)]
    return [(c, step.state.gpus[uuid]) for c in thaws for uuid in c.gpus if uuid in step.state.gpus]


def _is_stuck(state: NodeState, gpu: Gpu) -> bool:
    """Whether what should be gone is still there when `stop_timeout_s` has passed."""
    if any(state.at >= releasing.since + state.policy.stop_timeout_s for releasing in gpu.releasing):
        return True
    ended = [w.pending for w in on(state, gpu.uuid) if is_ordered(w, Order.END)]
    return any(pending is not None and state.at >= pending.deadline_at for pending in ended)


SENTENCES = (
    no_start_before_a_release,
    a_start_is_on_a_gpu_in_service,
    a_start_is_at_home_or_borrows,
    a_start_is_in_a_pool_of_its_own,
    a_start_is_where_the_plan_says,
)
