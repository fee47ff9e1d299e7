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
    homes = draft.homes.homes
    owners = [w for w in draft.rooms.members(uuid) if _may_exchange(draft, w, borrower, uuid)]
    best = min((borrower, *owners), key=draft.harm)
    if best is not borrower:
        homes[best.id], homes[borrower.id] = homes[borrower.id], homes[best.id]
    return best


def _may_exchange(draft: Draft, owner: Workload, borrower: Workload, uuid: GpuUuid) -> bool:
    """Whether the guarantees of all stand after the exchange; as much room is made as if the borrower went."""
    homes, rooms = draft.homes.homes, draft.rooms
    away = homes[borrower.id][0]
    both_burst = owner.spec.may_borrow and borrower.spec.may_borrow
    if owner.given_home is not None or borrower.given_home is not None:
        return False
    if not both_burst or homes[owner.id] != (uuid,) or owner.current != (uuid,) or borrower.current != (uuid,):
        return False
    if away not in rooms.gpus or max(rooms.pools[uuid].oversubscribe, rooms.pools[away].oversubscribe) > 1.0:
        return False
    if owner.spec.request_bytes < borrower.spec.request_bytes:
        return False
    if draft.state.policy.queues and rooms.pools[uuid].name != rooms.pools[away].name:
        return False  # what their queues have in each pool would change
    others = sum(
        draft.state.workloads[key].spec.request_bytes
        for key, home in homes.items()
        if away in home and key != borrower.id
    )
    fits = others + owner.spec.request_bytes <= draft.state.gpus[away].capacity_bytes
    return fits and rooms.is_in_pools(owner, away) and rooms.is_in_pools(borrower, uuid)
