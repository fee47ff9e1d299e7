"""Where each workload should be now, as far as guarantees say it; `turns` and `spreading` say the rest.

Everybody present stays where they are unless a reason makes them leave. A workload that fits within its request always
finds a place, at home in the worst case, because the requests at home fit there; whoever borrowed that room goes to
their own home. What is held above requests yields in the order of `victims.harm`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.paper import admission_order
from nls_scheduler.core.planning.making_room.rooms import Rooms, why_unusable
from nls_scheduler.core.planning.places.draft import Draft, Left
from nls_scheduler.core.planning.places.exchanges import be_at_home_with_room, least_harm
from nls_scheduler.core.planning.places.turns import starves
from nls_scheduler.core.planning.places.under_way import chosen_together, in_vain, send_on

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes


def place_guarantees(state: NodeState, homes: Homes, wanting: list[Workload]) -> Draft:
    """Place all that a guarantee covers; what is left over waits in `Draft.over` for burst.

    Where somebody at home leaves a Gpu and not who borrows it, the draft has other `homes`.
    """
    wanting, bound = sorted(wanting, key=admission_order), chosen_together(state, homes)
    waits: dict[WorkloadId, Why] = {}
    while True:
        draft = _place(state, homes.copied(), wanting, dict(bound))
        if wait := _apart(draft):
            waits |= wait
            wanting = [w for w in wanting if w.id not in wait]
            continue
        stay = in_vain(draft)
        if not stay:
            draft.waits |= waits
            return draft
        bound = {key: uuid for key, uuid in bound.items() if key not in stay}


def _apart(draft: Draft) -> dict[WorkloadId, Why]:
    """Who is of a gang that has not started and of which somebody finds no place, and why it waits.

    Nobody leaves a Gpu for one of them.
    """
    wait: dict[WorkloadId, Why] = {}
    for gang in draft.state.gangs.values():
        without = [w for w in gang.members if w.id not in draft.rooms.target]
        if not gang.started and 0 < len(without) < len(gang.members):
            wait |= dict.fromkeys((w.id for w in gang.members), gang.why_not_without(without[0]))
            wait |= {w.id: draft.waits[w.id] for w in without if w.id in draft.waits}
    return wait


def _place(state: NodeState, homes: Homes, wanting: list[Workload], bound: dict[WorkloadId, GpuUuid]) -> Draft:
    draft = Draft(state, homes, Rooms(state, homes.homes), bound=bound)
    waiting = _keep_present(draft, wanting)
    above = [w for w in waiting if not (w.spec.movable or w.present or w.within_request)]
    by_turns = [w for w in waiting if not w.spec.may_borrow and _is_promised_by_turns(draft, w)]
    pinned = [w for w in waiting if not w.spec.may_borrow and w not in above and w not in by_turns]
    for workload in sorted(pinned, key=lambda w: (w.spec.can_take_turns, _line(draft, w))):
        takes_turns = workload.spec.can_take_turns
        is_owed = not takes_turns or (workload.within_request and draft.rooms.is_owed(workload))
        if is_owed and not _stands_away(draft, workload):
            be_at_home_with_room(draft, workload)
            _claim_home(draft, workload)
        else:
            draft.over.append(workload)
    waiting = send_on(draft, waiting)
    displaced = _clear_requests(draft, list(state.gpus))
    queue = deque(sorted((w for w in waiting if w.spec.may_borrow or w in by_turns), key=lambda w: _line(draft, w)))
    for workload in (w for w in queue if not w.within_request):
        _keep_turn(draft, workload)
    queue.extendleft(reversed(displaced))
    while queue:
        queue.extendleft(reversed(_place_borrower(draft, queue.popleft(), wanting)))
    for workload in sorted(above, key=lambda w: _line(draft, w)):
        _bring_back(draft, workload)
    _clear_sizes(draft)
    draft.leaving = _leaving(draft, wanting)
    return draft


def _leaving(draft: Draft, wanting: list[Workload]) -> dict[GpuUuid, int]:
    """The requests of those who are to leave a Gpu on which more is promised than there is.

    Whoever came there to borrow before they have left would be sent away again while they are still there.
    """
    leaving: dict[GpuUuid, int] = {}
    pools = draft.rooms.pools
    if not draft.rooms.promises_more:
        return leaving
    for workload in wanting:
        for uuid in draft.left_by(workload) if workload.stays else ():
            if uuid in pools and pools[uuid].oversubscribe > 1.0:
                leaving[uuid] = leaving.get(uuid, 0) + workload.spec.request_bytes
    return leaving


def _bring_back(draft: Draft, workload: Workload) -> None:
    """A command that needs more than its request comes back where others give up their burst for it, or waits.

    Those who cannot move would stop for its burst, and it for theirs when they come back, for ever; so it would if it
    sent somebody home who stops it there.
    """
    sent_home: list[tuple[Workload, tuple[GpuUuid, ...]]] = []
    for uuid in draft.homes.homes[workload.id]:
        if uuid in draft.rooms.gpus and not _makes_room_beside_requests(draft, workload, uuid, sent_home):
            for other, gpus in sent_home:
                draft.rooms.move(other, gpus)
            above = (workload.return_bytes, workload.spec.request_bytes)
            draft.waits[workload.id] = Why(Reason.USED_ABOVE_REQUEST, bytes=above, because=(Why(Reason.NOBODY_YIELDS),))
            return
    for other, _ in sent_home:
        draft.claimants.setdefault(draft.rooms.target[other.id][0], []).append(other)
    _claim_home(draft, workload)


def _makes_room_beside_requests(
    draft: Draft, workload: Workload, uuid: GpuUuid, sent_home: list[tuple[Workload, tuple[GpuUuid, ...]]]
) -> bool:
    """Send home who would come to `uuid` to borrow, as far as that is needed and they fit there; False: not enough.

    Whoever can move counts with its request. Nobody is sent to another of the Gpus to which `workload` comes.
    """
    rooms, comes_to = draft.rooms, draft.homes.homes[workload.id]
    left_bytes = rooms.gpus[uuid].capacity_bytes - workload.return_bytes
    members = rooms.members(uuid)
    left_bytes -= sum(w.spec.request_bytes if w.spec.movable else rooms.size_on(w, uuid) for w in members)
    for other in members:
        if left_bytes >= 0:
            return True
        home = draft.homes.homes[other.id]
        comes_to_borrow = other.spec.may_borrow and uuid not in (*home, *other.current)
        if comes_to_borrow and home[0] not in comes_to and rooms.fits(other, home[0]):
            sent_home.append((other, rooms.target[other.id]))
            rooms.move(other, home)
            left_bytes += other.spec.request_bytes
    return left_bytes >= 0


def _is_promised_by_turns(draft: Draft, workload: Workload) -> bool:
    """Whether it takes turns with others to whom its home is promised, too."""
    rooms, home = draft.rooms, draft.homes.homes[workload.id]
    takes_turns = rooms.promises_more and workload.spec.can_take_turns
    return takes_turns and any(rooms.pools[uuid].oversubscribe > 1.0 for uuid in home if uuid in rooms.pools)


def _line(draft: Draft, workload: Workload) -> tuple[bool, bool, float, int, float, str]:
    """By priority and arrival; after that, where more is promised than there is, who takes turns by its wait."""
    if not _is_promised_by_turns(draft, workload):
        return (False, False, 0.0, *admission_order(workload))
    return (True, not workload.active or workload.present, workload.in_line_since, *admission_order(workload))


def _keep_present(draft: Draft, wanting: list[Workload]) -> list[Workload]:
    """Leave everybody who may stay where they are; return who needs a place."""
    waiting, staying = [], []
    homes, bound = draft.homes.homes, draft.bound
    for workload in wanting:
        home, stays = homes[workload.id], workload.stays
        if stays and not (workload.spec.movable or workload.spec.resizable):
            stays_at: tuple[GpuUuid, ...] = workload.current
        else:
            stays_at = workload.current if workload.spec.may_borrow else home
            stays = stays and workload.current == stays_at and draft.rooms.may_stay(workload)
        if stays and workload.id not in bound:
            staying.append((workload, stays_at))
        else:
            waiting.append(workload)
    draft.rooms.add_all(staying)
    return waiting


def _claim_home(draft: Draft, workload: Workload) -> None:
    home = draft.homes.homes[workload.id]
    if not all(uuid in draft.rooms.gpus for uuid in home):
        out = tuple(uuid for uuid in home if uuid not in draft.rooms.gpus)
        draft.waits[workload.id] = why_unusable(draft.state, out)
        return
    draft.rooms.add(workload, home)
    for uuid in home:
        draft.claimants.setdefault(uuid, []).append(workload)


def _stands_away(draft: Draft, workload: Workload) -> bool:
    """Whether its frozen process can go on only where its home is not."""
    return workload.stands_on not in (None, draft.homes.homes[workload.id])


def _clear_requests(draft: Draft, gpus: list[GpuUuid]) -> list[Workload]:
    """Drive out those who only borrow where the requests exceed a Gpu, then who takes turns. Returns them."""
    displaced = []
    for uuid in gpus:
        if not draft.rooms.requests_exceed(uuid):
            continue
        draft.weighed.add(uuid)
        members, homes = draft.rooms.members(uuid), draft.homes.homes
        leavers = sorted((w for w in members if w.spec.may_borrow and uuid not in homes[w.id]), key=draft.harm)
        if draft.rooms.pools[uuid].oversubscribe > 1.0:
            leavers.sort(key=lambda w: uuid in w.current)
            turns = (w for w in members if w.spec.can_take_turns and w not in leavers)
            leavers += sorted(turns, key=draft.harm)
        left: list[Left] = []
        for leaver in leavers:
            if not draft.rooms.requests_exceed(uuid):
                break
            if uuid not in draft.rooms.target.get(leaver.id, ()):
                continue
            borrows = uuid not in draft.homes.homes[leaver.id]
            left.append(draft.drive_out(least_harm(draft, leaver, uuid) if borrows else leaver, uuid))
        displaced += _who_has_to_leave(draft, left)
    return displaced


def _who_has_to_leave(draft: Draft, left: list[Left]) -> list[Workload]:
    """Of those who were driven out one after another, all but those who fit again beside the ones that came after them.

    Who would be first to go stays where that makes no room that is needed: else it is back as soon as it has gone.
    """
    if len(left) == 1:
        return [left[0].workload]
    have_to: list[Workload] = []
    for one in reversed(left):
        if all(draft.rooms.has_room_again(one.workload, uuid) for uuid in one.gpus):
            draft.take_back(one)
        else:
            have_to.append(one.workload)
    return have_to[::-1]


def _place_borrower(draft: Draft, workload: Workload, wanting: list[Workload]) -> list[Workload]:
    """A place for one that may borrow: where it bursts most, else its home. Returns whom that drives out."""
    if not workload.within_request:
        # Burst comes after every guarantee, but for a turn that is long due.
        draft.over.append(workload)
        return []
    with draft.rooms.less_on_paper(_leaving(draft, wanting)):
        best = draft.rooms.best_for(workload, draft.since)
    if best is not None:
        draft.rooms.add(workload, (best,))
        draft.claimants.setdefault(best, []).append(workload)
        return []
    if _stands_away(draft, workload) or not draft.rooms.is_owed(workload):
        draft.over.append(workload)
        _keep_turn(draft, workload)
        return []
    be_at_home_with_room(draft, workload)
    _claim_home(draft, workload)
    return _clear_requests(draft, list(draft.homes.homes[workload.id]))


def _keep_turn(draft: Draft, workload: Workload) -> None:
    """Where more is promised than there is, the home of one whose cell has waited long takes nobody else who comes."""
    if _is_promised_by_turns(draft, workload) and starves(draft, workload):
        for uuid in draft.homes.homes[workload.id]:
            draft.rooms.kept_for.setdefault(uuid, workload.id)


def _clear_sizes(draft: Draft) -> None:
    """Where what is held does not fit beside the requests, the bursters yield, in order of harm."""
    _note_short_for_the_bound(draft)
    left: dict[GpuUuid, list[Left]] = {}
    for uuid in list(draft.rooms.gpus):
        if not draft.rooms.sizes_exceed(uuid):
            continue
        draft.weighed.add(uuid)
        draft.note_short(uuid)
        holders = sorted((w for w in draft.rooms.members(uuid) if _holds_burst(w, uuid)), key=draft.harm)
        # Commands that cannot come back are the very last to go, only for a guarantee.
        for holder in sorted(holders, key=lambda w: not w.spec.movable):
            if not draft.rooms.sizes_exceed(uuid):
                break
            left.setdefault(uuid, []).append(draft.drive_out(holder, uuid))
    # Who leaves one Gpu may make room on another.
    have_to = _who_has_to_leave(draft, [one for of_one in left.values() for one in of_one])
    for uuid, of_one in left.items():
        for holder in (one.workload for one in of_one if one.workload in have_to):
            _place_elsewhere(draft, holder, uuid)


def _note_short_for_the_bound(draft: Draft) -> None:
    """Who was chosen with others to leave a Gpu, and would fit there with its request, may do so when it is trimmed."""
    rooms = draft.rooms
    for workload in (draft.state.workloads[key] for key in draft.bound):
        for uuid in draft.left_by(workload):
            fits_on_paper = uuid in rooms.gpus and rooms.left_bytes(uuid)[0] >= workload.spec.request_bytes
            if fits_on_paper and _holds_burst(workload, uuid) and not rooms.has_room_again(workload, uuid):
                draft.note_short(uuid)


def _holds_burst(workload: Workload, uuid: GpuUuid) -> bool:
    return workload.phase is Phase.RUNNING and uuid in workload.current and workload.over_request_bytes > 0


def _place_elsewhere(draft: Draft, holder: Workload, left: GpuUuid) -> None:
    by = draft.cause.get(holder.id)
    who = (draft.state.workloads[by].mention,) if by else ()
    kind = Reason.BURST_NEEDED if by else Reason.BURST_NEEDED_BY_REQUESTS
    draft.waits[holder.id] = Why(kind, gpus=(left,), who=who)
    best = draft.rooms.best_for(holder, draft.since) if holder.spec.may_borrow else None
    if best is not None and best != left:
        draft.rooms.add(holder, (best,))


def place_guests(draft: Draft, wanting: list[Workload]) -> None:
    """Who has lost its home to another queue stays where it is as long as nobody needs its place."""
    if not draft.state.policy.queues:
        return
    guests = (w for w in wanting if w.present and w.id not in draft.homes.homes)
    for guest in sorted(guests, key=admission_order):
        if guest.stays and all(draft.rooms.holds_guest(guest, uuid) for uuid in guest.current):
            draft.rooms.add(guest, guest.current)
        elif guest.kept(draft.state.at) and guest.keep_until is not None:
            draft.wake_at.append(guest.keep_until)


def grant_wishes(draft: Draft) -> None:
    """Who is wanted on another Gpu by its user goes there where it fits beside everybody; else it stays."""
    for workload in sorted([w for w in draft.state.workloads.values() if w.wish is not None], key=admission_order):
        gpus, wish = draft.rooms.target.get(workload.id, ()), workload.wish
        if wish is None or wish in gpus or not workload.spec.may_borrow or gpus != workload.current:
            continue
        if workload.phase is not Phase.RUNNING or workload.id not in draft.homes.homes:
            continue  # a guest stays where it is, or leaves
        draft.rooms.remove(workload)
        draft.rooms.add(workload, (wish,) if draft.rooms.fits(workload, wish) else gpus)
