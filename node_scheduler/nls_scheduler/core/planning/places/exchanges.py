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
    owners = [w for w in draft.rooms.members(uuid) if _makes_as_much_room(draft, w, borrower, uuid)]
    for leaver in sorted((borrower, *owners), key=draft.harm):
        if leaver is borrower or draft.exchange(leaver, borrower):
            return leaver
    return borrower


def _makes_as_much_room(draft: Draft, owner: Workload, borrower: Workload, uuid: GpuUuid) -> bool:
    """Whether `owner` could leave `uuid` in the place of `borrower` if their homes were exchanged."""
    homes, pools = draft.homes.homes, draft.rooms.pools
    away = homes[borrower.id][0]
    if owner.given_home is not None or borrower.given_home is not None:
        return False
    if owner.wish is not None or borrower.wish is not None:
        return False  # a home follows its user's wish, and would be back at once
    if not (owner.spec.may_borrow and borrower.spec.may_borrow and homes[owner.id] == (uuid,) and away in pools):
        return False
    both_there = owner.current == borrower.current == (uuid,)
    return (
        both_there
        and max(pools[uuid].oversubscribe, pools[away].oversubscribe) <= 1.0
        and owner.spec.request_bytes >= borrower.spec.request_bytes
    )
