"""Keeps one GPU process at a time and what it saved, for one notebook. Knows nothing of the daemon.

Everything here runs in the loop's thread. The kernel never unpickles saved state: it holds the memory file that the
GPU process wrote, so that the state outlives that process and ends with this kernel, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import DEAD_GPU, SavedStateDamagedError, empty, read_manifest
from nls_jupyter.supervisor.channel import GpuProcess
from nls_jupyter.supervisor.coming_back import ComingBack
from nls_jupyter.supervisor.completed import Completed
from nls_jupyter.supervisor.freezer import Freezer
from nls_jupyter.supervisor.kept_state import SavedState
from nls_jupyter.supervisor.launch import GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.lineage import Lineage
from nls_jupyter.supervisor.notices import without_room
from nls_jupyter.supervisor.pending import RequestFailed
from nls_jupyter.supervisor.saving import Saves, Wanted
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.supervisor.ahead import Ahead
    from nls_jupyter.supervisor.kept_state import Restored
    from nls_jupyter.supervisor.launch import ExitStatus
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.standby import Standby

_log = logging.getLogger(__name__)

# Guardian and command exist after this, or something is badly wrong with the machine.
_LAUNCH_TIMEOUT_S = 60.0


class EndedInCell(Exception):  # noqa: N818 - says what happened
    """The GPU process ended before the cell did.

    Attributes:
        ordered: why it was ended on purpose; `None` for an end of its own.
        begun: whether it had begun the cell: if not, another process can run it as if nothing had happened.
    """

    def __init__(self, status: ExitStatus, ordered: str | None, *, begun: bool = True) -> None:
        super().__init__(f"the GPU process {status.describe()}")
        self.begun = begun
        self.status = status
        self.ordered = ordered


class Keeper:
    """The GPU process that is there now, if one is, and the saved state that stands.

    Attributes:
        saves: what is saved after cells.
        freezer: has the driver freeze the process.
        standby: where the next process comes from, if one stands ready.
        ahead: where the first one comes from, if that was started with the kernel.
        process: `None` without one; set from its launch until nothing of it is left.
        usable: whether cells can be sent to `process`; ask `still_usable` before sending one.
        saved: the saved state; `None` when nothing was saved.
        completed: which cells are not in it.
        lineage: which cell made what.
        coming_back: what came back of it, and what is still to.
        ordered_end: why the process was ended on purpose; `None` for an end of its own.
        on_memory_wanted: gets the process, and what an allocation there lacks; see `GpuProcess`.
        on_notice: see `GpuProcess`.
        on_new: gets each process that is new, before anything is restored there.
    """

    def __init__(
        self,
        directory: Callable[[], Path],
        forward: Callable[[Message], None],
        on_own_end: Callable[[GpuProcess, ExitStatus], Awaitable[None]],
        on_save_point: Callable[[SavedState], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._directory = directory
        self._forward = forward
        self._on_own_end = on_own_end
        self._on_save_point = on_save_point
        self._telling: set[asyncio.Task[None]] = set()
        # An end that comes in the middle of a launch waits for it: or the new process would be nobody's.
        self._launching = asyncio.Lock()
        self._cell: asyncio.Task[Message] | None = None
        self._leaving: asyncio.Task[SavedState] | None = None
        self._following: asyncio.Task[None] | None = None
        self._answers = False
        self._allowance_bytes: int | None = None
        self._suspending: tuple[GpuProcess, int] | None = None
        self._given_up = False
        self.saves = Saves(self.save, self._save_aside, self._notice)
        self.freezer = Freezer()
        self.standby: Standby | None = None
        self.ahead: Ahead | None = None
        self.process: GpuProcess | None = None
        self.usable = False
        self.saved: SavedState | None = None
        self.completed = Completed()
        self.lineage = Lineage()
        self.coming_back = ComingBack(self.lineage.maker, lambda: self.ordered_end is not None)
        self.ordered_end: str | None = None
        self.on_memory_wanted: Callable[[GpuProcess, Message], None] | None = None
        self.on_notice: Callable[[str], None] | None = None
        self.on_new: Callable[[GpuProcess], Awaitable[None]] | None = None

    @property
    def executing(self) -> bool:
        """Whether a cell runs in the GPU process, whoever waits for it."""
        return self._cell is not None

    @property
    def held_by_driver(self) -> bool:
        """Whether the driver may hold the process, which must not be killed then."""
        return self.process is not None and self.freezer.holds(self.process)

    @property
    def last_cell(self) -> str | None:
        """The cell whose variables the process has now."""
        unsaved = self.completed.unsaved
        return unsaved[-1] if unsaved else None if self.saved is None else self.saved.manifest.cell

    @property
    def there(self) -> GpuProcess:
        """`process`, for what only those ask who know that there is one: raises RuntimeError without."""
        if self.process is None:
            raise RuntimeError("there is no GPU process")
        return self.process

    def still_usable(self) -> bool:
        """Whether a cell can be sent now. Asks the system: the news of an end takes a moment."""
        if self.usable and self.process is not None:
            self.usable = self.process.alive
        return self.usable

    @property
    def has_died(self) -> bool:
        """Whether the process is dead, and nobody here ended it: that its end will tell. Asks the system, too."""
        return self.process is not None and self.ordered_end is None and not self.process.alive

    async def launch(self, environment: Mapping[str, str | None], arguments: Sequence[str] = ()) -> GpuProcess:
        """Start a process; it is not usable before `bring_back`. Raises LaunchFailed."""
        if self.has_died and self._following is not None:
            await asyncio.shield(self._following)  # its end is told first, and not taken for one that was ordered
        await self.end("another GPU process takes its place")
        async with self._launching:
            self.ordered_end, self._allowance_bytes, self._answers = None, None, False
            try:
                async with asyncio.timeout(_LAUNCH_TIMEOUT_S):
                    self.process = await self._adopted(environment) or await GpuProcess.launch(
                        environment=environment,
                        directory=self._directory(),
                        forward=self._forward,
                        on_save_point=self.take_save_point,
                        arguments=arguments,
                    )
            except TimeoutError:
                raise LaunchFailed(f"the GPU process did not start within {_LAUNCH_TIMEOUT_S:g} s") from None
            self.process.on_memory_wanted = functools.partial(self._memory_wanted, self.process)
            self.process.on_notice = self.on_notice
            return self.process

    async def _adopted(self, environment: Mapping[str, str | None]) -> GpuProcess | None:
        if self.standby is not None and (ready := await self.standby.take(environment)) is not None:
            return ready
        started = None if self.ahead is None else await self.ahead.take(environment)
        return None if started is None else await GpuProcess.of(started, self._forward, self.take_save_point)

    async def drop_standby(self) -> None:
        """End the process that stands by, or was started ahead: the next one starts cold."""
        if self.ahead is not None:
            await self.ahead.end()
        if self.standby is not None:
            await self.standby.end()

    async def bring_back(self, process: GpuProcess, allowance_bytes: int | None) -> Restored:
        """Until `process` answers, follows its allowance and has the saved variables again.

        Raises:
            LaunchFailed, GpuProcessDied: it ended before.
            RequestFailed, OSError: the saved state could not be restored; it stands.
        """
        began = monotonic_s()
        await process.ready()
        self._answers = True
        await self.follow_allowance(allowance_bytes)
        if self.on_new is not None:
            await self.on_new(process)
        self._look_again()
        saved = self.saved
        report = await self.coming_back.restore(process, saved)
        if self.ordered_end is not None:
            raise LaunchFailed(f"it was ended while it started: {self.ordered_end}")
        self.usable = True
        self.saves.all_saved()
        self._following = asyncio.get_running_loop().create_task(self._follow_end(process))
        return self.coming_back.told(saved, report, monotonic_s() - began, self.completed.take())

    async def follow_allowance(self, allowance_bytes: int | None) -> None:
        """Tell the process how much it may hold, unless it knows. One that only starts is told when it answers."""
        process = self.process
        if process is None or not self._answers or not allowance_bytes or allowance_bytes == self._allowance_bytes:
            return
        self._allowance_bytes = allowance_bytes
        try:
            await process.follow_allowance(allowance_bytes)
        except (GpuProcessDied, TimeoutError):
            return  # a process that is busy hears of it later
        except RequestFailed as error:
            _log.warning("The GPU process does not follow its allowance: %s", error)

    async def trim(self) -> int | None:
        """Have allocators give back what they cache; also in mid-cell. Returns the bytes; `None`: no answer."""
        if self.process is not None and self.usable:
            try:
                return await self.process.trim()
            except (GpuProcessDied, TimeoutError):
                pass
            except RequestFailed as error:
                _log.warning("The GPU process does not give its caches back: %s", error)
        return None

    def _notice(self, text: str) -> None:
        if self.on_notice is not None:
            self.on_notice(text)

    def _memory_wanted(self, process: GpuProcess, question: Message) -> None:
        if self.on_memory_wanted is not None and process is self.process:
            self.on_memory_wanted(process, question)

    async def reclaim(self, reason: str, grace_s: float) -> bool:
        """Interrupt the running cell with `GpuReclaimed`; it then has `grace_s` seconds. False: no cell runs.

        A cell that holds the GIL is told when it lets go, and this returns then.
        """
        if self.process is None or not self.executing:
            return False
        try:
            return await self.process.reclaim(reason, grace_s)
        except GpuProcessDied:
            return False

    def begin(
        self,
        code: str,
        then: Callable[[], Awaitable[None]],
        sent: Callable[[], None] = lambda: None,
        answered: Callable[[Message], None] | None = None,
        **options: Any,
    ) -> asyncio.Task[Message]:
        """Send a cell to the usable process. It goes on there whether or not anybody waits for the task.

        Args:
            code: the cell's source.
            then: called when it is over, however it ended.
            sent: called when it is being sent. Must not block, nor must the next.
            answered: gets the execute reply at once, in front of `then`.
            options: as `GpuProcess.execute` takes them; `cell`, its label, is needed.

        Returns:
            A task for the execute reply, which raises EndedInCell.
        """
        if self.process is None or not self.usable or self._cell is not None:
            raise RuntimeError("a cell was sent while no GPU process can take one")
        self._cell = asyncio.get_running_loop().create_task(
            self._run_cell(self.process, code, then, sent, answered, options)
        )
        self._cell.add_done_callback(_take_note)
        return self._cell

    async def _run_cell(
        self,
        process: GpuProcess,
        code: str,
        then: Callable[[], Awaitable[None]],
        sent: Callable[[], None],
        answered: Callable[[Message], None] | None,
        options: Mapping[str, Any],
    ) -> Message:
        began = monotonic_s()
        try:
            asyncio.get_running_loop().call_soon(sent)  # another thread goes on with it: not while this one sends
            reply = await process.execute(code, **options)
            if (why := reply["content"].pop(DEAD_GPU, None)) is not None:
                # Before another cell can be sent there. That this one is over is told first: it did not die with it.
                self.usable = False
                await then()
                then = _nothing
                await self._end_dead(process, why)
            if answered is not None:
                answered(reply)
            self.completed.ran(options["cell"])
            if reply["content"]["status"] == "ok":
                self.lineage.ran(options["cell"], code)
            elif reply["content"].get("ename") == NameError.__name__:
                self.coming_back.name_error(reply["content"]["evalue"])
            await asyncio.sleep(0)  # whoever waits for the answer in another thread goes on, and the rest follows
            return reply
        except GpuProcessDied as died:
            if self.process is process:
                self.usable = False
            self._look_again()
            begun = process.began_last(options["msg_id"])
            raise EndedInCell(died.status, self.ordered_end, begun=begun) from None
        finally:
            self._cell = None
            self.saves.cell_ran(monotonic_s() - began)
            await then()

    def _look_again(self) -> None:
        """The dead process may have finished a save whose message was lost with it."""
        if self.saved is None:
            return
        with contextlib.suppress(OSError, SavedStateDamagedError):
            manifest = read_manifest(self.saved.descriptors)
            if manifest != self.saved.manifest:
                self.saved = SavedState(self.saved.descriptors, manifest)
                self.completed.saved(manifest.cell)
                self.coming_back.saved_anew(manifest)

    async def cell_over(self) -> None:
        """Until no cell runs."""
        if self._cell is not None:
            await asyncio.wait([self._cell])

    def save_soon(
        self,
        cell: str,
        then: Callable[[SavedState], Awaitable[None]],
        failed: Callable[[str], None],
        over: Callable[[], None],
    ) -> None:
        """Save behind the cell's reply; see `saving.Wanted`."""
        if self.usable and self.process is not None:
            self.saves.begin(Wanted(self.process, cell, then, failed, over))

    def interrupt(self) -> None:
        """SIGINT for the cell that the process runs now, and for what that has started."""
        if self.process is not None:
            self.process.interrupt()

    async def save(
        self,
        cell: str | None,
        *,
        process: GpuProcess | None = None,
        number: int | None = None,
        within_budget: bool = False,
    ) -> SavedState:
        """Save now. Raises RequestFailed, GpuProcessDied or OSError; then the state saved before stands.

        Args:
            cell: the last cell whose variables these are.
            process: what holds them, if not the process that is there now.
            number: from `GpuProcess.next_save`, where it may be stopped.
            within_budget: give up when it costs more than a save after a cell may.
        """
        process = process or self.there
        try:
            descriptors, manifest = await process.save(cell=cell, number=number, within_budget=within_budget)
        except RequestFailed as error:
            if error.ename == DEAD_GPU:
                raise GpuProcessDied(await self._end_dead(process, error.evalue)) from None
            raise
        saved = self.hold(descriptors, manifest)
        self.saves.all_saved()
        return saved

    async def _end_dead(self, process: GpuProcess, why: str) -> ExitStatus:
        """End a process whose Gpu answers it no more: without it, the next one has the Gpu and what was saved."""
        if process is self.process:
            self.usable = False
        process.kill(f"was ended, as its GPU answers it no more since an error ({why})")
        return await asyncio.shield(process.exited)

    async def _save_aside(self, process: GpuProcess, cell: str) -> asyncio.Future[str]:
        return await process.save_aside(cell=cell)

    @property
    def suspending(self) -> bool:
        """Whether a suspend is under way."""
        return self._leaving is not None

    async def suspend(self) -> SavedState:
        """Save everything, then end the process; who asks while that is under way waits for the same.

        It goes on whether or not anybody waits for it; `give_up_suspend` makes one that takes too long fail.

        Raises:
            RequestFailed, GpuProcessDied, OSError: nothing was given up; a process that still lives goes on. So does
                one of which something could be saved if only there were more room.
        """
        if self._leaving is None:
            process, self.usable, self._given_up = self.there, False, False
            self._leaving = asyncio.get_running_loop().create_task(self._suspend(process))
            self._leaving.add_done_callback(self._left)
        return await asyncio.shield(self._leaving)

    def _left(self, task: asyncio.Task[SavedState]) -> None:
        self._leaving = self._suspending = None
        _take_note(task)

    async def _suspend(self, process: GpuProcess) -> SavedState:
        try:
            await self.saves.give_way()
            # Not before: one that begins meanwhile is stopped, and all that are numbered before it with it.
            number = process.next_save()
            self._suspending = process, number
            if self._given_up:
                process.stop_saves(number)
            saved = await self.save(self.last_cell, process=process, number=number)
            _refuse_losses(saved.manifest)
        except BaseException:
            self.usable = self.process is process and self.ordered_end is None
            self.still_usable()
            raise
        await self.end("suspended", lambda there: there.flush_files())
        return saved

    def give_up_suspend(self) -> None:
        """Have the save of a suspend that is under way stop, however far that is."""
        if self._leaving is not None:
            self._given_up = True
            self.saves.stop()  # it may still wait for another one
        if self._suspending is not None:
            process, number = self._suspending
            process.stop_saves(number)

    async def end(
        self, reason: str, farewell: Callable[[GpuProcess], Awaitable[None]] | None = None
    ) -> GpuProcess | None:
        """End the process, with all that it started, and wait until they are gone. Returns it, if there was one.

        `farewell` is what it may still do before.
        """
        self.usable = False
        async with self._launching:
            process = self.process
            if process is None:
                return None
            self.ordered_end = self.ordered_end or reason
            await self.freezer.unlock(process)
            try:
                if farewell is not None:
                    await farewell(process)
            finally:
                process.kill()
        await asyncio.shield(process.exited)
        if self.process is process:
            self.process = None
        return process

    def take_save_point(self, descriptors: tuple[int, ...], manifest: Manifest) -> None:
        """The process has saved in mid-cell, or a copy of it while it went on."""
        saved = self.hold(descriptors, manifest)
        if not self.completed.unsaved:
            self.saves.all_saved()
        if self._on_save_point is not None:
            telling = asyncio.get_running_loop().create_task(self._on_save_point(saved))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)

    def hold(self, descriptors: tuple[int, ...], manifest: Manifest) -> SavedState:
        """This is the saved state from now on, and its descriptors are the keeper's to close."""
        self.drop_saved()
        self.saved = SavedState(descriptors, manifest)
        self.completed.saved(manifest.cell)
        self.coming_back.saved_anew(manifest)
        return self.saved

    def begin_anew(self) -> None:
        """The next process starts empty, as its user wishes."""
        self.drop_saved()
        self.saves.begin_anew()
        self.completed.take()
        self.lineage.forget()
        self.coming_back.begin_anew()

    def give_back_saved(self) -> None:
        """Forget what was saved; its memory is free at once, although the process that saved it holds the files too."""
        if self.saved is not None:
            if self.process is not None:
                self.process.drop_saves(self.saved.descriptors)
            empty(self.saved.descriptors)
        self.drop_saved()

    def drop_saved(self) -> None:
        """Forget what was saved; what nobody else holds is free at once."""
        if self.saved is not None:
            for descriptor in self.saved.descriptors:
                os.close(descriptor)
            self.saved = None

    async def _follow_end(self, process: GpuProcess) -> None:
        status = await asyncio.shield(process.exited)
        if self.process is process and self.ordered_end is None:
            self.process, self.usable = None, False
            await self._on_own_end(process, status)


def _refuse_losses(manifest: Manifest) -> None:
    """Raises OSError where more could be saved if there were more room."""
    if (lost := without_room(manifest)) is not None:
        raise OSError(f"there is no room to save {lost}")


async def _nothing() -> None:
    """Has been done."""


def _take_note(task: asyncio.Task[Any]) -> None:
    """Nobody may be waiting any more for how it ended; that is no defect."""
    if not task.cancelled():
        task.exception()
