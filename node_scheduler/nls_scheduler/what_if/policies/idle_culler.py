"""A whole Gpu for each notebook, until it was idle for an hour: then it is ended, and what it held is lost.

Source: Zero to JupyterHub's `cull.timeout` (one hour by default, jupyterhub-idle-culler). The user finds out at the
next cell, waits in line for a Gpu, and computes again what was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.policies.whole_gpu import WholeGpu

if TYPE_CHECKING:
    from nls_scheduler.what_if.play.stage import Actor, Stage
    from nls_scheduler.what_if.workload_file.rows import Cell


class IdleCuller(WholeGpu):
    """As `WholeGpu`, beside a culler."""

    name = "culler"
    title = "A whole GPU each, idle ones ended"

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._ended: set[Actor] = set()

    def asks(self, actor: Actor) -> None:
        """Who was ended starts again, at the end of the line."""
        if actor not in self._ended:
            super().asks(actor)
        elif actor not in self._line and actor not in self.place:
            self._line_up(actor)

    def finished(self, actor: Actor, cell: Cell) -> None:
        """From here on it is idle."""
        del cell
        self._watch(actor)

    def leaves(self, actor: Actor) -> None:
        """As it was, but nobody looks after it any more."""
        self._ended.discard(actor)
        super().leaves(actor)

    def _watch(self, actor: Actor) -> None:
        since = actor.idle_since
        self._stage.at(self._stage.now + self._stage.costs.culler_idle_s, lambda: self._cull(actor, since))

    def _cull(self, actor: Actor, since: float) -> None:
        idle = actor.gpu is None and actor.asked_at is None and actor.idle_since == since
        if idle and actor in self.place and not actor.is_command:
            self._ended.add(actor)
            self._stage.lose(actor)
            self._give_back(actor)

    def _begin(self, actor: Actor) -> None:
        if actor in self._ended:
            start_s = self._stage.costs.start_s(0, standing_by=False)
            self._stage.at(self._stage.now + start_s, lambda: self._again(actor))
        else:
            actor.idle_since = self._stage.now
            self._watch(actor)
            super()._begin(actor)

    def _again(self, actor: Actor) -> None:
        self._ended.discard(actor)
        if actor in self.place and actor.asked_at is not None:
            super().asks(actor)
