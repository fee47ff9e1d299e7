"""A change of what a workload asks for takes nobody's guarantee away. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.planning.homes.paper import Paper
from nls_scheduler.wire.errors import impossible

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Gpu
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
    if workload.given_home is None and workload.spec.request_bytes > before.workloads[changed].spec.request_bytes:
        full = _full_without_it(after, workload)
        if full is not None:
            raise _refused(f"nobody on {full.label} can make room, whose requests would be more than it has")


def _full_without_it(state: NodeState, workload: Workload) -> Gpu | None:
    """A Gpu of its home that has not that much beside all others at home there; who has to stay keeps its home."""
    paper = Paper(state)
    for other in state.workloads.values():
        if other.home and other.id != workload.id:
            paper.give(other, other.home)
    healthy = (uuid for uuid in workload.home if uuid in paper.free)
    return next((state.gpus[uuid] for uuid in healthy if not paper.has_home_room(workload, uuid)), None)


def _refused(why: str) -> Problem:
    advice = "Ask for less, or again when there is more room."
    return impossible(f"The change is refused and nothing is changed: {why}. {advice}")
