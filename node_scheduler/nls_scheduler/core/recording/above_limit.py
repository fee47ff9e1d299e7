"""What the samples amount to that show a workload above its limit. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.core.model.workload import Phase

if TYPE_CHECKING:
    from nls_scheduler.core.model.workload import Workload

# One sample may have met a process in the middle of giving memory back.
_POLLS_ABOVE_LIMIT = 2
# Above in one sample of three is forgiven; more often, it adds up.
_FORGIVEN_BY_ONE_WITHIN = 0.5


def polls_above_limit(workload: Workload, *, above: bool) -> float:
    """What the samples amount to after one that shows it `above` its limit, or within.

    One above counts 1, one within takes half of that back: not only samples in a row add up. No more is counted where
    something is to be done already, and who is on its way out leaves for what was counted.
    """
    if workload.phase is Phase.SUSPENDING:
        return workload.over_limit_polls
    if above:
        return workload.over_limit_polls + (0 if above_limit(workload) else 1)
    return max(0.0, workload.over_limit_polls - _FORGIVEN_BY_ONE_WITHIN)


def above_limit(workload: Workload) -> bool:
    """Whether the samples amount to so much that it is to be trimmed, or stopped where it has been trimmed for that."""
    return workload.over_limit_polls >= _polls_to_act(workload)


def _polls_to_act(workload: Workload) -> int:
    """As much again after a trim: what that gives back has to show first."""
    return _POLLS_ABOVE_LIMIT * (2 if workload.trimmed and workload.trim is None else 1)
