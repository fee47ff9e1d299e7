"""Homes that change while places are given, as they cost nothing on a plain server and moves do. Pure.

When one of two has to leave a Gpu, the one whose leaving harms less goes, although the other one only borrows there:
the borrower gets the home of the one that goes. Who comes back to where somebody would have to go is at home elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.places.draft import Draft


def least_harm(draft: Draft, borrower: Workload, uuid: GpuUuid) -> Workload:
    """Who leaves `uuid`: `borrower`, or one at home there after an exchange of their homes in `draft`."""
    if not _may_be_exchanged(draft, borrower, uuid):
        return borrower
    least = borrower.spec.request_bytes
    as_large = [w for w in draft.rooms.members(uuid) if w.spec.request_bytes >= least]
    owners = [w for w in as_large if _may_leave_its_home(draft, w, uuid)]
    if not owners:
        return borrower
    for leaver in sorted((borrower, *owners), key=draft.harm):
        if leaver is borrower or draft.exchange(leaver, borrower):
            return leaver
    return borrower


def be_at_home_with_room(draft: Draft, comer: Workload) -> None:
    """One that comes back, and for which somebody would have to leave its home, has another one where nobody has to.

    That is where there is room, or where one is at home that borrows where `comer` was.
    """
    home, rooms = draft.homes.homes[comer.id], draft.rooms
    if not _may_be_at_home_elsewhere(comer) or rooms.promises_more or rooms.takes_in_full(comer, home[0]):
        return
    with_room = [uuid for uuid in rooms.gpus if uuid not in home and rooms.takes_in_full(comer, uuid)]
    if any(draft.be_at_home(comer, uuid) for uuid in with_room):
        return
    free = (w for w in rooms.members(home[0]) if _is_free_to_leave(w, home[0]))
    borrowers = [w for w in free if draft.homes.homes[w.id][0] in with_room]
    any(draft.exchange(comer, borrower) for borrower in borrowers)


def _may_be_at_home_elsewhere(comer: Workload) -> bool:
    is_free = comer.given_home is None and comer.stands_on is None and comer.spec.gang is None
    return is_free and not comer.present and comer.spec.gpu_count == 1 and not comer.spec.elastic


def _may_be_exchanged(draft: Draft, borrower: Workload, uuid: GpuUuid) -> bool:
    """Whether the home of `borrower` could be exchanged for one on `uuid`."""
    pools, away = draft.rooms.pools, draft.homes.homes[borrower.id][0]
    if not (_is_free_to_leave(borrower, uuid) and away in pools):
        return False
    return max(pools[uuid].oversubscribe, pools[away].oversubscribe) <= 1.0


def _may_leave_its_home(draft: Draft, owner: Workload, uuid: GpuUuid) -> bool:
    """Whether `owner` is at home on `uuid`, and could leave it for another that gets its home."""
    return draft.homes.homes[owner.id] == (uuid,) and _is_free_to_leave(owner, uuid)


def _is_free_to_leave(workload: Workload, uuid: GpuUuid) -> bool:
    """Whether it is on `uuid`, and may have any home: one follows its user's wish, and would be back at once."""
    free = workload.given_home is None and workload.wish is None and workload.spec.may_borrow
    return free and workload.current == (uuid,)
