"""Who waits in which place, and who joins the line for what another waits for already: that changes places only. Pure.

So a plan is good for one more such newcomer: a burst of submissions to a full node costs next to nothing each.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.state import PlanEntry
from nls_scheduler.core.model.values import updated
from nls_scheduler.core.planning.homes.assign import units_of
from nls_scheduler.core.planning.homes.known import KnownHomes
from nls_scheduler.core.planning.homes.paper import admission_order, waiting_order

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.planning.homes.paper import Homes


def places_in_line(
    state: NodeState, line: Iterable[WorkloadId], placed: Container[WorkloadId], at_home: Container[WorkloadId]
) -> dict[WorkloadId, int]:
    """The place of everybody who waits for a Gpu, from 1: who has one to come (`placed`) before who has no home.

    `line` has those without a home in the order of their turns, where queues take turns. Whose turn cannot come yet,
    such as a gang's that is not whole, is behind them.
    """
    waiting = [w for w in state.workloads.values() if not w.current and w.wants_gpu and w.takes_part]
    waiting.sort(key=waiting_order)
    if state.policy.queues:
        turns = {key: turn for turn, key in enumerate(line)}
        waiting.sort(key=lambda w: -1 if w.id in at_home else turns.get(w.id, len(turns)))
    if any(w.id in placed for w in waiting):
        waiting.sort(key=lambda w: w.id not in placed)
    return {w.id: place for place, w in enumerate(waiting, start=1)}


def joined(state: NodeState, newcomer: Workload) -> Mapping[WorkloadId, PlanEntry] | None:
    """The plan with `newcomer`, if others in it differ from `state.plan` by their places at most; else `None`.

    `state.plan` was made from just what `state` has besides `newcomer`, and time alone has not changed it since.
    """
    known = state.remembered
    if not isinstance(known, KnownHomes) or (reason := known.why_in_vain(state, newcomer)) is None:
        return None
    # The plan has to be made again before anybody new begins to keep room free.
    starves_at = inf if reason.kind is Reason.HELD_BACK else newcomer.in_line_since + state.policy.starvation_s
    wake_at = min((at for at in known.homes.wake_at if at > state.at), default=inf)
    if wake_at > min(starves_at, known.homes.starves_at):
        return None
    placed = {key for key, entry in state.plan.items() if entry.target}
    places = places_in_line(state, _line(state, known.homes), placed, known.homes.homes)
    plan = {key: updated(entry, position=places.get(key)) for key, entry in state.plan.items()}
    holders = ((w.size_bytes, w.id) for w in state.workloads.values() if w.current or w.home)
    _, largest = max(holders, default=(0, None))
    plan[newcomer.id] = PlanEntry((), (), reason, largest, position=places[newcomer.id])
    return plan


def _line(state: NodeState, homes: Homes) -> Iterable[WorkloadId]:
    """Those without a home in the order of their turns, while nobody gets one."""
    if homes.ledger is None:
        return ()
    without = [w for w in state.workloads.values() if w.takes_part and not w.home and w.given_home is None]
    units = units_of(sorted(without, key=admission_order), state.gangs)
    return (w.id for head in homes.ledger.in_turn([unit[0] for unit in units.values()]) for w in units[head.id])
