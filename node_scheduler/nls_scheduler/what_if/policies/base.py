"""What policies have in common: of what a policy does not speak, nothing happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.play.stage import equal_rate

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class Base:
    """A `Policy` without its name and its `asks`: a notebook keeps what it has, the driver shares computing time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def arrives(self, actor: Actor) -> None:
        """It needs nothing yet."""

    def finished(self, actor: Actor, cell: Cell) -> None:
        """It keeps what it has."""

    def leaves(self, actor: Actor) -> None:
        """It had nothing."""

    def rate(self, actor: Actor, beside: list[Actor]) -> float:
        """Computing time is not partitioned."""
        del actor
        return equal_rate(self._stage.costs, beside)
