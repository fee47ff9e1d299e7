"""The plan: for each workload its home, its target and why. Made from scratch after every event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.model.gangs import gangs_of
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Kind, Phase
from nls_scheduler.core.planning.entries import entries_of
from nls_scheduler.core.planning.gangs import leave_together
from nls_scheduler.core.planning.gangs import resting as resting_gangs
from nls_scheduler.core.planning.homes.known import homes_of
from nls_scheduler.core.planning.homes.paper import admission_order
from nls_scheduler.core.planning.places import freezing, trims
from nls_scheduler.core.planning.places.cordon import leaves_at, leaves_now
from nls_scheduler.core.planning.places.failed_allocations import roomier, trim_for_wanted
from nls_scheduler.core.planning.places.guarantees import grant_wishes, place_guarantees, place_guests
from nls_scheduler.core.planning.places.spreading import follow_wishes, place_together, spread
from nls_scheduler.core.planning.places.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.model.workload import Workload


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries, the next moment at which time alone may change them, and what is kept for the next plan."""

    entries: Mapping[WorkloadId, PlanEntry]
    wake_at: float | None
    remembered: object = None


def make_plan(state: NodeState) -> Plan:
    """Guarantees, then turns for burst, then the spread: in this order, never the other way round."""
    alive = [w for w in state.workloads.values() if w.release_reason is None and w.phase is not Phase.FAILED]
    known = homes_of(state)
    homes = known.homes
    pools = (*state.policy.pools, state.policy.default_pool)
    idle = alive if any(pool.idle_suspend_s is not None for pool in pools) else []
    rests_at = {w.id: at for w in idle if (at := _rests_at(state, w)) is not None}
    resting = {key: _why_it_rests(state, key) for key, at in rests_at.items() if at <= state.at}
    gangs = gangs_of(state.workloads.values())
    resting = leaves_now(state, alive) | resting | resting_gangs(gangs, homes.homes)
    wanting = [w for w in alive if w.wants_gpu and w.id in homes.homes and w.id not in resting]
    draft = place_guarantees(state, homes, sorted(wanting, key=admission_order))
    leave_together(draft, gangs)
    draft.waits |= resting
    draft.wake_at += rests_at.values()
    draft.wake_at += (at for w in alive if (at := leaves_at(state, w)) is not None)
    if state.policy.queues:
        place_guests(
            draft, [w for w in alive if w.present and w.wants_gpu and w.id not in homes.homes and w.id not in resting]
        )
    take_turns(draft)
    place_together(draft)
    grant_wishes(draft)
    moves = spread(draft)
    draft.roomier = {w.id: uuid for w in wanting if (uuid := roomier(draft, w)) is not None}
    moves |= follow_wishes(draft)
    draft.allowances = draft.rooms.allowances()
    draft.trim_since = trims.wanted_from(state, draft.short) | trim_for_wanted(state, draft.allowances)
    entries = entries_of(draft, alive, moves)
    deadlines = [e.deadline_at for e in entries.values() if e.deadline_at is not None]
    interrupts = [state.policy.interrupt_at(deadline) for deadline in deadlines]
    freezes = freezing.wakes_at(state, entries)
    wakes = [t for t in (*homes.wake_at, *draft.wake_at, *freezes, *interrupts, *deadlines) if t > state.at]
    return Plan(entries, min(wakes, default=None), known)


def _rests_at(state: NodeState, workload: Workload) -> float | None:
    """When an idle notebook is to be suspended for its idleness alone; `None`: its pool does not want that."""
    if workload.spec.kind is not Kind.NOTEBOOK or workload.phase is not Phase.RUNNING or workload.executing:
        return None
    idle_s = _idle_suspend_s(state, workload)
    if idle_s is None or workload.idle_since is None:
        return None
    return max(workload.idle_since + idle_s, workload.keep_until or 0.0)


def _why_it_rests(state: NodeState, workload: WorkloadId) -> Why:
    return Why(Reason.IDLE, numbers=(_idle_suspend_s(state, state.workloads[workload]) or 0.0,))


def _idle_suspend_s(state: NodeState, workload: Workload) -> float | None:
    pools = [state.policy.pool_of(state.gpus[uuid]) for uuid in workload.current if uuid in state.gpus]
    return min((pool.idle_suspend_s for pool in pools if pool.idle_suspend_s is not None), default=None)
