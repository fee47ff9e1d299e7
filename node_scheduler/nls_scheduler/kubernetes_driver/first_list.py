"""Until the API server and the kubelet have told who owns what, no further Gpu is lent. Pure.

A daemon that starts knows from its journal what the daemon before it knew. Which pods came since then nobody can say: a
Gpu that none of ours is on may be about to be somebody else's. Who borrows stays, and leaves once an owner is known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nls_scheduler.core.model.state import NodeState

UNKNOWN: Final = "unknown"
_NAME: Final = "a pod that is not known yet"


def remembered(state: NodeState, allocations: Mapping[str, tuple[str, ...]] | None) -> Claims:
    """The claims as they were known last, and what the kubelet alone says, before any list of pods.

    `allocations`: as in `Sources`. A device that nobody had then, and that is no home of ours, is a stranger's now. One
    that somebody had, or that is a home, may be a reservation for ours: the list of pods tells. Whoever owned
    nothing then only looks at what it has.
    """
    known = tuple(owner for owner in state.claims.owners if owner.id != UNKNOWN)
    homes = {uuid for w in state.workloads.values() for uuid in (*w.home, *(w.given_home or ()))}
    explained = homes | state.claims.allocated | {uuid for owner in known for uuid in owner.gpus}
    names = {owner.id for owner in known} | {
        f"allocated:{owner.name}" for owner in known if not owner.gpus and not owner.devices_to_come
    }
    new = []
    for key, uuids in sorted((allocations or {}).items()):
        gpus = tuple(
            uuid for uuid in map(GpuUuid, dict.fromkeys(uuids)) if uuid in state.gpus and uuid not in explained
        )
        if gpus and f"allocated:{key}" not in names:
            new.append(Owner(f"allocated:{key}", key, gpus))
    return replace(state.claims, owners=(*known, *new))


def held_back(claims: Claims, state: NodeState, homes: Iterable[GpuUuid] = ()) -> Claims:
    """`claims`, and the Gpus that are nobody's kept back for whoever may have come. `homes`: of pods of ours."""
    ours = {uuid for w in state.workloads.values() for uuid in (*w.current, *w.home, *(w.given_home or ()))}
    ours.update(homes)
    owned = {uuid for owner in claims.owners for uuid in owner.gpus}
    free = tuple(sorted(state.gpus.keys() - ours - owned))
    return replace(claims, owners=(*claims.owners, Owner(UNKNOWN, _NAME, free))) if free else claims
