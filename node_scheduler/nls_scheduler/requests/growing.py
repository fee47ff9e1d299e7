"""A change of what a workload asks for takes nobody's guarantee away. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.wire.errors import impossible

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState


def check(before: NodeState, after: NodeState, changed: WorkloadId) -> None:
    """Raises Problem where somebody else would not be admitted any more; `after` is `before` with the change.

    What was admitted first with less would otherwise go before who was admitted later, with all that it grows to. Where
    there are queues, they say who may take from whom.
    """
    if before.policy.queues:
        return
    admitted = [w.id for w in before.workloads.values() if w.home and w.id != changed]
    homeless = [key for key in admitted if key in after.workloads and not after.workloads[key].home]
    if homeless:
        whose = "another workload" if len(homeless) == 1 else f"{len(homeless)} other workloads"
        raise impossible(
            f"The change is refused and nothing is changed: it would take the guarantee of {whose}. Ask for less, or"
            " again when there is more room."
        )
