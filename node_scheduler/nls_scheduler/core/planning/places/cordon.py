"""A node that takes no new pods is about to be emptied: its idle notebooks leave their Gpus, one after another. Pure.

What a notebook has is in memory then, and whatever ends its pod has only that to put away. Who borrows leaves first,
then the least harm. No cell is interrupted for it, whoever is kept by its user stays, and the next cell brings a
notebook back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Kind, Phase
from nls_scheduler.core.planning.making_room.victims import harm

if TYPE_CHECKING:
    from collections.abc import Collection

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload


def leaves_now(state: NodeState, alive: Collection[Workload]) -> dict[WorkloadId, Why]:
    """The one that leaves next, if it is time for one: nobody does while another is on its way off its Gpu."""
    if not state.claims.cordoned or any(w.phase is Phase.SUSPENDING for w in alive):
        return {}
    due = [w for w in alive if (at := leaves_at(state, w)) is not None and at <= state.at]
    first = min(due, key=lambda w: (not w.borrowed, harm(w, state.at)), default=None)
    return {} if first is None else {first.id: Why(Reason.CORDONED, numbers=(state.policy.cordoned_idle_s or 0.0,))}


def leaves_at(state: NodeState, workload: Workload) -> float | None:
    """From when on a notebook may be asked to leave; `None`: not as long as everything is as it is."""
    idle_s = state.policy.cordoned_idle_s
    if not state.claims.cordoned or idle_s is None or workload.executing or workload.idle_since is None:
        return None
    if workload.spec.kind is not Kind.NOTEBOOK or workload.phase is not Phase.RUNNING:
        return None
    failed_at = workload.suspend_failed_at
    again_at = 0.0 if failed_at is None else failed_at + state.policy.cool_down_s
    return max(workload.idle_since + idle_s, workload.keep_until or 0.0, again_at)
