"""One supervisor's connection: what is still to be sent to it, bounded however slowly it reads."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.views.status import figures, settled_part
from nls_scheduler.wire.protocol import encode_error, encode_view

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nls_scheduler.core.model.commands import WorkloadCommand
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.wire.errors import Problem

ERRORS_KEPT: Final = 100
FIGURES_INTERVAL_S: Final = 1.0


class Session:
    """Orders, errors and the newest view for one supervisor. The daemon fills it, `run` sends."""

    def __init__(
        self, workload: WorkloadId, peer: Peer, close: Callable[[int, str], None], *, only: bool = False
    ) -> None:
        """`close(code, reason)` ends the connection; `only`: its process looks after no other workload."""
        self.workload = workload
        self.only = only
        self.peer = peer
        self.close = close
        self._commands: deque[WorkloadCommand] = deque()
        self._errors: deque[Problem] = deque(maxlen=ERRORS_KEPT)
        self._view: Mapping[str, Any] | None = None
        self._shown: Mapping[str, Any] = {}
        self._shown_at = 0.0
        self._something = asyncio.Event()

    def order(self, command: WorkloadCommand) -> None:
        """Send `command`. There are few: the core waits for one's answer before the next."""
        self._commands.append(command)
        self._something.set()

    def refuse(self, problem: Problem) -> None:
        """Tell that a message was malformed."""
        self._errors.append(problem)
        self._something.set()

    def show(self, view: Mapping[str, Any], at: float) -> bool:
        """Send `view` if it differs from the last one: figures once a second, everything else at once.

        False: it differs, and is to be shown once more when the second is over.
        """
        changed = not self._shown or settled_part(view) != settled_part(self._shown)
        if not changed and figures(view) == figures(self._shown):
            return True
        if not changed and at - self._shown_at < FIGURES_INTERVAL_S:
            return False
        self._shown, self._shown_at, self._view = view, at, view
        self._something.set()
        return True

    async def run(self, encode: Callable[[WorkloadCommand], Awaitable[str | None]], send: _Send) -> None:
        """Send until cancelled. `encode` gives None for an order that failed before it could be sent.

        The view goes first: who carries out an order can bring its workload back to a daemon that has lost it.
        """
        while True:
            await self._something.wait()
            self._something.clear()
            if self._view is not None:
                view, self._view = self._view, None
                await send(encode_view(view))
            while self._commands:
                text = await encode(self._commands.popleft())
                if text is not None:
                    await send(text)
            while self._errors:
                await send(encode_error(self._errors.popleft()))


if TYPE_CHECKING:
    _Send = Callable[[str], Awaitable[None]]
