"""Saves behind the replies of cells: at once as far as that is cheap, and the rest when nobody runs a cell.

Small cells that follow each other at once are saved together: a save that would cost more than a fortieth of what
they ran lets the next cell pass if that is there already, and one that costs more than a save after a cell may waits
for a moment without cells. What nothing that ran could touch is left as it was saved, and looked at after some
seconds without a cell. But not for ever: what a killed process can take with it beyond its own cell are cells of
`WITHIN_S`, or of the length of a save, whatever a save costs. What is due is saved by a copy of the process, while
the next cell runs; where the process cannot be copied, the next cell waits. `%gpu` names the cell that was saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nls_jupyter.saved_state import DONE, FAILED
from nls_jupyter.saved_state.manifest import is_beside
from nls_jupyter.supervisor.defaults import WITHIN_S
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.notices import listed
from nls_jupyter.supervisor.pending import RequestFailed
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.kept_state import SavedState

_log = logging.getLogger(__name__)

# Who thinks for so long between two cells does not notice a save.
IDLE_S = 1.0
# After so long without a cell, what a save had left is looked at all the same.
WHOLE_AFTER_S = 5.0
# A save that takes longer is given up; the state saved before stands.
TIMEOUT_S = 300.0
# From here on their user knows of a save that has not ended.
_LATE_S = 30.0
# From here on users notice that cells wait for saves.
_NOTICED_S = 0.1
# A next cell that is already waiting is sent within this.
_FOLLOWS_WITHIN_S = 0.02
# Half of what a save may cost at most: the rest is for what it causes in the kernel and the daemon.
_PART_OF_RUN_TIME = 0.025
# After a save that failed, or was given up by Ctrl-C, none is due for so many times as long as that took.
_PAUSE_PER_FAILURE = 20.0
_LATE = (
    "The variables are being saved after cell {cell} for more than {s:g} s: until that ends, an end of the GPU process "
    "takes along what ran since the save before."
)
_NO_COPY = (
    "A copy of the GPU process, which saves while cells run, did not end as it should: the process saves itself, and "
    "cells wait for that."
)
_OVER_BUDGET = "OverBudgetError"
_STOPPED = "SaveStoppedError"


class _Save(Protocol):
    """`Keeper.save`."""

    async def __call__(self, cell: str | None, *, number: int, within_budget: bool) -> SavedState: ...


class _SaveAside(Protocol):
    """`GpuProcess.save_aside`."""

    async def __call__(self, process: GpuProcess, cell: str) -> asyncio.Future[str]: ...


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
    """At most one save at a time. Everything here runs in the loop's thread.

    Args:
        save: saves.
        save_aside: has a copy of the process save.
        tell: gets what the user has to know, as a sentence, perhaps more than once.
        clock: seconds.

    Attributes:
        within_s: when a save is due that was put off so far; infinite for never.
    """

    def __init__(
        self,
        save: _Save,
        save_aside: _SaveAside,
        tell: Callable[[str], None],
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._save = save
        self._save_aside = save_aside
        self._tell = tell
        self._clock = clock
        self._first: asyncio.Task[None] | None = None
        self._rest: asyncio.Task[None] | None = None
        self._under_way: tuple[GpuProcess, int] | None = None
        self._copy: asyncio.Task[bool] | None = None
        self._copying = False
        self._left = False
        self._last: Wanted | None = None
        self._hurry: asyncio.Event | None = None
        self._relied_on = self._gives_way = False
        self._run_s = 0.0
        self._cost_s = 0.0
        self._unsaved_since = math.inf
        self._not_due_before = -math.inf
        self.within_s = WITHIN_S

    @property
    def active(self) -> bool:
        """Whether the next cell has to wait for a save: the one behind the cell before it, or one that is due."""
        if self._lets_pass:
            return False
        waits_for_rest = self._relied_on or self._copying or (self._due and not self._can_be_copied)
        return _runs(self._first) or (_runs(self._rest) and waits_for_rest)

    @property
    def waiting(self) -> bool:
        """Whether a save waits for idleness, or is made because nobody ran a cell."""
        return self._lets_pass or _runs(self._rest)

    @property
    def _can_be_copied(self) -> bool:
        return self._last is not None and self._last.process.can_be_copied

    @property
    def _lets_pass(self) -> bool:
        return self._hurry is not None and not self._hurry.is_set()

    @property
    def _due_in_s(self) -> float:
        return max(self._unsaved_since + self.within_s, self._not_due_before) - self._clock()

    @property
    def _due(self) -> bool:
        """Whether what is not saved must not wait any longer."""
        return self._due_in_s <= 0.0

    def summary(self, manifest: Manifest, *, runs: bool) -> str:
        """One sentence for the user: what is saved, what that cost, and, where a process `runs`, what its kill can."""
        took = f", which took {self._cost_s:.1f} s" if self._cost_s >= _NOTICED_S else ""
        bound = f"; a kill takes at most {self.within_s:g} s of cells before its own with it"
        missing = [name.name for name in manifest.missing if not is_beside(name.name)]
        without = f", without {listed(missing)} (%gpu vars says why)" if missing else ""
        bound = bound if runs and self.within_s < math.inf else ""
        return f"The variables are saved as of cell {manifest.cell}{without}{took}{bound}."

    def cell_ran(self, seconds: float) -> None:
        """A cell took so long, and is not saved yet."""
        self._run_s += seconds
        self._unsaved_since = min(self._unsaved_since, self._clock() - seconds)

    def all_saved(self) -> None:
        """There is nothing any more that was not saved."""
        self._run_s, self._unsaved_since, self._not_due_before = 0.0, math.inf, -math.inf

    def begin_anew(self) -> None:
        """Its user gives up what is not saved: nothing has to be said of it."""
        self.all_saved()
        self._last = None

    def begin(self, wanted: Wanted) -> None:
        """Save now if it is due, or costs no more than a save after a cell may; else when no cell runs for a moment."""
        self._relied_on = self._gives_way = False
        self._last = wanted
        self._first = asyncio.get_running_loop().create_task(self._at_once(wanted))
        self._first.add_done_callback(lambda _: wanted.over())

    async def hurry(self) -> None:
        """Let no cell pass: the one that follows relies on what the last one left. It waits itself."""
        self._relied_on = True
        if self._hurry is not None:
            self._hurry.set()

    async def until_over(self) -> None:
        """Until everything is saved, or was given up."""
        await self.hurry()
        if self._first is not None:
            await asyncio.wait([self._first])
        if self._rest is not None:
            await asyncio.wait([self._rest])
        if self._copy is not None:
            await asyncio.wait([self._copy])

    async def give_way(self) -> None:
        """The process is wanted for something else: a save that was waiting for idleness is left for later."""
        if self._lets_pass and not self._due:
            self._drop()
            return
        if self._first is not None:
            if self._lets_pass:
                self._first.cancel()
            await asyncio.wait([self._first])
        if self._rest is None or self._rest.done():
            return
        self._gives_way = True
        if self._under_way is not None:
            self.stop()
        elif not self._copying:
            self._rest.cancel()
        await asyncio.wait([self._rest])

    def _drop(self) -> None:
        """A save that only waits is as if it had never been: nothing of it is left to wait for."""
        for task in (self._first, self._rest):
            if task is not None:
                task.cancel()
        self._first = self._rest = self._hurry = None

    def stop(self) -> None:
        """Have the save that is being made stop; what it has not saved stays for the next one."""
        if self._under_way is not None:
            process, number = self._under_way
            process.stop_saves(number)

    async def _at_once(self, wanted: Wanted) -> None:
        if self._cost_s > _PART_OF_RUN_TIME * self._run_s and not self._due:
            await self._let_pass(_FOLLOWS_WITHIN_S)
        copied = _runs(self._copy)  # any other save would end it
        if not copied and await self._tried(wanted):
            if not self._left:
                return
            rest = self._whole(wanted)
        else:
            made_aside = self._due and await self._made_aside(wanted)
            rest = self._after_copy(wanted) if made_aside else self._when_idle(wanted)
        self._rest = asyncio.get_running_loop().create_task(rest)
        self._rest.add_done_callback(lambda _: wanted.over())

    async def _tried(self, wanted: Wanted) -> bool:
        """Save within the budget, unless it is due and no copy can. False where the budget does not suffice."""
        try:
            await self._done(wanted, within_budget=not self._due or wanted.process.can_be_copied)
        except _OverBudgetError:
            return False
        return True

    async def _whole(self, wanted: Wanted) -> None:
        """Look at everything, unless a cell comes, or somebody relies on what is saved already."""
        if not self._relied_on:
            await self._let_pass(WHOLE_AFTER_S)
        if not self._relied_on:
            await self._done(wanted, within_budget=False)

    async def _after_copy(self, wanted: Wanted) -> None:
        """Save what a copy could not, unless a cell comes."""
        copy = self._copy
        if copy is not None:
            await self._let_pass(math.inf, until=copy)
            if not await asyncio.shield(copy):
                await self._when_idle(wanted)

    async def _when_idle(self, wanted: Wanted) -> None:
        if not self._relied_on:
            if self._copy is not None and not self._copy.done():
                await self._let_pass(math.inf, until=self._copy)
            if not self._due:  # or the next cell would pass
                await self._let_pass(min(IDLE_S, self._due_in_s))
            # A cell that comes now would wait until the process's own save has stopped, and then for the copy.
            if self._due and await self._made_aside(wanted):
                await self._after_copy(wanted)
                return
        if not await self._done(wanted, within_budget=False) and self._due:
            await self._made_aside(wanted)  # the cell that it gave way to may be a long one

    async def _made_aside(self, wanted: Wanted) -> bool:
        """Have a copy of the process save. False where it cannot be copied, or has a copy at work."""
        process = wanted.process
        if _runs(self._copy) or not process.can_be_copied or process.exited.done():
            return False
        self._copying = True
        try:
            async with asyncio.timeout(TIMEOUT_S):
                with self._told_when_late(wanted):
                    over = await self._save_aside(process, wanted.cell)
        except (RequestFailed, GpuProcessDied, OSError) as error:
            _log.debug("The GPU process %d saves itself, and no copy of it: %s", process.pid, error)
            return False
        finally:
            self._copying = False
        since, self._unsaved_since, self._run_s = self._unsaved_since, math.inf, 0.0
        self._copy = asyncio.get_running_loop().create_task(self._followed(wanted, over, since))
        return True

    async def _followed(self, wanted: Wanted, over: asyncio.Future[str], since: float) -> bool:
        """Until the copy has ended. Whether it has saved."""
        began = self._clock()
        with self._told_when_late(wanted):
            how = await over
        if how == FAILED:
            self._tell(_NO_COPY)
        if how != DONE:
            self._unsaved_since = min(self._unsaved_since, since)
            return False
        self._cost_s = self._clock() - began
        wanted.over()
        return True

    async def _let_pass(self, seconds: float, until: asyncio.Task[bool] | None = None) -> None:
        """Until no cell follows for so long, or one that relies on what is saved; or `until` is over."""
        self._hurry = hurry = asyncio.Event()
        if until is not None:
            until.add_done_callback(lambda _: hurry.set())
        try:
            async with asyncio.timeout(seconds if seconds < math.inf else None):
                await hurry.wait()
        except TimeoutError:
            pass
        finally:
            if self._hurry is hurry:
                self._hurry = None

    async def _done(self, wanted: Wanted, *, within_budget: bool) -> bool:
        """Failures are told. False: it gave way to a cell, or a suspend. Raises _OverBudgetError."""
        if wanted.process.exited.done():  # another one may be there now, with older variables
            if wanted is self._last:
                wanted.failed("the GPU process ended before that")
            return True
        began, self._left = self._clock(), False
        try:
            saved = await self._numbered(wanted, within_budget=within_budget)
        except GpuProcessDied:
            _log.debug("The GPU process %d ended while it saved; the state saved before stands.", wanted.process.pid)
        except (RequestFailed, TimeoutError, OSError) as error:
            if isinstance(error, RequestFailed) and error.ename == _OVER_BUDGET:
                raise _OverBudgetError from None
            if self._gives_way and was_stopped(error):
                return (
                    False  # a cell came in between, and its own save takes this one's place; or a suspend, which saves
                )
            now = self._clock()
            self._not_due_before = now + _PAUSE_PER_FAILURE * (now - began)
            wanted.failed(why_not(error))
        else:
            self._cost_s, self._left = self._clock() - began, saved.manifest.left > 0
            await wanted.then(saved)
        return True

    async def _numbered(self, wanted: Wanted, *, within_budget: bool) -> SavedState:
        """Can be stopped meanwhile."""
        number = wanted.process.next_save()
        self._under_way = wanted.process, number
        try:
            async with asyncio.timeout(TIMEOUT_S):
                with self._told_when_late(wanted):
                    return await self._save(wanted.cell, number=number, within_budget=within_budget)
        finally:
            self._under_way = None

    @contextlib.contextmanager
    def _told_when_late(self, wanted: Wanted) -> Iterator[None]:
        late = asyncio.get_running_loop().call_later(_LATE_S, self._tell, _LATE.format(cell=wanted.cell, s=_LATE_S))
        try:
            yield
        finally:
            late.cancel()


class _OverBudgetError(Exception):
    """The save costs more than one after a cell may."""


def was_stopped(error: Exception) -> bool:
    """Whether a save failed because this side had it stopped."""
    return isinstance(error, RequestFailed) and error.ename == _STOPPED


def why_not(error: Exception) -> str:
    """Why a save failed, as its user reads it."""
    if isinstance(error, TimeoutError):
        return f"it took longer than {TIMEOUT_S:g} s"
    return "it was interrupted" if was_stopped(error) else str(error)


def _runs(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and not task.done()
