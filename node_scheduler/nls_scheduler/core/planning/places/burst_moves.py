"""Moves that serve burst alone are rare: a pause between two, and so many in an hour and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

HOUR_S: Final = 3600.0


def moves_of_last_hour(moves: tuple[float, ...], at: float) -> tuple[float, ...]:
    """Those of `moves` that count against the bound at `at`."""
    return tuple(moved_at for moved_at in moves if moved_at + HOUR_S > at)


def may_move_from(state: NodeState, workload: Workload) -> float:
    """From when on `workload` may move for burst alone, where anybody may; not later than now where it may at once."""
    times = [t + state.policy.cool_down_s for t in (workload.moved_at, workload.suspend_failed_at) if t is not None]
    recent, most = moves_of_last_hour(workload.burst_moves, state.at), state.policy.max_moves_per_hour
    if len(recent) >= most:
        times.append(recent[-most] + HOUR_S)
    return max(times, default=state.at)
