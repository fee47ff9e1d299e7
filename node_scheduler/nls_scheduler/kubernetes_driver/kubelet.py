"""Asks the kubelet which devices it gave, often while somebody waits for that and seldom otherwise: it has no watch."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nls_scheduler.kubernetes_driver.pace import Rounds
from nls_scheduler.kubernetes_driver.podresources import KubeletError, PodResources
from nls_scheduler.units.clock import awake_s

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nls_scheduler.kubernetes_driver.pace import Pace

_EXPECTING_S: Final = 0.1
"""Never more often, however many wait: the kubelet refuses what comes too often, whoever it comes from."""
_UNKNOWN_S: Final = 0.5
_QUIET_S: Final = 2.0
_FAILING_S: Final = 5.0
_FIRST_S: Final = 1.0
log = logging.getLogger(__name__)


class Kubelet:
    """The kubelet's allocations as last told. While it does not answer, the last ones stay."""

    def __init__(self, socket: Path, changed: Callable[[], None], pace: Pace | None = None) -> None:
        """`changed` is called in the loop when the allocations have; `pace`: after what nobody foresaw."""
        self._client = PodResources(socket)
        self._changed = changed
        self._pause_s = _QUIET_S
        self._hurry = asyncio.Event()
        self.tells_next = False
        """Whether the next answer is news also where it is the same."""
        self.heard_at: float | None = None
        self._since = awake_s()
        self.allocations: dict[str, tuple[str, ...]] | None = None
        self._rounds = Rounds("Asking the kubelet for its allocations", pace)
        self._why: str | None = None

    @property
    def trouble(self) -> str | None:
        """Why nothing new comes at the moment."""
        return self._why or self._rounds.trouble

    @property
    def unheard_s(self) -> float:
        """How old the allocations are; where there never were any, since when that is so."""
        return awake_s() - (self._since if self.heard_at is None else self.heard_at)

    def expect(self, *, devices: bool, homes: bool) -> None:
        """Whether devices are about to be given, and whether a pod of ours has no home yet."""
        pause_s = _EXPECTING_S if devices else _UNKNOWN_S if homes else _QUIET_S
        if pause_s < self._pause_s:
            self._hurry.set()
        self._pause_s = pause_s

    def ask_soon(self) -> None:
        """Somebody waits for what it says now."""
        self._hurry.set()

    async def begin(self) -> None:
        """Ask once, for a moment; nobody is told of it."""
        asked_at = awake_s()
        try:
            async with asyncio.timeout(_FIRST_S):
                self.allocations = await self._client.allocations()
        except (KubeletError, TimeoutError) as error:
            log.info("the kubelet has not told its allocations yet: %s", error)
            return
        self.heard_at = asked_at

    async def run(self) -> None:
        """Ask until cancelled."""
        await self._rounds.go_on(self._ask_and_wait)

    async def _ask_and_wait(self) -> None:
        pause_s = await self._ask()
        await asyncio.sleep(_EXPECTING_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s - _EXPECTING_S):
                await self._hurry.wait()
        self._hurry.clear()

    async def _ask(self) -> float:
        asked_at = awake_s()
        try:
            allocations = await self._client.allocations()
        except KubeletError as error:
            if self._why is None:
                log.warning("%s; the last known allocations stay", error)
            self._why = str(error)
            return _FAILING_S
        self._why, self.heard_at = None, asked_at
        if allocations != self.allocations or self.tells_next:
            self.allocations, self.tells_next = allocations, False
            self._changed()
        return self._pause_s

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()
