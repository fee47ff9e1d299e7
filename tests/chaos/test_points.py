"""A process is killed at each step of save, restore, suspend, release, move and start: the judge finds nothing."""

from __future__ import annotations

import asyncio
import importlib
import random
from typing import TYPE_CHECKING

import pytest

from campaign import gone
from chaos_points import OF_KERNEL, POINTS, Point
from effort import examples
from notebooks_of_chaos import OwnKernel
from player import Player
from point_acts import pass_a_point
from world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

# Those that run with every `make test`: one of each step, in each process.
OFTEN = {
    "save-arena._pwrite-exit-self",
    "save-saver.Saver.save-exit-self",
    "save-state_requests.StateRequests.save-exit-parent",
    "restore-decoder.decode-exit-self",
    "start-kernel.GpuProcessKernel.start-exit-self",
    "release-place.Place._release-entry-gpu",
    "journal-journal.Journal.record-exit-self",
}


LONG = "a death at each step of a save, a restore, a release and a move"
SOME = POINTS[:: max(1, len(POINTS) // examples(len(POINTS)))]


class Stage:
    """One notebook on a node of its own, for all points one after another."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.world = World(server=False)
        self._runner.run(self.world.__aenter__())
        self.player = Player(self.world, "alice", lambda: OwnKernel(self.world, "alice"), auto=False)
        self._runner.run(self.player.open())

    def pass_by(self, point: Point) -> list[int] | None:
        """Who was hit there."""
        if self.player.findings:  # what is wrong with this kernel is told; the next point gets a new one
            self._runner.run(self.player.open())
        self.player.story.clear()
        self.player.findings.clear()
        return self._runner.run(pass_a_point(self.player, point, random.Random(1)))

    def close(self) -> dict[str, list[str]]:
        """What is left."""
        try:
            self._runner.run(self.player.close())
            self._runner.run(self.world.__aexit__())
            return self._runner.run(gone(self.world))
        finally:
            self._runner.close()
            self.world.close()


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    stage = Stage()
    left: dict[str, list[str]] = {}
    try:
        yield stage
    finally:
        left = stage.close()
    assert not left


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_each_point_names_a_function_that_is_there(point: Point) -> None:
    owner = importlib.import_module(point.module)
    *above, name = point.function.split(".")
    for part in above:
        owner = getattr(owner, part)
    assert callable(getattr(owner, name))


def test_those_that_run_often_are_points() -> None:
    assert {point.name for point in POINTS} >= OFTEN


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "point",
    [
        pytest.param(point, id=point.name, marks=() if point.name in OFTEN else pytest.mark.long(LONG))
        for point in POINTS
        if point in SOME or point.name in OFTEN
    ],
)
def test_a_death_at_any_step_costs_nothing_that_is_not_said(stage: Stage, point: Point) -> None:
    victims = stage.pass_by(point)
    story = "\n".join([*stage.player.story, "the node:", *stage.world.story[-20:]])
    assert victims is not None, f"nobody came to {point.name}\n{story}"
    assert victims or point in OF_KERNEL, f"nobody was there to be hit at {point.name}\n{story}"
    assert not stage.player.findings, f"{stage.player.findings}\n{story}"
