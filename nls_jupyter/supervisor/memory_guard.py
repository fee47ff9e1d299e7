"""Gives host memory back before the container reaches its limit, where the system ends everything in it at once.

What is saved beside a living GPU process goes first, then the GPU process: both can be had again. What was saved of a
process that is gone goes last, since nothing else has those variables. A process that had to go comes back with the
next cell and not before, and none starts where there is no room for it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, Protocol

from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.saved_state.room import LOW, container_room
from nls_scheduler.units.sizes import format_bytes
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nls_jupyter.supervisor.kept_state import SavedState
    from nls_jupyter.supervisor.notices import NoticeLog

VERY_LOW: Final = 0.03
"""Below this part of the limit the GPU process goes; below `LOW`, the saved state of a living one."""
_PAUSE_S: Final = 1.0
_NEARLY_LOW: Final = 2 * LOW
_LOW_PAUSE_S: Final = 0.1
"""From `_NEARLY_LOW` on: what is left can be gone in a moment."""
_log = logging.getLogger(__name__)


def no_room(room: Callable[[], tuple[int, int] | None] = container_room) -> str | None:
    """Why no process may be started now, as one clause; `None`: nothing is in its way."""
    try:
        found = room()
    except OSError:
        return None  # nothing is known of a limit; the guard has told
    if found is None or found[0] >= LOW * found[1]:
        return None
    left, limit = (format_bytes(size) for size in found)
    return f"only {left} of this container's {limit} of memory are left: free some of it in the notebook"


class Process(Protocol):
    """What the guard needs of a GPU process."""

    def kill(self, why: str) -> None:
        """End it at once; `why` is what is said of its end."""


class Kept(Protocol):
    """What the guard needs of the keeper."""

    @property
    def process(self) -> Process | None:
        """The living one."""

    @property
    def saved(self) -> SavedState | None:
        """What was saved last."""

    @property
    def usable(self) -> bool:
        """Whether the process has what was saved: before, what is saved is the only copy."""

    @property
    def held_by_driver(self) -> bool:
        """Whether the process must not be killed now."""

    def give_back_saved(self) -> None:
        """Forget it; its memory is free at once."""


class MemoryGuard:
    """Watches one notebook's container, in the supervisor's loop."""

    def __init__(
        self,
        keeper: Kept,
        log: NoticeLog,
        room: Callable[[], tuple[int, int] | None] = container_room,
        rest: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`room` gives what is left and the limit, in bytes; `None` where nothing limits this process.

        `rest` is called when a usable process was ended: it is not to come back before the next cell.
        """
        self._keeper = keeper
        self._log = log
        self._room = room
        self._rest = rest
        self._to_rest = False
        self._killed: Process | None = None

    async def run(self) -> None:
        """Watch until cancelled; ends by itself where there is no limit to be kept."""
        told = False
        while True:
            try:
                room = self._room()
            except OSError as error:  # a process that can open no more files can again, once some are closed
                if not told:
                    _log.warning("the container's memory cannot be watched now: %s", error)
                told = True
                await asyncio.sleep(_PAUSE_S)
                continue
            if room is None:
                return
            left_bytes, limit_bytes = room
            self.check(left_bytes, limit_bytes)
            await self._let_rest()
            await asyncio.sleep(_LOW_PAUSE_S if left_bytes < _NEARLY_LOW * limit_bytes else _PAUSE_S)

    async def _let_rest(self) -> None:
        if not self._to_rest or self._rest is None:
            return
        self._to_rest = False
        try:
            await self._rest()
        except (GpuUnavailable, Problem, DaemonUnreachable) as error:
            # It comes back at once then, unless there is no room for it.
            _log.warning("the daemon was not told to wait for the next cell: %s", error)

    def check(self, left_bytes: int, limit_bytes: int) -> bool:
        """Give back what is due; whether memory is low. One thing at a time, then the memory is read again."""
        if left_bytes >= LOW * limit_bytes:
            return False
        process, saved = self._keeper.process, self._keeper.saved
        what = f"only {format_bytes(left_bytes)} of this container's {format_bytes(limit_bytes)} were left"
        # What earlier processes saved and nobody could bring back is nowhere else.
        if process is not None and self._keeper.usable and saved is not None and not saved.manifest.carried:
            self._keeper.give_back_saved()
            self._log.add(f"What was saved of this notebook's GPU variables was dropped: {what}.", important=True)
        elif left_bytes >= VERY_LOW * limit_bytes or self._keeper.held_by_driver:
            return True
        elif process is not None:
            if process is not self._killed:
                self._killed, self._to_rest = process, self._keeper.usable
                why = f"was ended so that the notebook could live: {what}"
                self._log.add(f"The GPU process {why}.", important=True)
                process.kill(why)
        elif saved is not None:
            self._keeper.give_back_saved()
            self._log.add(
                f"The saved GPU variables were dropped so that the notebook could live: {what}.", important=True
            )
        return True
