"""Queues: nobody is admitted beyond a limit, nor without being preemptible beyond a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.invariants.definitions import pool_of, was_found_there

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nls_scheduler.core.invariants.definitions import Step
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

DEFAULT: Final = "default"
EVERY_POOL: Final = "*"
NOT_PREEMPTIBLE_FROM: Final = 100
ROUNDING_GPUS: Final = 1e-6


def limits_hold(step: Step) -> Iterator[str]:
    """Nobody gets a home, or more of one, with which a queue is above its limit."""
    for workload, pool, queue in _admissions(step):
        limits = {q.name: q.limit for q in step.state.policy.queues}.get(queue, {})
        limit = limits.get(pool, limits.get(EVERY_POOL))
        if limit is not None and sum(_used(step.state, pool, queue)) > limit + ROUNDING_GPUS:
            gpus = _gpus(step.state, workload, pool)
            yield f"{workload.id} got {gpus} of {pool}, with which {queue} is above its limit"


def firm_use_is_within_quotas(step: Step) -> Iterator[str]:
    """Who is not preemptible gets a home, or more of one, only within the quotas of its queue and those above."""
    for workload, pool, queue in _admissions(step):
        quotas = {q.name: q.quota for q in step.state.policy.queues}.get(queue, {})
        quota = quotas.get(pool, quotas.get(EVERY_POOL, 0.0))
        if quota is None or workload.spec.priority < NOT_PREEMPTIBLE_FROM:
            continue
        if sum(_used(step.state, pool, queue, firm_only=True)) > quota + ROUNDING_GPUS:
            gpus = _gpus(step.state, workload, pool)
            yield f"{workload.id} got {gpus} of {pool}, with which {queue} is above its quota in firm use"


def _admissions(step: Step) -> Iterator[tuple[Workload, str, str]]:
    """Whose home has grown, by the planner's choice or its user's, in which pool, and each queue where that counts."""
    for workload in step.state.workloads.values() if step.state.policy.queues else ():
        was = step.before.workloads.get(workload.id)
        if was_found_there(step, workload) or workload.given_home is not None or not workload.home:
            continue
        had = () if was is None else was.home
        asks_for_more = was is not None and workload.spec.request_bytes > was.spec.request_bytes
        before, now = _by_pool(step.state, had), _by_pool(step.state, workload.home)  # as the pools are by now
        for pool in now:
            if asks_for_more or now[pool] > before.get(pool, 0):
                for queue in _chain(step.state, workload.spec.queue):
                    yield workload, pool, queue


def _by_pool(state: NodeState, home: tuple[str, ...]) -> Mapping[str, int]:
    """How many Gpus of each pool `home` has."""
    found: dict[str, int] = {}
    for uuid, gpu in state.gpus.items():
        if uuid in home:
            pool = _pool_name(state, uuid)
            found[pool] = found.get(pool, 0) + 1
        del gpu
    return found


def _pool_name(state: NodeState, uuid: str) -> str:
    pool = next(pool_of(state, gpu) for gpu in state.gpus.values() if gpu.uuid == uuid)
    return DEFAULT if pool is None else pool.name


def _chain(state: NodeState, name: str) -> list[str]:
    """The queue in which one counts that named `name`, then its parent, and so on up to the top.

    One that is gone, or that is others' parent, is `default`.
    """
    parents = {queue.name: queue.parent for queue in state.policy.queues}
    at: str | None = name if name in parents and name not in parents.values() else DEFAULT
    chain = []
    while at is not None:
        chain.append(at)
        at = parents.get(at)
    return chain


def _used(state: NodeState, pool: str, queue: str, *, firm_only: bool = False) -> Iterator[float]:
    """What each member of `queue`, or of those inside it, has at home in `pool`."""
    for workload in state.workloads.values():
        counts = workload.spec.priority >= NOT_PREEMPTIBLE_FROM or not firm_only
        if counts and queue in _chain(state, workload.spec.queue):
            yield _gpus(state, workload, pool)


def _gpus(state: NodeState, workload: Workload, pool: str) -> float:
    """What it has at home in `pool`, in Gpus as large as that pool's largest."""
    largest = max(g.memory_total_bytes for g in state.gpus.values() if _pool_name(state, g.uuid) == pool)
    at_home = [uuid for uuid in workload.home if uuid in state.gpus and _pool_name(state, uuid) == pool]
    return len(at_home) * workload.spec.request_bytes / largest


SENTENCES = (limits_hold, firm_use_is_within_quotas)
