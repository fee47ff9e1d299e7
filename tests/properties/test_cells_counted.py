"""Every cell of a workload is counted once under every policy, and its wait is what anybody sees who watches the play.

The recount knows nothing of how figures are kept: it looks at who asked when, who got a Gpu when, and what ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_plays import GPU, workloads

from nls_scheduler.core.model.policy import Policy as Rules
from nls_scheduler.what_if.play.costs import Costs
from nls_scheduler.what_if.play.figures import Figures
from nls_scheduler.what_if.play.stage import Stage
from nls_scheduler.what_if.policies import TITLES, policy_named
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.what_if.play.stage import Actor, Policy
    from nls_scheduler.what_if.workload_file.rows import Row


@dataclass
class Story:
    """What was seen of one cell or command."""

    asked: list[float] = field(default_factory=list)
    got: list[float] = field(default_factory=list)
    finished: bool = False
    failed_at: float | None = None

    def wait_s(self, row: Cell | Command, ends: float) -> float:
        """Until its session's end where it never came to its own end."""
        if self.finished:
            return sum(self.got) - sum(self.asked)
        if self.failed_at is not None:
            return sum(self.got) + self.failed_at - sum(self.asked)
        return ends - row.begin_s


class Watched:
    """A policy of whom each question of the stage is written down."""

    def __init__(self, stage: WatchedStage, policy: Policy) -> None:
        self._stage, self._policy = stage, policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def asks(self, actor: Actor) -> None:
        self._stage.story(actor).asked.append(self._stage.now)
        self._policy.asks(actor)

    def finished(self, actor: Actor, cell: Cell) -> None:
        self._stage.story(actor).finished = True
        self._policy.finished(actor, cell)


class WatchedStage(Stage):
    """A stage of which each answer of the policy is written down."""

    def __init__(self, gpus: int, costs: Costs, figures: Figures) -> None:
        super().__init__(gpus, GPU, costs, figures)
        self.stories: dict[tuple[str, float], Story] = defaultdict(Story)
        self.gone: dict[str, float] = {}

    def story(self, actor: Actor) -> Story:
        return self.stories[actor.called, actor.cells[0].begin_s]

    def compute(self, actor: Actor, gpu: int, *, held_by: tuple[str, ...] = ()) -> None:
        self.story(actor).got.append(self.now)
        super().compute(actor, gpu, held_by=held_by)

    def fail(self, actor: Actor) -> None:
        self.story(actor).failed_at = self.now
        super().fail(actor)


def watched(policy: str, rows: Sequence[Row], gpus: int, costs: Costs) -> WatchedStage:
    stage = WatchedStage(gpus, costs, Figures(0.0, 1000.0, gpus))
    stage.play(Watched(stage, policy_named(policy, stage, Rules())), iter(rows))
    return stage


@pytest.mark.parametrize("policy", TITLES)
@settings(max_examples=40)
@given(rows=workloads(), gpus=st.integers(1, 2), part=st.sampled_from([0.0, 0.5, 1.0]))
def test_every_cell_is_counted_once_with_the_wait_that_was_seen(
    policy: str, rows: list[Row], gpus: int, part: float
) -> None:
    stage = watched(policy, rows, gpus, Costs(gpu_part=part, culler_idle_s=40.0))
    figures, ends = stage.figures, {row.name: row.end_s for row in rows if isinstance(row, Session)}
    never_ran = 0
    for kind, waits in ((Cell, figures.waits), (Command, figures.command_waits)):
        of_kind = [row for row in rows if isinstance(row, kind)]
        stories = [(row, stage.stories[row.name, row.begin_s]) for row in of_kind]
        never_ran += sum(not story.finished and story.failed_at is None for _, story in stories)
        seconds = [story.wait_s(row, ends.get(row.name, figures.ended_at)) for row, story in stories]
        assert waits.count == len(of_kind)
        assert waits.sum_s == pytest.approx(sum(seconds))
        pairs = zip(stories, seconds, strict=True)
        assert waits.at_once == sum(story.finished and wait_s <= 1.0 for (_, story), wait_s in pairs)
    assert figures.never_ran == never_ran
