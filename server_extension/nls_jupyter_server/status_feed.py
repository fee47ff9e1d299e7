"""What this server knows of the node: one connection to the daemon for all its browsers, which comes back by itself."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from traitlets import Float, Unicode
from traitlets.config import LoggingConfigurable

from nls_jupyter_server.page_state import State, difference, page_state, steadied, unreachable
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.following import all_that_happens
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from nls_jupyter_server.kernels import Kernels
    from nls_scheduler.core.model.ids import WorkloadId

FIGURES_EVERY_S: Final = 1.0
PULSE_EVERY_S: Final = 0.1
RETRY_FIRST_S: Final = 0.2
RETRY_LONGEST_S: Final = 2.0
_HISTORY_KEPT: Final = 500
_IN_FLUX: Final = frozenset({"starting", "suspending"})
_FLUX_POLL_S: Final = 0.2
SILENT_S: Final = 5.0
"""So long pages show what a daemon said last that does not answer."""


class StatusFeed(LoggingConfigurable):
    """Follows the daemon while somebody watches. Never starts one. Everything runs in the server's loop.

    Attributes:
        state: what pages show, see `page_state`; replaced, never changed.
        version: counts the states.
    """

    socket = Unicode("", help="The daemon's socket; empty: $NLS_SOCKET, or where `nls` looks.").tag(config=True)
    poll_interval_s = Float(1.0, help="How often the daemon is asked for memory and utilisation.").tag(config=True)

    def __init__(self, kernels: Kernels, supervisors: Callable[[], Mapping[WorkloadId, int]], **traits: Any) -> None:
        """`supervisors`: pids by workload id as found on this machine."""
        super().__init__(**traits)
        self.state: State = unreachable("The daemon has not been asked yet.")
        self.version = 0
        self._kernels = kernels
        self._supervisors = supervisors
        self._changed = asyncio.Event()
        self._nudged = asyncio.Event()
        self._figures_at = 0.0
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The state is kept current while inside."""
        self._watchers += 1
        if self._watchers == 1:
            self._task = asyncio.get_running_loop().create_task(self._run(self._task))
        try:
            yield
        finally:
            self._watchers -= 1
            if self._watchers == 0 and self._task is not None:
                self._task.cancel()

    async def newer_than(self, version: int, timeout_s: float) -> bool:
        """Wait for a state after that `version`; False when there is none within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.version <= version:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def nudge(self) -> None:
        """Something was ordered: ask the daemon at once."""
        self._nudged.set()

    async def client(self) -> DaemonClient:
        """A client for one order. Raises DaemonUnreachable."""
        return await DaemonClient.connect(Path(self.socket) if self.socket else None, may_start=False)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Raises Problem where what the daemon says is nothing that this version can read."""
        try:
            yield
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            self.log.warning("The daemon's status cannot be read: %r", error)
            text = "The daemon speaks another version of nls-jupyter: update it, or this server, and restart."
            raise Problem(502, "Unreadable message", text, "server") from error

    async def refreshed(self) -> State:
        """The state as of now, for whoever does not watch. Raises DaemonUnreachable and Problem."""
        client = await self.client()
        with self.understood():
            return await self._ask(client, await client.history())

    async def close(self) -> None:
        """End. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # Following -------------------------------------------------------------------------------------------------

    async def _run(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])  # it was told to end, and says so in the state
        pause_s = RETRY_FIRST_S
        try:
            while True:
                began = time.monotonic()
                try:
                    with self.understood():
                        await self._follow()
                except (DaemonUnreachable, Problem) as error:
                    self._publish(unreachable(str(error), self.state))
                except Exception as error:
                    self.log.exception("The feed of the GPU status failed and begins anew, please report it.")
                    text = f"A defect of nls-jupyter, please report it with this server's log: {type(error).__name__}."
                    self._publish(unreachable(text, self.state))
                pause_s = RETRY_FIRST_S if time.monotonic() - began > RETRY_LONGEST_S else pause_s * 2
                await asyncio.sleep(min(RETRY_LONGEST_S, pause_s))
        finally:
            # Whoever looks next must not take what was true now for what is true then.
            self._publish(unreachable("The daemon has not been asked yet.", self.state))

    async def _follow(self) -> None:
        """Until the daemon goes: raises DaemonUnreachable or Problem."""
        client = await self.client()
        async with all_that_happens(client) as (history, coming):
            known = deque(history, maxlen=_HISTORY_KEPT)
            following = asyncio.get_running_loop().create_task(self._hear(coming, known))
            try:
                while not following.done():
                    self._nudged.clear()
                    self._publish(await self._answer(client, list(known)))
                    await self._pause(following)
                await following
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _hear(self, coming: AsyncIterator[dict[str, Any]], known: deque[dict[str, Any]]) -> None:
        async for entry in coming:
            known.append(entry)
            self._nudged.set()

    async def _pause(self, following: asyncio.Task[None]) -> None:
        """Until it is time to ask again, or there is a reason to."""
        moving = any(w["own"] and w["phase"] in _IN_FLUX for w in self.state["workloads"].values())
        until = time.monotonic() + (_FLUX_POLL_S if moving else self.poll_interval_s)
        pulse = self._kernels.pulse()
        while (left_s := until - time.monotonic()) > 0 and not following.done():
            try:
                async with asyncio.timeout(min(PULSE_EVERY_S, left_s)):
                    await self._nudged.wait()
                return
            except TimeoutError:
                if self._kernels.pulse() != pulse:
                    return

    async def _answer(self, client: DaemonClient, history: list[dict[str, Any]]) -> State:
        """As `_ask`; what a daemon said before that is silent now is not what is so."""
        asking = asyncio.get_running_loop().create_task(self._ask(client, history))
        try:
            answered, _ = await asyncio.wait([asking], timeout=SILENT_S)
            if not answered:
                text = f"The daemon has not answered for {SILENT_S:g} s: what the GPUs do is not known until it does."
                self._publish(unreachable(text, self.state))
            return await asking
        finally:
            asking.cancel()

    async def _ask(self, client: DaemonClient, history: list[dict[str, Any]]) -> State:
        status = await client.status()
        places = await self._kernels.places(status["workloads"], self._supervisors())
        return page_state(status, history, os.geteuid(), places)

    def _publish(self, state: State) -> None:
        now = time.monotonic()
        keep_figures = now - self._figures_at < FIGURES_EVERY_S
        state = steadied(self.state, state, keep_figures=keep_figures)
        if not keep_figures:
            self._figures_at = now
        if not difference(self.state, state):
            return
        self.state = state
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()
