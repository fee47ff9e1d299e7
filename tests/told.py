"""A node in virtual time, and the entries of the history that people read of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.views.entries import as_record, entry_view, from_record
from nls_scheduler.views.history import Recorder
from stage import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.views.entries import Entry


class Told:
    """A `stage`, and what its daemon adds to the history; after `while_away` only what the next one adds."""

    def __init__(self, gpus: int, **policy: Any) -> None:
        self.stage = Stage(gpus, **policy)
        self.entries: list[dict[str, Any]] = []
        self._kept: list[Entry] = []
        self._recorder = Recorder()
        self._step = self.stage.node.tell
        self.stage.node.tell = self._tell  # type: ignore[method-assign]

    def while_away(self, happens: Callable[[], object]) -> None:
        """The daemon dies, something happens, and another one begins with the journal."""
        node = self.stage.node
        node.go_down()
        happens()
        self._begin_anew(node.state)
        node.come_back()
        self._everybody_reports()

    def lost(self, happens: Callable[[], object]) -> None:
        """Something happens of which nothing comes into the journal; the daemon dies, and another one begins."""
        node, written = self.stage.node, len(self._kept)
        known = node.state
        happens()
        node.go_down()
        del self._kept[written:]
        self._begin_anew(known)
        node.come_back_behind(known)
        self._everybody_reports()

    def _begin_anew(self, known: NodeState) -> None:
        self.entries.clear()
        self._recorder = Recorder()
        kept = [from_record(json.loads(json.dumps(as_record(entry)))) for entry in self._kept]
        self._recorder.go_on_after(kept, decode(json.loads(json.dumps(encode(known)))))

    def _everybody_reports(self) -> None:
        node = self.stage.node
        for workload in sorted(node.unreported):
            node.report(workload)
        self.stage.after(1)

    @property
    def events(self) -> list[tuple[str, str | None, str | None]]:
        """Each entry's event, where it left and where it is now."""
        return [(entry["event"], entry["from"], entry["to"]) for entry in self.entries]

    def _tell(self, event: Event) -> tuple[Command, ...]:
        before = self.stage.node.state
        commands = self._step(event)
        if not self.stage.node.down:
            found = self._recorder.entries(before, event, self.stage.node.state, commands)
            self._kept += found
            self.entries += map(entry_view, found)
        return commands
