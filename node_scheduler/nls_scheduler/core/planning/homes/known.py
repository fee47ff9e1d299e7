"""Homes are assigned anew only when something has changed on which they depend. Pure.

They follow from who asks for what, who has a home, and the Gpus. Where workloads are in fact, what they hold and what
it would cost to move them counts only where a round has looked at it: most cells, samples and moves put nobody's home
in question.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.assign import assign_homes
from nls_scheduler.core.planning.homes.paper import admission_order

if TYPE_CHECKING:
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes, LookedAt

    Facts = tuple[object, ...]

_HOME_FACTS: Final = attrgetter("home_facts")
_PLACE_FACTS: Final = attrgetter("place_facts")
_COST_FACTS: Final = attrgetter("cost_facts")


@dataclass(frozen=True, slots=True)
class KnownHomes:
    """The homes of one round, and what they were found from.

    Attributes:
        homes: never changed.
        looked_at: what the round depends on besides `facts`.
        facts: who asks for what, who has a home, and the Gpus.
        places: where everybody was, and what they held.
        costs: what it would have cost to move them.
        at: when.
    """

    homes: Homes
    looked_at: LookedAt
    facts: Facts
    places: Facts
    costs: Facts
    at: float

    def hold(self, state: NodeState, facts: Facts) -> bool:
        """Whether the same would be found again."""
        if not self._in_time(state.at) or facts != self.facts:
            return False
        if self.looked_at.places and _places(state) != self.places:
            return False
        return not self.looked_at.costs or _costs(state) == self.costs

    def why_in_vain(self, state: NodeState, newcomer: Workload) -> Why | None:
        """Why `newcomer` has no home, if nobody else's is another one with it; `None`: that has to be seen."""
        first = self.homes.in_vain.get(newcomer.spec.demand)
        if first is None or newcomer.phase is not Phase.QUEUED or not newcomer.wants_gpu:
            return None
        if newcomer.given_home is not None or not self._in_time(state.at):
            return None
        ledger, behind = self.homes.ledger, admission_order(newcomer) > admission_order(state.workloads[first])
        return self.homes.waits[first] if behind and (ledger is None or ledger.gets_no_more(newcomer.spec)) else None

    def _in_time(self, at: float) -> bool:
        return self.at <= at < self.looked_at.until or at == self.at


def homes_of(state: NodeState, alive: list[Workload]) -> KnownHomes:
    """The homes of all who take part (`alive`): those that are known, or others."""
    facts, known = _facts(state), state.remembered
    if isinstance(known, KnownHomes) and known.hold(state, facts):
        return known
    homes, looked_at = assign_homes(state, alive)
    if looked_at.costs:
        kept = [w.keep_until for w in alive if w.keep_until is not None and w.kept(state.at)]
        looked_at.until = min((looked_at.until, *kept))
    return KnownHomes(homes, looked_at, facts, _places(state), _costs(state), state.at)


def _facts(state: NodeState) -> Facts:
    # Those who take no part any more as well: others may be on their way for one of them.
    gpus, workloads = map(_HOME_FACTS, state.gpus.values()), map(_HOME_FACTS, state.workloads.values())
    quiet_until = state.quiet_until if state.settling else None
    return (state.policy, quiet_until, tuple(gpus), tuple(state.usable), state.stuck, tuple(workloads))


def _places(state: NodeState) -> Facts:
    return tuple(map(_PLACE_FACTS, state.workloads.values()))


def _costs(state: NodeState) -> Facts:
    return tuple(map(_COST_FACTS, state.workloads.values()))
