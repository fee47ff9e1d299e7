"""A change of what a workload asks for takes nobody's guarantee away. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.wire.errors import impossible

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.wire.errors import Problem


def check(before: NodeState, after: NodeState, changed: WorkloadId) -> None:
    """Raises Problem where somebody's guarantee would not hold any more; `after` is `before` with the change.

    What was admitted first with less would otherwise go before who was admitted later, with all that it grows to. Where
    there are queues, they say who may take from whom.
    """
    admitted = [w.id for w in before.workloads.values() if w.home and w.id != changed]
    homeless = [key for key in admitted if key in after.workloads and not after.workloads[key].home]
    if homeless and not before.policy.queues:
        whose = "another workload" if len(homeless) == 1 else f"{len(homeless)} other workloads"
        raise _refused(f"it would take the guarantee of {whose}")
    workload = after.workloads[changed]
    for gpu in (after.gpus[uuid] for uuid in workload.home if workload.given_home is None and uuid in after.gpus):
        at_home = sum(w.spec.request_bytes for w in after.workloads.values() if gpu.uuid in w.home)
        if at_home > after.policy.pool_of(gpu).home_capacity_bytes(gpu) and _grows(before, workload):
            raise _refused(f"nobody on {gpu.label} can make room, whose requests would be more than it has")


def _grows(before: NodeState, workload: Workload) -> bool:
    return workload.spec.request_bytes > before.workloads[workload.id].spec.request_bytes


def _refused(why: str) -> Problem:
    advice = "Ask for less, or again when there is more room."
    return impossible(f"The change is refused and nothing is changed: {why}. {advice}")
