"""Whether a command can join the gang that it names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.model.priorities import priority_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.workload import Workload, WorkloadSpec

_SAME_FOR_ALL: Final[tuple[tuple[str, Callable[[WorkloadSpec], object]], ...]] = (
    ("size", lambda spec: spec.gang_size),
    ("queue", lambda spec: spec.queue),
    ("priority", lambda spec: priority_word(spec.priority)),
    ("--on-evict rule", lambda spec: "requeue" if spec.requeue else "none"),
)
"""What a gang has as a whole, since it waits, leaves and comes back as a whole."""


def difference(spec: WorkloadSpec, others: Iterable[WorkloadSpec]) -> str | None:
    """What `spec` says otherwise than `others` of its gang; `None`: nothing."""
    for other in others:
        for what, value_of in _SAME_FOR_ALL:
            if value_of(other) != value_of(spec):
                theirs, own = value_of(other), value_of(spec)
                return f"Gang {spec.gang} has the {what} {theirs}, not {own}: say the same for all of its members."
    return None


def refusal(spec: WorkloadSpec, workloads: Iterable[Workload], gpus: Iterable[Gpu]) -> str | None:
    """Why `spec` cannot join its gang, or why the gang can never fit; `None`: it can.

    Who is still to come is taken to ask for as little as the smallest member known.
    """
    key = key_of(spec)
    mine = [w for w in workloads if key is not None and key_of(w.spec) == key]
    others = [w.spec for w in mine if w.release_reason is None]
    if spec.gang is None:
        return None
    if (differs := difference(spec, others)) is not None:
        return differs
    if len(others) + max((w.gang_done for w in mine), default=0) >= spec.gang_size:
        return f"Gang {spec.gang} has its {spec.gang_size} members already: choose another name for another gang."
    known = [*others, spec]
    unknown = spec.gang_size - len(known)
    smallest = min(other.request_bytes for other in known)
    fewest = min(other.gpu_count for other in known)
    demands = [*((s.request_bytes, s.gpu_count) for s in known), *[(smallest, fewest)] * unknown]
    offered = [gpu.memory_total_bytes for gpu in gpus]
    slots = sum(min(spec.gang_size, total // smallest) for total in offered)
    shares = sum(count for _, count in demands)
    if shares > slots or sum(size * count for size, count in demands) > sum(offered):
        return (
            f"Gang {spec.gang} can never fit: its {spec.gang_size} members ask for {shares} shares of a GPU at once, "
            f"and this node has at most {slots} of that size: ask for fewer members or for less."
        )
    return None
