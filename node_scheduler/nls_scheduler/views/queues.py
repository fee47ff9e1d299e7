"""What people see of the queues: per pool what each is owed, has and asks for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.queue_ledger import ledger_of

if TYPE_CHECKING:
    from nls_scheduler.core.model.queues import Queue
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.planning.homes.queue_ledger import Ledger


def queue_views(state: NodeState) -> list[dict[str, Any]]:
    """One entry per queue, parents before their children; none where no queues are configured."""
    if not state.policy.queues:
        return []
    ledger = ledger_of(state)
    waiting = [w for w in state.workloads.values() if w.wants_gpu and w.phase in (Phase.QUEUED, Phase.SUSPENDED)]
    views: list[dict[str, Any]] = []
    todo: list[Queue] = list(ledger.tree.children[None])
    while todo:
        queue = todo.pop(0)
        views.append(
            {
                "name": queue.name,
                "parent": queue.parent,
                "priority": queue.priority,
                "waiting": sum(any(q.name == queue.name for q in ledger.tree.chain(ledger.leaf(w))) for w in waiting),
                "pools": [pool_figures(ledger, queue, pool) for pool in ledger.capacity],
            }
        )
        todo = [*ledger.tree.children.get(queue.name, []), *todo]
    return views


def pool_figures(ledger: Ledger, queue: Queue, pool: str) -> dict[str, Any]:
    """What `queue` is owed, has and asks for in `pool`, in Gpus; `None` is unlimited."""
    return {
        "pool": pool,
        "quota": queue.quota_in(pool),
        "limit": queue.limit_in(pool),
        "over_quota_weight": queue.weight_in(pool),
        "fair_share": round(ledger.fair(queue.name, pool), 6),
        "used": round(ledger.used(queue.name, pool), 6),
        "requested": round(ledger.asked(queue.name, pool), 6),
    }
