"""Requests: they fit where they are and where they are counted, on as many Gpus as were asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.invariants.definitions import most_gpus, name_of, on, pool_of, unheard_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.invariants.definitions import Step


def requests_now_fit(step: Step) -> Iterator[str]:
    """The requests of those who are on a Gpu are never more than it has, unless one there has asked for more.

    Nobody comes then, and somebody leaves, as `planned_requests_fit` says. Who has not reported since a restart may be
    elsewhere by now: nothing is ordered before that is known.
    """
    unheard = unheard_of(step.state)
    for uuid, gpu in step.state.gpus.items():
        there = [w for w in on(step.state, uuid) if w.id not in unheard]
        asked = {w.id: w.spec.request_bytes for w in on(step.before, uuid)}
        now = sum(w.spec.request_bytes for w in there)
        new = {w.id for w in there if w.id not in asked}
        came = bool(new - step.before.unreported)
        # Or did so before its journal lost its end.
        asks_otherwise = bool(new & step.before.unreported)
        asks_for_more = any(w.spec.request_bytes > asked.get(w.id, 0) for w in there)
        lasts = now <= sum(asked.values())
        if now > gpu.memory_total_bytes and (came or not (asks_for_more or asks_otherwise or lasts)):
            yield f"requests now on {name_of(gpu)} are more than it has: {now} > {gpu.memory_total_bytes}"


def requests_at_home_fit(step: Step) -> Iterator[str]:
    """The requests at home on a Gpu are never more than it has, or than its pool promises of it.

    What nobody placed can take a home's room at any time, and a cluster's scheduler may give more homes than there is
    room; such a home is reported, not forbidden. Who has not reported since a restart may be at home elsewhere by now.
    """
    unheard = unheard_of(step.state)
    for uuid, gpu in step.state.gpus.items():
        at_home = [w for w in step.state.workloads.values() if uuid in w.home and w.id not in unheard]
        if not gpu.healthy or any(w.given_home for w in at_home):
            continue
        pool, home = pool_of(step.state, gpu), sum(w.spec.request_bytes for w in at_home)
        promised = step.state.policy.oversubscribe if pool is None else pool.oversubscribe
        if home > gpu.memory_total_bytes * promised:
            yield f"home requests on {name_of(gpu)} are more than it has: {home} > {gpu.memory_total_bytes}"


def no_gpu_twice(step: Step) -> Iterator[str]:
    """Nobody has one Gpu twice."""
    for workload, entry in step.planned:
        for gpus in (workload.home, entry.target, workload.current):
            if len(set(gpus)) != len(gpus):
                yield f"{workload.id} has one Gpu twice: {gpus}"


def as_many_gpus_as_asked_for(step: Step) -> Iterator[str]:
    """Nobody starts on fewer Gpus than it asks for, nor on more."""
    for workload, entry in step.planned:
        starts, spec = entry.target and not workload.current, workload.spec
        if starts and not spec.gpu_count <= len(entry.target) <= most_gpus(spec):
            yield f"{workload.id} is to start on {len(entry.target)} Gpus"


def several_are_never_slices(step: Step) -> Iterator[str]:
    """One of several Gpus is never a slice of another."""
    gpus = step.state.gpus
    for workload, entry in step.planned:
        if len(entry.target) > 1 and any(gpus[uuid].parent for uuid in entry.target if uuid in gpus):
            yield f"{workload.id} spans a slice"


SENTENCES = (
    requests_now_fit,
    requests_at_home_fit,
    no_gpu_twice,
    as_many_gpus_as_asked_for,
    several_are_never_slices,
)
