"""Whether a command can join the gang that it names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gangs import key_of
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.priorities import priority_word
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.core.planning.homes.assign import assign_homes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.policy import Policy
    from nls_scheduler.core.model.spec import WorkloadSpec

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


def refusal(spec: WorkloadSpec, workloads: Iterable[Workload], gpus: Collection[Gpu], policy: Policy) -> str | None:
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
    least = min(known, key=lambda other: (other.request_bytes * other.gpu_count, other.request_bytes))
    members = [*known, *[least] * (spec.gang_size - len(known))]
    names = {name for member in members for name in member.pools}
    offered = [gpu.memory_total_bytes for gpu in gpus if policy.pool_of(gpu).name in names]
    slots = sum(min(spec.gang_size, total // min(s.request_bytes for s in known)) for total in offered)
    shares = sum(member.gpu_count for member in members)
    if shares > slots:
        whose = "its pool" if policy.pools else "this node"
        return (
            f"Gang {spec.gang} can never fit: its {spec.gang_size} members ask for {shares} shares of a GPU at once, "
            f"and {whose} has at most {slots} of that size: ask for fewer members or for less."
        )
    if not _fit_on_empty(members, gpus, policy):
        return (
            f"Gang {spec.gang} can never fit: even while nobody else is here, its {spec.gang_size} members find no "
            "room together: ask for fewer members or for less."
        )
    return None


def _fit_on_empty(members: Collection[WorkloadSpec], gpus: Iterable[Gpu], policy: Policy) -> bool:
    """Whether all of a gang are admitted where nobody else is, by the rules for homes alone."""
    empty = {gpu.uuid: replace(gpu, owners=(), confirmed_bytes=0, memory_used_bytes=0, releasing=()) for gpu in gpus}
    gang = [Workload(WorkloadId(str(number)), member, 0.0) for number, member in enumerate(members)]
    state = NodeState(replace(policy, queues=()), empty, {workload.id: workload for workload in gang})
    homes, _ = assign_homes(state, gang)
    return len(homes.homes) == len(gang)
