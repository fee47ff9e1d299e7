"""Saves behind the replies of cells: at once as far as that is cheap, and the rest when nobody runs a cell.

Small cells that follow each other at once are saved together: a save that would cost more than a fortieth of what
they ran lets the next cell pass if that is there already. What a killed process can take with it beyond its own cell is
so bounded by `_PASSES_S` of cells; `%gpu` names the cell that was saved.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from nls_jupyter.launch import GpuProcessDied
from nls_jupyter.pending import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nls_jupyter.channel import GpuProcess
    from nls_jupyter.keeper import SavedState

_log = logging.getLogger(__name__)

# Who thinks for so long between two cells does not notice a save.
IDLE_S = 1.0
# A save that takes longer is given up; the state saved before stands.
TIMEOUT_S = 300.0
# A next cell that is already waiting is sent within this.
_FOLLOWS_WITHIN_S = 0.02
# Half of what a save may cost at most: the rest is for what it causes in the kernel and the daemon.
_PART_OF_RUN_TIME = 0.025
_PASSES_S = 1.0
_OVER_BUDGET = "OverBudgetError"
_STOPPED = "SaveStoppedError"


class _Save(Protocol):
    """`Keeper.save`."""

    async def __call__(self, cell: str | None, *, number: int, within_budget: bool) -> SavedState: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """One save after a cell.

    Attributes:
        process: the one that ran the cell.
        cell: the cell's label.
        then: gets what was saved.
        failed: gets the reason when the state saved before stands.
        over: called when the next cell need not wait any more.
    """

    process: GpuProcess
    cell: str
    then: Callable[[SavedState], Awaitable[None]]
    failed: Callable[[str], None]
    over: Callable[[], None]


class Saves:
    """At most one save at a time. Everything here runs in the loop's thread."""

    def __init__(self, save: _Save) -> None:
        self._save = save
        self._first: asyncio.Task[None] | None = None
        self._rest: asyncio.Task[None] | None = None
        self._under_way: tuple[GpuProcess, int] | None = None
        self._hurry: asyncio.Event | None = None
        self._run_s = 0.0
        self._cost_s = 0.0

    @property
    def active(self) -> bool:
        """Whether the next cell has to wait for a save."""
        return self._first is not None and not self._first.done() and not self._lets_pass

    @property
    def waiting(self) -> bool:
        """Whether a save waits for idleness, or is made because nobody ran a cell."""
        return self._lets_pass or (self._rest is not None and not self._rest.done())

    @property
    def _lets_pass(self) -> bool:
        return self._hurry is not None and not self._hurry.is_set()

    def cell_ran(self, seconds: float) -> None:
        """A cell took so long."""
        self._run_s += seconds

    def begin(self, wanted: Wanted) -> None:
        """Save now if it costs no more than a save after a cell may, else when nobody has run a cell for a moment."""
        self._first = asyncio.get_running_loop().create_task(self._at_once(wanted))
        self._first.add_done_callback(lambda _: wanted.over())

    async def hurry(self) -> None:
        """Let no cell pass: the one that follows relies on what the last one left. It waits itself."""
        if self._hurry is not None:
            self._hurry.set()

    async def until_over(self) -> None:
        """Until everything is saved, or was given up."""
        if self._hurry is not None:
            self._hurry.set()
        if self._first is not None:
            await asyncio.wait([self._first])
        if self._rest is not None:
            await asyncio.wait([self._rest])

    async def give_way(self) -> None:
        """The process is wanted for something else: a save that was waiting for idleness is left for later."""
        if self._first is not None:
            if self._lets_pass:
                self._first.cancel()
            await asyncio.wait([self._first])
        if self._rest is None or self._rest.done():
            return
        if self._under_way is not None:
            self.stop()
        else:
            self._rest.cancel()
        await asyncio.wait([self._rest])

    def stop(self) -> None:
        """Have the save that is being made stop; what it has not saved stays for the next one."""
        if self._under_way is not None:
            process, number = self._under_way
            process.stop_saves(number)

    async def _at_once(self, wanted: Wanted) -> None:
        if self._cost_s > _PART_OF_RUN_TIME * self._run_s and self._run_s < _PASSES_S:
            self._hurry = asyncio.Event()
            try:
                async with asyncio.timeout(_FOLLOWS_WITHIN_S):
                    await self._hurry.wait()
            except TimeoutError:
                pass  # no cell follows
            finally:
                self._hurry = None
        try:
            await self._done(wanted, within_budget=True)
        except RequestFailed as error:
            if error.ename == _OVER_BUDGET:
                self._rest = asyncio.get_running_loop().create_task(self._when_idle(wanted))
            else:
                wanted.failed("it was interrupted" if error.ename == _STOPPED else str(error))

    async def _when_idle(self, wanted: Wanted) -> None:
        await asyncio.sleep(IDLE_S)
        try:
            await self._done(wanted, within_budget=False)
        except RequestFailed as error:
            # A cell came in between: its own save takes this one's place.
            if error.ename != _STOPPED:
                wanted.failed(str(error))

    async def _done(self, wanted: Wanted, *, within_budget: bool) -> None:
        """Raises RequestFailed; other failures are told."""
        if wanted.process.exited.done():  # another one may be there now, with older variables
            wanted.failed("the GPU process ended before that")
            return
        began = time.monotonic()
        try:
            saved = await self._numbered(wanted, within_budget=within_budget)
        except GpuProcessDied:
            _log.debug("The GPU process %d ended while it saved; the state saved before stands.", wanted.process.pid)
        except TimeoutError:
            wanted.failed(f"it took longer than {TIMEOUT_S:g} s")
        except OSError as error:
            wanted.failed(str(error))
        else:
            self._cost_s, self._run_s = time.monotonic() - began, 0.0
            await wanted.then(saved)

    async def _numbered(self, wanted: Wanted, *, within_budget: bool) -> SavedState:
        """Can be stopped meanwhile."""
        number = wanted.process.next_save()
        self._under_way = wanted.process, number
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._save(wanted.cell, number=number, within_budget=within_budget)
        finally:
            self._under_way = None
