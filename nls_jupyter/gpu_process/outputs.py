"""Numbers what the GPU process puts out, so that a reply can say what came before it, and needs no idle behind it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.lane import OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping

# As long as ipykernel waits for a flush; behind what takes longer comes an idle.
_FLUSHED_WITHIN_S = 10.0


class Outputs:
    """Follows one `IOPubThread`, whose thread sends everything that cells put out, in one order."""

    def __init__(self, thread: Any) -> None:
        self._thread = thread
        self._send = thread.socket.send_multipart
        self._sent = 0
        self._answered: set[str] = set()
        thread.socket.send_multipart = self._send_numbered

    def _send_numbered(self, frames: list[Any], *args: Any, **options: Any) -> Any:
        """In the publishing thread."""
        tracker = self._send([b"%d" % (self._sent + 1), *frames], *args, **options)
        self._sent += 1
        return tracker

    def told(self, msg_id: str) -> Mapping[str, int]:
        """For the reply's metadata, once the cell's streams were flushed: no idle is needed then."""
        if not self._all_sent():
            return {}
        self.answered(msg_id)
        return {OUTPUTS: self._sent}

    def answered(self, msg_id: str) -> None:
        """Its answer needs no idle behind it."""
        self._answered.add(msg_id)

    def over(self, msg_id: str | None) -> bool:
        """Whether this message was answered so. Asked once."""
        if msg_id not in self._answered:
            return False
        self._answered.discard(msg_id)
        return True

    def _all_sent(self) -> bool:
        passed = threading.Event()
        self._thread.schedule(passed.set)
        return passed.wait(_FLUSHED_WITHIN_S)
