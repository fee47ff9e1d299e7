"""What the plan says of each workload: where it counts, where it is to be, and why. Pure."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.state import PlanEntry
from nls_scheduler.core.model.values import updated
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.gangs import have_room
from nls_scheduler.core.planning.leaving import (
    mentions,
    owner_there,
    what_is_in_its_way,
    why_it_leaves,
    why_needed,
    why_nobody_comes,
)
from nls_scheduler.core.planning.line import places_in_line
from nls_scheduler.core.planning.making_room.rooms import has_room, owed_bytes
from nls_scheduler.core.planning.places import freezing

if TYPE_CHECKING:
    from collections.abc import Collection

    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Frozen, Workload
    from nls_scheduler.core.planning.places.draft import Draft


_SAID: Final = attrgetter(*(field.name for field in fields(PlanEntry)))
WHY_THERE: Final = (Reason.AT_HOME, Reason.AT_HOME_WITH_BURST, Reason.BORROWS)
"""What is told of one that is where it is to be, or comes there next."""
_NEEDED: Final = (Reason.NEEDED, Reason.NEEDED_WHILE_IDLE)
_WHAT_WAS: Final = frozenset(
    {
        Reason.SAID,
        Reason.BURST_NEEDED,
        Reason.BURST_NEEDED_BY_REQUESTS,
        Reason.IDLE,
        Reason.ABOVE_LIMIT,
        Reason.NOT_READY,
    }
)
"""Reasons for which one has left, that are true also when nothing is any more as it was."""


def entries_of(draft: Draft) -> dict[WorkloadId, PlanEntry]:
    """What is said of everybody."""
    state, homes = draft.state, draft.homes
    draft.positions = places_in_line(state, homes.line, draft.rooms.target, homes.homes)
    holders = [(w.size_bytes, w.id) for w in state.workloads.values() if w.current or w.id in homes.homes]
    draft.holders = sorted(holders, reverse=True)
    told = {*draft.moves, *draft.yields, *draft.cause, *draft.bound, *draft.trim_since, *draft.roomier, *homes.waits}
    plan, at_home, targets = state.plan, homes.homes, draft.rooms.target
    entries = {}
    for key, workload in state.workloads.items():
        before, entry = plan.get(key), None
        if before is not None and before.target == workload.current == targets.get(key, ()):
            is_settled = before.home == at_home.get(key, ()) and not before.has_to_act
            entry = _as_mostly(draft, workload, before, told) if is_settled else None
        entries[key] = entry or _all_there_is_to_say(draft, workload)
    return entries


def _as_mostly(draft: Draft, workload: Workload, before: PlanEntry, told: Collection[WorkloadId]) -> PlanEntry | None:
    """The entry of one that runs where it is to be, or is in line for a home still: of most, and soon seen."""
    key, current = workload.id, workload.current
    if current:
        if key in told or workload.phase is not Phase.RUNNING or (before.cause, before.position) != (None, None):
            return None
        kind, size_bytes = _what_is_said(draft, workload, current, before.home)
        why, allowance_bytes = before.reason, draft.allowances[key]
        if why.kind is not kind or why_nobody_comes(draft, workload, current):
            return None
        if why.bytes == (size_bytes,) and before.allowance_bytes == allowance_bytes:
            return before
        why = Why(kind, gpus=current, bytes=(size_bytes,), because=why.because)
        return PlanEntry(before.home, current, why, allowance_bytes=allowance_bytes)
    waits = draft.homes.waits.get(key)
    if before.home or waits is None or not workload.wants_gpu or workload.frozen is not None:
        return None
    largest, position = draft.holders[0][1] if draft.holders else None, draft.positions.get(key)
    if (waits, largest, position) == (before.reason, before.cause, before.position):
        return before
    return PlanEntry((), (), waits, largest, position=position)


def _all_there_is_to_say(draft: Draft, workload: Workload) -> PlanEntry:
    """Its entry; the same value as before where that says the same."""
    key, target, current, moves = workload.id, draft.rooms.target.get(workload.id, ()), workload.current, draft.moves
    leaves = bool(current) and target != current
    since = draft.claimed_since(workload) if leaves else None
    cause = _cause(draft, workload, target)
    if cause is None and leaves and not any(key in other for other in (moves, draft.bound, draft.waits)):
        cause = draft.claimant(workload)
    said = (
        draft.homes.homes.get(key, ()),
        target,
        _reason(draft, workload, target, cause),
        cause or (_owner_as_cause(draft, workload, target) if leaves else None),
        None if since is None else _deadline_at(draft.state, workload, since),
        key in draft.yields or (leaves and key not in moves),
        draft.allowances.get(key, 0),
        draft.positions.get(key),
        draft.trim_since.get(key),
        draft.roomier.get(key),
        target[0] if key in moves or (key in draft.bound and target == (draft.bound[key],)) else None,
    )
    before = draft.state.plan.get(key)
    return before if before is not None and _SAID(before) == said else PlanEntry(*said)


def _deadline_at(state: NodeState, workload: Workload, since: float) -> float:
    """When it is stopped for a guarantee that waits `since` then.

    A cell that nobody has interrupted yet has the time from its interrupt on still: whoever should have interrupted it
    may have been away, or late.
    """
    deadline_at = state.policy.deadline_at(since, state.told_since(workload))
    may_be_interrupted = workload.executing and workload.spec.kind is Kind.NOTEBOOK and workload.interrupt is None
    return max(deadline_at, state.orders_from + state.policy.ladder_s) if may_be_interrupted else deadline_at


def _cause(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> WorkloadId | None:
    key = workload.id
    if workload.frozen is not None and not workload.present:
        return _holder(draft, workload, workload.frozen.gpus)
    if key in draft.yields:
        return draft.yields[key]
    if key in draft.cause:
        return draft.cause[key]
    if target != workload.current:
        if _is_guest(draft, workload) and (claimant := draft.claimant(workload)) is not None:
            return claimant
        moved_for = draft.homes.moved_for.get(key)
        if moved_for is not None and (workload.current or _is_to_be_on(draft, moved_for, target)):
            return moved_for
    if workload.current or not workload.wants_gpu or _is_unusable(draft, key):
        return None
    return _holder(draft, workload, target)


def _is_unusable(draft: Draft, workload: WorkloadId) -> bool:
    """Whether it waits for Gpus on which nothing new may be placed."""
    why = draft.waits.get(workload)
    return why is not None and why.kind in (Reason.OUT_OF_SERVICE, Reason.USE_UNTOLD)


def _owner_as_cause(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> WorkloadId | None:
    owner = owner_there(draft, workload, target)
    return None if owner is None else WorkloadId(owner[1].id)


def _holder(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> WorkloadId | None:
    """Who holds what `workload` waits for: who leaves its target, or else is on it; without one, whoever is anywhere.

    The largest of them.
    """
    if not target:
        largest = (other for _, other in draft.holders[:2] if other != workload.id)
        return next(largest, None)
    targets, there = draft.rooms.target, {w.id: w for uuid in target for w in draft.state.on(uuid)}
    there.pop(workload.id, None)
    return max(there, key=lambda k: (targets.get(k, ()) != there[k].current, there[k].size_bytes, k), default=None)


def _is_to_be_on(draft: Draft, workload: WorkloadId | None, gpus: tuple[GpuUuid, ...]) -> bool:
    """Whether `workload` is on one of `gpus`, or is to come there."""
    if workload is None:
        return False
    there = (*draft.state.workloads[workload].current, *draft.rooms.target.get(workload, ()))
    return not set(there).isdisjoint(gpus)


def _reason(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], cause: WorkloadId | None) -> Why:
    if not workload.takes_part:
        return workload.release_reason or workload.last_reason
    if workload.frozen is not None and not workload.present:
        return _why_frozen(draft, workload, workload.frozen, target, cause)
    if not workload.wants_gpu:
        return _why_off(draft, workload)
    if _is_guest(draft, workload):
        return _why_guest(draft, workload, target, cause)
    if workload.id in draft.homes.waits:
        return draft.homes.waits[workload.id]
    if workload.id in draft.moves:
        return Why(draft.moves[workload.id], gpus=target)
    if workload.present and target != workload.current and (why := why_it_leaves(draft, workload, target, cause)):
        return why
    if (elsewhere := _why_elsewhere(draft, workload, target)) is not None:
        return elsewhere
    if not target:
        return draft.waits.get(workload.id, Why(Reason.WAITS))
    if workload.id in draft.yields:
        return Why(Reason.YIELDS, gpus=target, who=mentions(draft, draft.yields[workload.id]))
    return _why_there(draft, workload, target, cause)


def _why_elsewhere(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...]) -> Why | None:
    """Why it is to be where it is not, though nobody is known to need its place."""
    if workload.wish is not None and workload.wish in target and workload.wish not in workload.current:
        return Why(Reason.WISHED, gpus=target)
    if workload.spec.resizable and workload.present and set(workload.current) < set(target):
        return Why(Reason.GROWS, gpus=tuple(u for u in target if u not in workload.current))
    if workload.stays and target and target == workload.given_home != workload.current:
        return Why(Reason.HOME, gpus=target)
    if workload.phase is Phase.RUNNING and workload.id not in draft.bound:
        return what_is_in_its_way(draft, workload, target)
    return None


def _why_frozen(
    draft: Draft, workload: Workload, frozen: Frozen, target: tuple[GpuUuid, ...], cause: WorkloadId | None
) -> Why:
    waits = draft.homes.waits.get(workload.id) or draft.waits.get(workload.id) or Why(Reason.WAITS)
    if target:
        waits = _why_there(draft, workload, target, cause)
        if waits.kind in WHY_THERE:
            return Why(Reason.GOES_ON, gpus=target)
    return freezing.why_it_stands(draft.state, frozen, waits)


def _why_off(draft: Draft, workload: Workload) -> Why:
    """Why it wants no Gpu, or that it could not leave the one that it has."""
    if workload.suspend_trouble is not None and workload.phase is Phase.RUNNING:
        return Why(Reason.SUSPEND_FAILED, because=(workload.suspend_trouble,))
    why = workload.suspend_reason or _why_it_left(draft, workload)
    return Why(Reason.CELL_FIRST, because=(why,)) if workload.present and workload.executing else why


def _why_it_left(draft: Draft, workload: Workload) -> Why:
    """Why it is off until its next cell: what it left for may be over long since."""
    why = workload.last_reason
    is_so = why.kind is Reason.CORDONED and draft.state.claims.cordoned
    if workload.present or is_so or why.kind in _WHAT_WAS:
        return why
    if why.kind in _NEEDED:
        return Why(Reason.LEFT_TO, gpus=why.gpus, who=why.who)
    return draft.homes.waits.get(workload.id, Why(Reason.OFF))


def _is_guest(draft: Draft, workload: Workload) -> bool:
    """Whether it is on a Gpu without being admitted any more: somebody whose turn it is has got its home."""
    return bool(draft.state.policy.queues) and workload.present and workload.id in draft.homes.waits


def _why_guest(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], cause: WorkloadId | None) -> Why:
    waits = draft.homes.waits[workload.id]
    if target == workload.current:
        return Why(Reason.STAYS_AS_GUEST, gpus=target, because=(waits,))
    if cause is None:
        return waits
    return why_needed(draft, workload, target, cause, because=(waits,))


def _may_come(draft: Draft, workload: Workload, uuid: GpuUuid) -> bool:
    """Whether there is room for it in fact, beside what others wait for there that they are owed."""
    state, targets, workload = draft.state, draft.rooms.target, _with_home(draft, workload)
    owed = owed_bytes(state, uuid, lambda key: targets.get(key, ()), (workload,))
    return has_room(state, workload, state.gpus[uuid], beside_bytes=owed)


def _gang_may_come(draft: Draft, workload: Workload) -> bool:
    """The same for all of its gang, together."""
    state, targets = draft.state, draft.rooms.target
    gang = [_with_home(draft, member) for member in (workload, *fellows(state, workload))]
    return have_room(state, gang, lambda key: targets.get(key, ()))


def _with_home(draft: Draft, workload: Workload) -> Workload:
    """With its home of this plan."""
    return updated(workload, home=draft.homes.homes.get(workload.id, ()))


def _why_there(draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], cause: WorkloadId | None) -> Why:
    lacking: tuple[GpuUuid, ...] = ()
    if workload.phase in (Phase.QUEUED, Phase.SUSPENDED):
        lacking = tuple(u for u in target if not _may_come(draft, workload, u))
    if lacking:
        is_there = cause is not None and not set(draft.state.workloads[cause].current).isdisjoint(lacking)
        holder = cause if is_there else _holder(draft, workload, lacking)
        if holder is None:
            return _why_lacking(draft.state, lacking)
        is_on = draft.state.workloads[holder].current
        held = tuple(uuid for uuid in lacking if uuid in is_on) or lacking  # others hold the others
        return Why(Reason.HELD, gpus=held, who=mentions(draft, holder))
    if workload.phase is Phase.QUEUED and workload.spec.gang is not None and not _gang_may_come(draft, workload):
        return Why(Reason.GANG_WITHOUT_ROOM, names=(workload.spec.gang,))
    if draft.state.quiet and not workload.current:
        return Why(Reason.RESTARTED, numbers=(draft.state.policy.reconnect_grace_s,))
    home = draft.homes.homes[workload.id]
    kind, size_bytes = _what_is_said(draft, workload, target, home)
    because = why_nobody_comes(draft, workload, target) if workload.present else ()
    if because:
        kind = Reason.STAYS
    elif kind is Reason.BORROWS:
        because = (Why(Reason.HOME, gpus=home),)
    return Why(kind, gpus=target, bytes=(size_bytes,), because=because)


def _why_lacking(state: NodeState, gpus: tuple[GpuUuid, ...]) -> Why:
    """What `gpus` lack room for, as nobody of the workloads holds them: what is on its way out, or a stranger's."""
    if releasing := tuple([uuid for uuid in gpus if state.gpus[uuid].releasing]):
        return Why(Reason.BEING_FREED, gpus=releasing)
    if held := tuple([uuid for uuid in gpus if state.gpus[uuid].unplaced_bytes]):
        return Why(Reason.HELD, gpus=held, bytes=(sum(state.gpus[uuid].unplaced_bytes for uuid in held),))
    return Why(Reason.WAITS)


def _what_is_said(
    draft: Draft, workload: Workload, target: tuple[GpuUuid, ...], home: tuple[GpuUuid, ...]
) -> tuple[Reason, int]:
    """Why it is on `target` where nothing else is to be said, and how much it may use there."""
    if not workload.spec.burstable:
        return Reason.AT_HOME, workload.spec.request_bytes
    return Reason.AT_HOME_WITH_BURST if target == home else Reason.BORROWS, draft.allowances[workload.id]
