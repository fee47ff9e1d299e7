"""When one of two has to leave a Gpu, the one whose leaving harms less goes, although the other one only borrows there.

Homes cost nothing to exchange on a plain server: the borrower gets the home of the one that goes. Pure.
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
