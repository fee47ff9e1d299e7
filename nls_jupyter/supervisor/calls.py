"""What a thread of the notebook's waits for: one cell, as it is handed over, and what Ctrl-C makes of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.notices import Notice
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

    @property
    def unheard(self) -> bool:
        """Whether the cell still runs after its first Ctrl-C, and no second one came."""
        return self.left_alone and self._interrupts == 1

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
        now = monotonic_s()
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


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell for the GPU process.

    Attributes:
        code: its source.
        label: how the user knows it, such as `[5]`.
        msg_id: identifies its outputs, from `OutputRelay.follow`.
        wait: whether it may wait for a GPU at all.
        wait_timeout_s: how long it may wait for one; `None`: as long as it takes.
        on_stdin: gets each request for input, and those of `wire.OWN_REQUESTS`.
        on_wait: gets the live line while it waits, then `None` once.
        on_notices: shows what happened since the last cell, before this one's outputs.
        caught_up: returns once all is shown that was to be shown before.
        on_sent: called when it is being sent, perhaps more than once.
        on_reply: gets the execute reply, a moment before `run` returns it.
        options: more of `GpuProcess.execute`'s.
        call: what the thread waits for that handed it over.
    """

    code: str
    label: str
    msg_id: str
    wait: bool
    wait_timeout_s: float | None
    on_stdin: Callable[[Message], Awaitable[None] | None]
    on_wait: Callable[[str | None], None]
    on_notices: Callable[[Sequence[Notice]], Awaitable[None]]
    caught_up: Callable[[], Awaitable[None]]
    on_sent: Callable[[], None]
    on_reply: Callable[[Message], None]
    options: Mapping[str, Any] = field(default_factory=dict)
    call: Call = field(default_factory=Call)
