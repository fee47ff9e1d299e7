"""The plan: for each workload its home, its target and why. Made from scratch after every event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.entries import entries_of
from nls_scheduler.core.planning.gangs import leave_together
from nls_scheduler.core.planning.gangs import resting as resting_gangs
from nls_scheduler.core.planning.homes.known import homes_of
from nls_scheduler.core.planning.making_room.allowances import while_some_leave
from nls_scheduler.core.planning.making_room.victims import may_be_suspended_from
from nls_scheduler.core.planning.places import freezing, trims
from nls_scheduler.core.planning.places.failed_allocations import trim_for_wanted
from nls_scheduler.core.planning.places.guarantees import grant_wishes, place_guarantees, place_guests
from nls_scheduler.core.planning.places.idleness import anybody_may, leave_when_idle
from nls_scheduler.core.planning.places.spreading import follow_wishes, place_together, spread
from nls_scheduler.core.planning.places.turns import take_turns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState, PlanEntry
    from nls_scheduler.core.planning.homes.known import KnownHomes
    from nls_scheduler.core.planning.places.draft import Draft


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries, the next moment at which time alone may change them, and what is kept for the next plan."""

    entries: Mapping[WorkloadId, PlanEntry]
    wake_at: float | None
    remembered: object = None
    weighed: frozenset[GpuUuid] = frozenset()


def make_plan(state: NodeState) -> Plan:
    """Who is to be where, then what is said of everybody, and when to look again."""
    draft, known = _place(state)
    draft.allowances = while_some_leave(state, draft.rooms.target, draft.rooms.allowances())
    draft.trim_since = trims.wanted_from(state, draft.short) | trim_for_wanted(state, draft.allowances)
    entries = entries_of(draft)
    times = (*draft.homes.wake_at, *draft.wake_at, *_wakes_of(state, entries))
    wake_at = min((at for at in times if at > state.at), default=None)
    return Plan(entries, wake_at, known, _weighed(draft, known))


def targets_in(state: NodeState) -> tuple[Mapping[WorkloadId, tuple[GpuUuid, ...]], frozenset[WorkloadId]]:
    """Where everybody would be by a plan, and who of them would be on the way there for burst alone."""
    draft, _ = _place(state)
    targets = draft.rooms.target
    bound = {key for key, uuid in draft.bound.items() if targets.get(key) == (uuid,)}
    return targets, frozenset((bound | draft.moves.keys()).difference(draft.cause, draft.homes.moved_for))


def _place(state: NodeState) -> tuple[Draft, KnownHomes]:
    """Guarantees, then turns for burst, then the spread: in this order, never the other way round."""
    alive = [w for w in state.workloads.values() if w.takes_part]
    known = homes_of(state, alive)
    homes, gangs = known.homes, state.gangs
    idle, idle_at = leave_when_idle(state, alive)
    resting = idle | resting_gangs(gangs, homes.homes)
    wanting = [w for w in alive if w.wants_gpu and w.id in homes.homes and w.id not in resting]
    draft = place_guarantees(state, homes, wanting)
    draft.waits |= resting
    draft.wake_at += idle_at
    leave_together(draft, gangs)
    place_guests(draft, [w for w in alive if w.wants_gpu and w.id not in resting])
    take_turns(draft)
    place_together(draft)
    grant_wishes(draft)
    spread(draft)
    follow_wishes(draft, wanting)
    return draft, known


def _weighed(draft: Draft, known: KnownHomes) -> frozenset[GpuUuid]:
    """Where the plan follows from who computes, since when one is idle, or what it costs to move one."""
    state = draft.state
    if known.looked_at.costs or anybody_may(state):
        return frozenset(state.gpus)
    return frozenset(draft.weighed.union(w.wanted.gpu for w in state.workloads.values() if w.wanted))


def _wakes_of(state: NodeState, entries: Mapping[WorkloadId, PlanEntry]) -> list[float]:
    """When the next rung of anybody's ladder follows, or one is tried again."""
    deadlines = [entry.deadline_at for entry in entries.values() if entry.deadline_at is not None]
    again = [
        may_be_suspended_from(state, w)
        for w in state.workloads.values()
        if w.suspend_failed_at is not None and w.phase is Phase.RUNNING and entries[w.id].target != w.current
    ]
    kept = [
        w.keep_until
        for w in state.workloads.values()
        if w.keep_until is not None and w.present and entries[w.id].target != w.current
    ]
    return [*deadlines, *map(state.policy.interrupt_at, deadlines), *again, *kept, *freezing.wakes_at(state, entries)]
