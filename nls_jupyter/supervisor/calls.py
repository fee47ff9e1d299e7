"""What a thread of the notebook's waits for: one cell, and what Ctrl-C makes of it."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.pending import Message

# A third Ctrl-C gives up a cell that has not reacted since the first one, so long ago.
_REACTS_WITHIN_S = 3.0
_GIVES_UP_AFTER = 2


class Call:
    """One cell: first it waits for the GPU process, then it is `work` there. Belongs to the loop's thread.

    Each thread that runs the notebook's cells has a call of its own: while one's cell runs, a subshell's may wait.

    Attributes:
        work: its execute request, once it was sent.
    """

    def __init__(self) -> None:
        self.work: asyncio.Task[Message] | None = None
        self._waiter: asyncio.Task[Any] | None = None
        self._over = False
        self._interrupts = 0
        self._interrupted_at = math.inf

    @property
    def left_alone(self) -> bool:
        """Whether the cell still runs, and nobody waits for it any more."""
        return self.work is not None and not self.work.done()

    def begin(self) -> None:
        """The running task waits for it from now on. Raises CancelledError after a Ctrl-C that came before."""
        if self._over:
            raise asyncio.CancelledError
        self._waiter = asyncio.current_task()

    def when_over(self, do: Callable[[], object]) -> None:
        """Call `do` when the cell has ended in the GPU process, or with it."""
        if self.work is not None:
            self.work.add_done_callback(lambda _: do())

    def interrupt(self, keeper: Keeper) -> int:
        """See `Supervisor.interrupt`."""
        now = time.monotonic()
        if self.work is None:
            if keeper.saves.active:
                keeper.saves.stop()
            self._give_up()
        elif not self.work.done():
            if self._interrupts >= _GIVES_UP_AFTER and now >= self._interrupted_at + _REACTS_WITHIN_S:
                self._give_up()
            keeper.interrupt()
            self._interrupts += 1
            self._interrupted_at = min(self._interrupted_at, now)
        return self._interrupts

    def _give_up(self) -> None:
        self._over = True
        if self._waiter is not None:
            self._waiter.cancel()
