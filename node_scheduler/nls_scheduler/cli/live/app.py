"""The loop of `nls top`: looks at the node, keys, signals, and orders."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.explain import render as explained
from nls_scheduler.cli.live.choices import Choices, Page, pressed
from nls_scheduler.cli.live.drawing import frame, page_rows
from nls_scheduler.cli.live.keys import Keys
from nls_scheduler.cli.watching import without_figures
from nls_scheduler.cli.workload import done
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.following import Follower, Look
from nls_scheduler.units.sizes import format_seconds
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from nls_scheduler.cli.live.choices import Wish
    from nls_scheduler.cli.live.terminal import Terminal

ESCAPE_ALONE_S: Final = 0.1
"""After so long an escape character is the key, and not the begin of another key's sequence."""
_ENDS: Final = {signal.SIGINT: 0, signal.SIGTERM: exit_codes.TERMINATED, signal.SIGHUP: exit_codes.TERMINATED}


class Top:
    """One view; all of it runs in one loop."""

    def __init__(self, socket: Path | None, terminal: Terminal) -> None:
        self._socket = socket
        self._terminal = terminal
        self._follower = Follower(self._connect)
        self._look = Look()
        self._choices = Choices()
        self._keys = Keys()
        self._over = asyncio.get_running_loop().create_future()
        self._orders: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """The exit code, when the user has had enough.

        Raises DaemonUnreachable and Problem if no daemon answers at first, before the terminal is touched.
        """
        async with aclosing(self._follower.looks()) as looks:
            self._look = await anext(looks)
            if self._look.trouble is not None:
                raise self._look.trouble
            with self._terminal.taken():
                return await self._until_over(looks)

    async def _until_over(self, looks: AsyncIterator[Look]) -> int:
        self._listen()
        self._draw()
        following = asyncio.create_task(self._follow(looks))
        try:
            await asyncio.wait({following, self._over}, return_when=asyncio.FIRST_COMPLETED)
            return await following if following.done() else self._over.result()
        finally:
            self._listen(end=True)
            tasks = (following, *self._orders)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self, *, end: bool = False) -> None:
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {number: partial(self._end, code) for number, code in _ENDS.items()}
        handlers |= {signal.SIGWINCH: self._resized, signal.SIGTSTP: self._stop_for_now}
        for number, handler in handlers.items():
            if end:
                loop.remove_signal_handler(number)
            else:
                loop.add_signal_handler(number, handler)
        if end:
            loop.remove_reader(sys.stdin.fileno())
        else:
            loop.add_reader(sys.stdin.fileno(), self._read)

    def _end(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    def _resized(self) -> None:
        """The terminal may have folded its lines anew."""
        self._terminal.redraw()
        self._draw()

    def _stop_for_now(self) -> None:
        """Ctrl-Z: the shell has its terminal until it says `fg`."""
        self._terminal.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._terminal.take()
        self._draw()

    async def _follow(self, looks: AsyncIterator[Look]) -> int:
        async for look in looks:
            before, self._look = self._look, look
            if self._terminal.moves_cursor or _worth_a_frame(before, look):
                self._draw()
        return 0

    def _draw(self) -> None:
        try:
            self._terminal.draw(frame(self._look, self._choices, self._terminal.canvas))
        except OSError:  # it has gone; what tells of that is on its way
            self._end(exit_codes.TERMINATED)

    # Keys ----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            received = os.read(sys.stdin.fileno(), 1024)
        except OSError:
            received = b""
        if not received:
            self._end(exit_codes.TERMINATED)
            return
        for key in self._keys.pressed(received):
            self._press(key)
        if self._keys.waits:
            asyncio.get_running_loop().call_later(ESCAPE_ALONE_S, self._no_more)

    def _no_more(self) -> None:
        for key in self._keys.no_more():
            self._press(key)

    def _press(self, key: str) -> None:
        if key == "redraw":
            self._terminal.redraw()
        canvas = self._terminal.canvas
        self._choices, wish = pressed(key, self._look, self._choices, canvas.columns, page_rows(canvas))
        if wish is not None and wish.verb == "quit":
            self._end(0)
        elif wish is not None:
            order = asyncio.get_running_loop().create_task(self._order(wish))
            self._orders.add(order)
            order.add_done_callback(self._orders.discard)
        self._draw()

    async def _order(self, wish: Wish) -> None:
        """The daemon decides whether it may be; what it says is shown."""
        try:
            self._choices = await self._carried_out(await self._connect(), wish)
        except (DaemonUnreachable, Problem) as refusal:
            self._choices = replace(self._choices, message=str(refusal))
        self._follower.nudge()
        self._draw()

    async def _carried_out(self, client: DaemonClient, wish: Wish) -> Choices:
        if wish.verb == "explain":
            text = explained(await client.explain(wish.workload), self._terminal.canvas.columns)
            return replace(self._choices, page=Page(wish.name, text))
        if wish.verb == "keep":
            await client.patch(wish.workload, keep_s=wish.seconds)
            told = f"is kept on its GPU for {format_seconds(wish.seconds)}" if wish.seconds else "is kept no longer"
            return replace(self._choices, message=f"{wish.name} {told}")
        entry = await (client.suspend if wish.verb == "suspend" else client.resume)(wish.workload)
        return replace(self._choices, message=f"{wish.name} {done(wish.verb, entry)}")

    async def _connect(self) -> DaemonClient:
        return await DaemonClient.connect(self._socket, may_start=False)


def _worth_a_frame(before: Look, now: Look) -> bool:
    """Where frames stand below each other, memory alone is no reason for another."""
    if (before.history, str(before.trouble)) != (now.history, str(now.trouble)) or before.status is None:
        return True
    return now.status is None or without_figures(before.status) != without_figures(now.status)
