"""Nothing that time alone changes waits for another event: the plan asks to be woken for it.

What one step has ordered changes what the next plan says, so this is held against the plan of each step that has
ordered nothing. A wake-up comes with the passage of time alone; what it leads to is the histories' business.
"""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

import pytest
from hypothesis.stateful import invariant

from nls_scheduler.core.model.commands import WorkloadCommand
from nls_scheduler.core.planning.plan import make_plan
from properties.test_histories import LONG, Histories, tried

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import PlanEntry

DAY_S = 86400.0


def told(entry: PlanEntry) -> PlanEntry:
    """`entry` but for its deadline."""
    return replace(entry, deadline_at=None)


class WakeUps(Histories):
    """The same histories."""

    @invariant()
    def time_alone_changes_nothing_before_the_plan_asked_to_be_woken(self):
        if not hasattr(self, "node") or self.node.down or not self.node.history:
            return
        if any(isinstance(command, WorkloadCommand) for command in self.node.history[-1][1]):
            return
        state = self.node.state
        woken_at = state.at + DAY_S if state.timer_at is None else state.timer_at
        now = make_plan(state).entries
        for part in (0.001, 0.999):
            at = state.at + part * (woken_at - state.at)
            then = make_plan(replace(state, at=at)).entries
            for key, entry in now.items():
                assert told(then[key]) == told(entry), f"{key} at {state.at}, at {at} and before {woken_at}"
                self.deadline_holds(key, entry, then[key], at - state.at)

    def deadline_holds(self, key, entry, later, elapsed_s):
        """A deadline stands, unless it is for one that is still on a Gpu, and so has not begun to wait."""
        if later.deadline_at == entry.deadline_at:
            return
        cause = self.node.state.workloads.get(entry.cause)
        assert cause is not None
        assert cause.waiting_since is None, f"the deadline of {key} recedes although {cause.id} waits"
        assert isclose(later.deadline_at - entry.deadline_at, elapsed_s, abs_tol=1e-6)


TestWakeUps = pytest.mark.timeout(300)(tried(WakeUps, 12, 40))
TestManyWakeUps = LONG(pytest.mark.timeout(1200)(tried(WakeUps, 60, 40)))
