"""What happened, on Jupyter's own event bus, for whoever listens there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter_server.page_state import is_own

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jupyter_events import EventLogger

SCHEMA_ID: Final = "https://events.nls-jupyter.org/gpu/v1"
SCHEMA_FILE: Final = Path(__file__).parent / "event_schemas" / "gpu.v1.yaml"
_ACTIONS: Final = {
    "queued": "waiting",
    "moved": "moved",
    "suspended": "suspended",
    "resumed": "resumed",
    "evicted": "evicted",
    "gpu_unhealthy": "gpu-unhealthy",
}
_LOST_BY: Final = frozenset({"evicted", "exited", "failed"})


class Announcements:
    """Turns entries of the daemon's history into events: those of the server's user, and of Gpus."""

    def __init__(self, event_logger: EventLogger) -> None:
        event_logger.register_event_schema(SCHEMA_FILE)
        self._event_logger = event_logger
        self._lost: set[str] = set()

    def announce(self, entry: Mapping[str, Any]) -> None:
        """One entry, if it is worth an event. A resume after the process was lost is a restore."""
        if entry["owner"] is not None and not is_own(entry, os.geteuid()):
            return
        action, workload = _ACTIONS.get(entry["event"]), entry["workload"]
        if entry["event"] in _LOST_BY:
            self._lost.add(workload)
        elif entry["event"] in ("resumed", "started", "released"):
            if entry["event"] == "resumed" and workload in self._lost:
                action = "restored"
            self._lost.discard(workload)
        if action is not None:
            names = ("workload", "name", "reason", "from", "to", "seconds", "bytes")
            # An entry from before this was told has none.
            losses = {name: list(entry.get(name, ())) for name in ("missing", "lost_cells")}
            data = {"action": action, "cause": entry["cause"] and entry["cause"]["name"], **losses}
            self._event_logger.emit(schema_id=SCHEMA_ID, data=data | {name: entry[name] for name in names})
