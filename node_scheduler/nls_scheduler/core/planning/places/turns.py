"""Taking turns: notebooks that hold more than their requests share the burst, first come first served.

A waiting cell may have the place of idle notebooks once they had it for their residency; a running cell is only asked
to yield at its end. Who holds a Gpu together leaves together, unless the cell that waits for them has starved: then
each leaves when it can, and nobody else gets its room. A notebook without a waiting cell never drives anybody out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.making_room.victims import keeps_until, may_be_suspended_from

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft


@dataclass(frozen=True, slots=True)
class _Option:
    """Whom a waiter would replace on one Gpu: `now` can be suspended at once, `later` must be waited for."""

    uuid: GpuUuid
    now: tuple[Workload, ...]
    later: tuple[Workload, ...]

    @property
    def rank(self) -> tuple[int, int, str]:
        return (len(self.later), sum(w.return_bytes for w in (*self.now, *self.later)), self.uuid)


def take_turns(draft: Draft) -> None:
    """Give those who wait for burst a place where there is one; else let holders yield to the first in line."""
    order = sorted(draft.over, key=lambda w: (not _waits_actively(w), w.in_line_since, w.submitted_at, w.id))
    with draft.rooms.less_on_paper(draft.leaving):
        for waiter in order:
            best = draft.rooms.best_for(waiter, draft.since)
            if best is not None:
                draft.rooms.add(waiter, (best,))
            elif not _waits_actively(waiter):
                draft.waits[waiter.id] = _why_over(waiter, Why(Reason.COMES_BACK))
            else:
                _replace_holders(draft, waiter)


def _waits_actively(waiter: Workload) -> bool:
    """Whether a cell waits for it now; one that still has a GPU process only takes room that is free."""
    return waiter.active and not waiter.present


def _replace_holders(draft: Draft, waiter: Workload) -> None:
    options = [o for uuid in draft.rooms.gpus if (o := _option(draft, waiter, uuid)) is not None]
    if not options:
        draft.waits[waiter.id] = _why_over(waiter, _why_nobody_yields(draft, waiter))
        _name_a_holder(draft, waiter)
        return
    option = min(options, key=lambda o: o.rank)
    if waiter.waiting_since is not None:
        draft.short.setdefault(option.uuid, waiter.waiting_since)
    starving = starves(draft, waiter)
    if starving or not option.later:
        for holder in option.now:
            if option.later and _comes_back(draft, holder, option.uuid, waiter):
                continue
            draft.rooms.remove(holder)
            draft.cause[holder.id] = waiter.id
            draft.waits[holder.id] = Why(Reason.NEEDED_WHILE_IDLE, gpus=(option.uuid,), who=(waiter.mention,))
    if not option.later:
        draft.rooms.add(waiter, (option.uuid,))
        return
    if starving:
        draft.rooms.kept_for[option.uuid] = waiter.id
    turn = Why(Reason.TURN_OF, gpus=(option.uuid,), who=tuple(w.mention for w in option.later))
    draft.waits[waiter.id] = _why_over(waiter, turn)
    draft.cause[waiter.id] = option.later[0].id
    for holder in option.later:
        draft.yields.setdefault(holder.id, waiter.id)


def _why_nobody_yields(draft: Draft, waiter: Workload) -> Why:
    """For whom a Gpu is kept that `waiter` could have else; where there is none, that nobody can yield."""
    for uuid, whose in draft.rooms.kept_for.items():
        if whose != waiter.id and draft.rooms.may_use(waiter, uuid):
            return Why(Reason.KEPT_FOR, gpus=(uuid,), who=(draft.state.workloads[whose].mention,))
    return Why(Reason.NOBODY_YIELDS)


def _comes_back(draft: Draft, holder: Workload, uuid: GpuUuid, waiter: Workload) -> bool:
    """Whether it is owed its room on `uuid` with its next cell: that it left before others do would be in vain."""
    at_home = uuid in draft.homes.homes.get(holder.id, ()) and holder.within_request
    kept = draft.rooms.kept_for.get(uuid) == waiter.id
    return at_home and not (kept and not draft.rooms.may_share_turn(holder, uuid))


def starves(draft: Draft, waiter: Workload) -> bool:
    """Whether its cell has waited so long that room is kept for it; when it has, the plan is made again."""
    if waiter.waiting_since is None or not _waits_actively(waiter):
        return False
    return draft.has_come(waiter.waiting_since + draft.state.policy.starvation_s)


def _option(draft: Draft, waiter: Workload, uuid: GpuUuid) -> _Option | None:
    """The holders to replace on `uuid`, least harm first; `None` when even all of them are not enough."""
    rooms = draft.rooms
    if not rooms.may_use(waiter, uuid):
        return None
    draft.weighed.add(uuid)
    holders = sorted((w for w in rooms.members(uuid) if _may_yield(draft, w, uuid)), key=draft.harm)
    # Whose residency ends first is the one to replace then.
    residencies = {w.id: max(draft.state.at, keeps_until(draft.state, w)) for w in holders if not w.executing}
    holders.sort(key=lambda w: residencies.get(w.id, inf))
    draft.wake_at += residencies.values()
    removed: list[Workload] = []
    for holder in holders:
        if rooms.fits(waiter, uuid):
            break
        rooms.remove(holder)
        removed.append(holder)
    enough = rooms.fits(waiter, uuid)
    have_to: list[Workload] = []
    for holder in reversed(removed):
        rooms.add(holder, (uuid,))
        if not rooms.fits(waiter, uuid):
            rooms.remove(holder)
            have_to.insert(0, holder)
    for holder in have_to:
        rooms.add(holder, (uuid,))
    if not enough:
        return None
    now = tuple(w for w in have_to if _yields_now(draft, w))
    return _Option(uuid, now, tuple(w for w in have_to if w not in now))


def _may_yield(draft: Draft, holder: Workload, uuid: GpuUuid) -> bool:
    """Idle notebooks yield, unless their users hold them; a running cell only where it holds more than its request."""
    if holder.spec.kind is not Kind.NOTEBOOK or not holder.spec.movable or holder.phase is not Phase.RUNNING:
        return False
    if holder.current != (uuid,):
        return False
    if not draft.has_come(may_be_suspended_from(draft.state, holder)) or draft.keeps(holder):
        return False
    # Where more is promised than there is, the end of a cell is the end of a turn.
    on_demand = draft.rooms.pools[uuid].oversubscribe > 1.0
    return not holder.executing or holder.over_request_bytes > 0 or on_demand


def _yields_now(draft: Draft, holder: Workload) -> bool:
    return not holder.executing and keeps_until(draft.state, holder) <= draft.state.at


def _name_a_holder(draft: Draft, waiter: Workload) -> None:
    home = draft.homes.homes[waiter.id]
    others = [w for uuid in home if uuid in draft.rooms.gpus for w in draft.rooms.members(uuid)]
    if others:
        draft.cause[waiter.id] = max(others, key=lambda w: (w.size_bytes, w.id)).id


def _why_over(waiter: Workload, because: Why) -> Why:
    """Why its request alone does not get it a place."""
    request_bytes = waiter.spec.request_bytes
    if waiter.return_bytes > request_bytes:
        saved = waiter.spec.kind is Kind.NOTEBOOK and waiter.frozen is None
        kind = Reason.SAVED_ABOVE_REQUEST if saved else Reason.USED_ABOVE_REQUEST
        return Why(kind, bytes=(waiter.return_bytes, request_bytes), because=(because,))
    # One that stands still says so itself, and for whom.
    return because if waiter.waits_away else Why(Reason.ON_DEMAND, bytes=(request_bytes,), because=(because,))
