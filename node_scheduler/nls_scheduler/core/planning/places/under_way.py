"""Who is on the way because several were chosen together: they are carried out as they were chosen. Pure.

The search for a newcomer's place chooses a set of moves that only helps as a whole. It takes several steps until all
of them have moved, and each step plans anew: who was sent where is known of each (`Workload.move`), and here that is
kept to as long as somebody needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes
    from nls_scheduler.core.planning.places.draft import Draft


def chosen_together(state: NodeState, homes: Homes) -> dict[WorkloadId, GpuUuid]:
    """Who goes where because several were chosen together: now, or before and not there yet.

    What was chosen before holds for who is off its Gpu, and as long as the workload for which it leaves has a home.
    """
    bound = {}
    for key, workload in state.workloads.items():
        move = workload.move
        if move is None or not workload.spec.may_borrow or move.to == workload.current or workload.wish is not None:
            continue
        if not move.to:
            continue  # it lost its home when it might not borrow yet: nowhere was chosen for it
        if move.for_whom in homes.homes or workload.phase in (Phase.SUSPENDING, Phase.SUSPENDED):
            (bound[key],) = move.to
    return {key: uuid for key, uuid in (bound | homes.bound).items() if state.workloads[key].stands_on is None}


def send_on(draft: Draft, waiting: list[Workload]) -> list[Workload]:
    """Those who are on their way go there, unless nobody needs the place where they still are.

    Returns who else needs a place.
    """
    for workload in waiting:
        if workload.id in draft.bound:
            _send(draft, workload)
    there = [w for w in waiting if w.id in draft.bound and w.stays]
    there.sort(key=lambda w: (-w.moved_bytes, w.id))
    newcomers = _at_home(draft, waiting)
    # Who stays may have been the one for whom another was to leave.
    while (stays := next((w for w in there if _may_as_well_stay(draft, w)), None)) is not None:
        there.remove(stays)
        del draft.bound[stays.id]
        draft.rooms.add(stays, stays.current)
    for newcomer in newcomers:
        draft.rooms.remove(newcomer)
    for workload in waiting:
        if workload.id in draft.bound:
            _note_cause(draft, workload)
    return [w for w in waiting if w.id not in draft.rooms.target]


def _at_home(draft: Draft, waiting: list[Workload]) -> list[Workload]:
    """Those for whom others leave, and who get their place only after them: till then taken to be at home."""
    causes = {_cause_of_leaving(draft, draft.state.workloads[key]) for key in draft.bound}
    newcomers = []
    for workload in waiting:
        owed = workload.within_request and draft.rooms.is_owed(workload)
        if workload.id in causes and workload.id not in draft.rooms.target and owed:
            draft.rooms.add(workload, draft.homes.homes[workload.id])
            newcomers.append(workload)
    return newcomers


def in_vain(draft: Draft) -> set[WorkloadId]:
    """Who would leave a Gpu to which nobody who is guaranteed a place comes after all; none of them has a deadline."""
    workloads = [draft.state.workloads[key] for key in draft.bound]
    unawaited = [w for w in workloads if not _is_awaited(draft, w)]
    for workload in unawaited:
        draft.since.pop(workload.id, None)
    return {w.id for w in unawaited if w.stays}


def _send(draft: Draft, workload: Workload) -> None:
    """Place it where it is bound for; where that is for a guarantee, who holds burst there yields to it later."""
    uuid, rooms = draft.bound[workload.id], draft.rooms
    owed = workload.within_request and _cause_of_leaving(draft, workload) is not None
    if rooms.fits_on_paper(workload, uuid) if owed else rooms.fits(workload, uuid):
        rooms.add(workload, (uuid,))


def _may_as_well_stay(draft: Draft, bound: Workload) -> bool:
    """Whether nobody needs the place that it is to leave; it is taken out of the draft if so."""
    rooms, sent_to = draft.rooms, draft.rooms.target.get(bound.id)
    if sent_to is not None:
        rooms.remove(bound)
    if _cause_of_leaving(draft, bound) is None or all(rooms.fits(bound, uuid) for uuid in bound.current):
        return True
    if sent_to is not None:
        rooms.add(bound, sent_to)
    return False


def _note_cause(draft: Draft, bound: Workload) -> None:
    """Say for whom `bound` leaves its Gpu, and since when that one waits."""
    if bound.id in draft.rooms.target and bound.within_request:
        draft.claimants.setdefault(draft.bound[bound.id], []).append(bound)
    cause = _cause_of_leaving(draft, bound)
    if cause is not None:
        draft.cause[bound.id], draft.since[bound.id] = cause, draft.claim_since(draft.state.workloads[cause], bound)


def _cause_of_leaving(draft: Draft, bound: Workload) -> WorkloadId | None:
    """The guarantee for which `bound` leaves its Gpu; `None`: for the burst of all, or nobody has that any more."""
    cause = draft.homes.moved_for.get(bound.id, None if bound.move is None else bound.move.for_whom)
    return cause if bound.present and cause in draft.homes.homes else None


def _is_awaited(draft: Draft, bound: Workload) -> bool:
    """Whether a guarantee comes in this draft to where `bound` still is."""
    there, homes = set(bound.current), draft.homes.homes
    others = ((draft.state.workloads[key], gpus) for key, gpus in draft.rooms.target.items() if key != bound.id)
    return any(
        there.intersection(gpus, homes.get(other.id, ())) and gpus != other.current and other.within_request
        for other, gpus in others
    )
