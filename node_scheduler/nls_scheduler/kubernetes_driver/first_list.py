"""Until the API server has told which pods there are, no further Gpu is lent. Pure.

A daemon that starts while the API server is away knows from its journal what the daemon before it knew. Which pods came
since then nobody can say: a Gpu that none of ours is on may be about to be somebody else's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.gpu import Owner

if TYPE_CHECKING:
    from nls_scheduler.core.model.gpu import Claims
    from nls_scheduler.core.model.state import NodeState

UNKNOWN: Final = "unknown"
_NAME: Final = "a pod that is not known yet"


def cautious(state: NodeState) -> Claims:
    """The claims as they were known last, and the Gpus that are nobody's kept back for whoever may have come."""
    ours = {uuid for w in state.workloads.values() for uuid in (*w.current, *w.home, *(w.given_home or ()))}
    known = tuple(owner for owner in state.claims.owners if owner.id != UNKNOWN)
    owned = {uuid for owner in known for uuid in owner.gpus}
    free = tuple(sorted(state.gpus.keys() - ours - owned))
    return replace(state.claims, owners=(*known, *([Owner(UNKNOWN, _NAME, free)] if free else [])))
