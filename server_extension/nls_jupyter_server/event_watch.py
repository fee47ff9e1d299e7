"""Hears what happens on the node as long as the server runs, whether a page looks or not. Never starts a daemon."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.client.following import all_that_happens
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    import logging
    from collections.abc import Awaitable, Callable

    from nls_scheduler.client.daemon_client import DaemonClient

RETRY_FIRST_S: Final = 0.5
RETRY_LONGEST_S: Final = 5.0
_GO_ON_AFTER: Final = (DaemonUnreachable, Problem, AttributeError, KeyError, RecursionError, TypeError, ValueError)


class EventWatch:
    """Follows the daemon's events passively: a daemon that only this watches ends when it has nothing to do.

    Attributes:
        following: set while a daemon is connected.
        met: set once one was.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[DaemonClient]],
        on_entry: Callable[[dict[str, Any]], None],
        log: logging.Logger | logging.LoggerAdapter[Any],
    ) -> None:
        """`on_entry` is called with each entry of the history from the start on, once."""
        self._connect = connect
        self._on_entry = on_entry
        self._log = log
        self._since = datetime.now(UTC)
        self._last: tuple[int, str] = (0, "")
        self._task: asyncio.Task[None] | None = None
        self.following = asyncio.Event()
        self.met = asyncio.Event()

    def start(self) -> None:
        """In the server's loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        pause_s = RETRY_FIRST_S
        while True:
            began = time.monotonic()
            try:
                await self._follow()
            except _GO_ON_AFTER as error:
                # A node without a daemon is no news, and a page that looks says why.
                self._log.debug("No events of the GPUs for now: %s", error)
            except Exception:  # noqa: BLE001 - the log has it with its traceback
                self._log.exception("Following the events of the GPUs failed and begins anew, please report it.")
            finally:
                self.following.clear()
            pause_s = RETRY_FIRST_S if time.monotonic() - began > RETRY_LONGEST_S else min(RETRY_LONGEST_S, 2 * pause_s)
            await asyncio.sleep(pause_s)

    async def _follow(self) -> None:
        """Until the daemon goes: raises DaemonUnreachable."""
        async with all_that_happens(await self._connect(), passive=True) as (history, coming):
            self._tell_missed(history)
            self.following.set()
            self.met.set()
            async for entry in coming:
                self._tell(entry)

    def _tell_missed(self, history: list[dict[str, Any]]) -> None:
        """Tell what came after the last entry; where that is not known here, what happened since the start."""
        known = next((i for i, e in enumerate(history) if (e["sequence"], e["time"]) == self._last), None)
        if known is not None:
            missed = history[known + 1 :]
        else:
            # The first look, or a daemon that was started anew without its journal and counts from one again.
            self._last = (history[-1]["sequence"], history[-1]["time"]) if history else (0, "")
            missed = [entry for entry in history if datetime.fromisoformat(entry["time"]) >= self._since]
        for entry in missed:
            self._tell(entry)

    def _tell(self, entry: dict[str, Any]) -> None:
        self._last = entry["sequence"], entry["time"]
        self._since = max(self._since, datetime.fromisoformat(entry["time"]))
        self._on_entry(entry)
