"""Carries out what the daemon orders for one workload, and tells the daemon what has become of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nls_jupyter.supervisor import notices
from nls_jupyter.supervisor.launch import GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.memory_guard import no_room
from nls_jupyter.supervisor.memory_questions import MemoryQuestions
from nls_jupyter.supervisor.pending import RequestFailed
from nls_jupyter.supervisor.saving import why_not
from nls_jupyter.supervisor.standing import Standing
from nls_jupyter.supervisor.tasks import Tasks
from nls_scheduler.client.link import Report
from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.wire.errors import DaemonUnreachable, Problem
from nls_scheduler.wire.protocol import CommandMessage, ErrorMessage, ViewMessage, beside_users

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.kept_state import Restored, SavedState
    from nls_jupyter.supervisor.launch import ExitStatus
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.wire.protocol import DaemonMessage

_log = logging.getLogger(__name__)

# A link that has to connect anew tries it once a second.
_CAUGHT_UP_WITHIN_S = 5.0
# A kernel that stood still and goes on hears of its process's end and of what the daemon ordered meanwhile at once.
_MEANWHILE_S = 0.2
# A try that fails takes as long at least.
_TRY_TAKES_S = 2.0
# The notebook's own cell among what keeps the workload executing: one at a time.
_CELL = "cell"
_NOT_IN_TIME = "that did not end in time"

CANNOT_SAVE = (RequestFailed, OSError)
_CANNOT_START = (LaunchFailed, GpuProcessDied, *CANNOT_SAVE)


class Orders:
    """One workload of this notebook, from its submission to its end. Everything runs in the loop's thread.

    A workload that its notebook has given up keeps its orders to itself: they never touch a later one's process.

    Attributes:
        id: the daemon's name for the workload.
        view: its status entry, as last received.
        over: its notebook has given it up; only its end is still answered.
        given_up: who ended it from outside, as the daemon tells; `None`: nobody so far.
        departure: the last way off a Gpu, until its user has read of the return; also that of the workload before.
        standing: its running cell, if that stands still.
        why_not_suspended: why the last suspend failed; `None` once somebody asks for another one.
    """

    def __init__(
        self,
        client: DaemonClient,
        view: Mapping[str, Any],
        keeper: Keeper,
        log: notices.NoticeLog,
        on_change: Callable[[], None],
        departure: notices.Departure | None = None,
        on_stands: Callable[[], None] = lambda: None,
    ) -> None:
        self._keeper = keeper
        self._log = log
        self._on_change = on_change
        self._done_command = 0
        self._open: set[str] = set()
        self.departure = self._stayed = departure
        self._suspended_by = 0
        self.why_not_suspended: str | None = None
        self._exit_told: GpuProcess | None = None
        self._saved_told: SavedState | None = None
        self._was_ready: GpuProcess | None = None
        self._stop_reason = ""
        self._stop_came = asyncio.Event()
        self._tasks = Tasks(self._failed)
        self.id: str = view["id"]
        self.view = view
        self.over = False
        self.given_up: str | None = None
        self._link = client.supervise(self.id, self._report, only=True)
        self.standing = Standing(keeper, log, self._tell, self._end_lost, on_stands)
        self._questions = MemoryQuestions(self._tell, lambda: self.connected and not self.over)
        keeper.on_memory_wanted = self._pass_on

    @property
    def connected(self) -> bool:
        """Whether the daemon can be reached now."""
        return self._link.connected

    async def follow(self) -> str:
        """Carry out the daemon's orders until the workload has ended. Returns why it has."""
        try:
            async with self._link as link:
                async for message in link:
                    await self._take(message)
        except (Problem, DaemonUnreachable) as problem:
            return str(problem)
        self.given_up = link.ended_because
        return self.given_up or "the node's daemon ended it"

    # What the notebook tells

    async def tell_cell_started(self, which: str = _CELL) -> None:
        """A cell wants the GPU process, or runs in it; a widget's callback, with a name of its own, is one too."""
        news = which == _CELL or not self._open
        self._open.add(which)
        if news:
            await self._tell("cell_started")

    async def tell_cell_finished(self, which: str = _CELL) -> None:
        """It has ended, or no longer waits. The daemon hears of it when no other one is open."""
        self._open.discard(which)
        if not self._open:
            await self._tell("cell_finished")

    async def tell_saved(self, saved: SavedState) -> None:
        """The variables were saved after a cell."""
        self._saved_told = saved
        await self._tell("state_saved", saved_bytes=saved.manifest.gpu_bytes)

    async def _tell_what_is_saved(self) -> None:
        """What a process that has ended comes back with: save points and what a stop has saved were not told yet."""
        saved = self._keeper.saved
        if saved is not None and saved is not self._saved_told:
            await self.tell_saved(saved)

    async def tell_lost(self, reason: str, missing: Sequence[str], cells: Sequence[str]) -> None:
        """The kernel ends, and this ends with it; returns when that is on its way, if the daemon is there."""
        await self._tell("variables_lost", reason=reason, missing=list(missing), lost_cells=list(cells))
        if self.connected:
            await self.caught_up()

    async def tell_exit(self, process: GpuProcess, reason: str) -> None:
        """Nothing of `process` is left. Told once: a second time it could be taken for the next process's end."""
        if self._exit_told is not process:
            self._exit_told = process
            await self._tell_what_is_saved()
            await self._tell("process_exited", pid=process.pid, start_time=process.start_time, reason=reason)

    def hurry(self) -> None:
        """Have the daemon hear at once what was told it; see `caught_up` for who has to wait for that."""
        self._link.hurry()

    async def caught_up(self) -> None:
        """Until the daemon hears what was told it; one that is away is not waited for long.

        A cell that it hears of only after it was asked for a suspend would wake up what was suspended.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CAUGHT_UP_WITHIN_S):
                await self._link.all_sent()

    async def ended_by_itself(self, process: GpuProcess, status: ExitStatus) -> None:
        """Nobody here ended `process`."""
        self._depart(f"the GPU process {status.describe()}", died=True)
        await self.tell_exit(process, status.describe())
        self._tasks.spawn(self._told_by_the_daemon(self.departure, status))

    async def _told_by_the_daemon(self, departure: notices.Departure | None, status: ExitStatus) -> None:
        """What a signal says of an end is a guess; the daemon knows better."""
        if (stop := await self.stop_behind(status)) is not None:
            why = f"the GPU process was ended by the node's daemon, as this kernel did not answer: {stop}"
            self._log.add(f"{why[0].upper()}{why[1:]}.")
            if departure is not None and self.departure is departure:
                self.departure = replace(departure, why=why)

    async def stop_behind(self, status: ExitStatus) -> str | None:
        """Why the daemon wanted a process gone that ended with `status`; `None`: it did not, as far as is known.

        What nobody here stops in time the daemon kills itself.
        """
        if status.signal != signal.SIGKILL:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MEANWHILE_S):
                await self._stop_came.wait()
        return self._stop_reason if self._stop_came.is_set() else None

    def forget_departure(self) -> None:
        """Whatever comes back next does not come back from there."""
        self.departure = None

    # What the daemon orders

    async def _take(self, message: DaemonMessage) -> None:
        match message:
            case ViewMessage(view=view):
                self.view = view
                self._tasks.spawn(self._follow(view))
                self._on_change()
            case CommandMessage() if message.command_id > self._done_command:
                self._done_command = message.command_id
                self._tasks.spawn(self._carry_out(message))
            case ErrorMessage(problem=problem):
                _log.error("The daemon refused a message of this kernel: %s", problem)

    async def _follow(self, view: Mapping[str, Any]) -> None:
        """The allowance first: an allocation that is granted is tried again within it."""
        await self._keeper.follow_allowance(view["allowance_bytes"])
        await self._questions.answer(view.get("memory_answer"))
        await self.standing.test(view)

    async def _carry_out(self, command: CommandMessage) -> None:
        match command.command:
            case "start_process":
                await self._start(command)
            case "suspend_process":
                await self._suspend(command)
            case "stop_process":
                await self._stop(command)
            case "trim_memory":
                await self._keeper.trim()
                await self._tell("memory_trimmed", command_id=command.command_id)
            case "interrupt_cell":
                await self._interrupt_cell(command)
            case "freeze_process":
                await self.standing.freeze(command, self.view)
            case "thaw_process":
                await self.standing.thaw(command)
        self._on_change()

    async def _start(self, command: CommandMessage) -> None:
        if self.over:
            return
        began = monotonic_s()
        if (why := no_room()) is not None:
            await self._not_started(command, why, began)
            return
        await self._leave_first()
        self._keeper.freezer.serve(command.environment)
        try:
            ordered = beside_users(command.environment, os.environ)
            process = await self._keeper.launch({**ordered, "NLS_WORKLOAD": self.id})
            await self._tell(
                "process_started", command_id=command.command_id, pid=process.pid, start_time=process.start_time
            )
            restored = await self._keeper.bring_back(process, self.view["allowance_bytes"])
        except _CANNOT_START as error:
            # Whoever ended it on purpose tells the daemon.
            if self._keeper.ordered_end is None:
                await self._keeper.end("it did not start")
                output = error.output if isinstance(error, LaunchFailed) else ""
                await self._not_started(command, str(error), began, output)
            return
        self._was_ready = process
        self._stop_came.clear()
        missing = [str(thing["name"]) for thing in (*restored.missing, *restored.not_back)]
        worse = {key: value for key, value in (("missing", missing), ("lost_cells", list(restored.gone))) if value}
        await self._tell("process_ready", command_id=command.command_id, **worse)
        self._tell_of_return(restored)

    async def _not_started(self, command: CommandMessage, why: str, began: float, output: str = "") -> None:
        """Say so. The daemon has a few tries follow each other at once: what is wrong for a moment may pass."""
        if output:
            self._log.add(f"The end of what the GPU process wrote:\n{output}")
        where = ". %gpu log has what it wrote." if output else ""
        self._log.add(f"The GPU process could not start: {why.rstrip('.') if output else why}{where}", important=True)
        await asyncio.sleep(began + _TRY_TAKES_S - monotonic_s())
        await self._tell("start_failed", command_id=command.command_id, reason=why)

    async def _leave_first(self) -> None:
        """A daemon whose journal lost its end may not know of the process that is there: it takes its work along."""
        if not self._keeper.still_usable():
            return
        self._depart("the node's daemon had lost where it was")
        await self._keeper.cell_over()
        with contextlib.suppress(GpuProcessDied, *CANNOT_SAVE):
            await self._keeper.suspend()

    async def _suspend(self, command: CommandMessage) -> None:
        keeper, process = self._keeper, self._keeper.process
        running = keeper.executing or bool(self._open - {_CELL})
        if running or process is None or not (keeper.suspending or keeper.still_usable()):
            reason = "a cell is running" if running else "the GPU process is not ready"
            await self._tell("suspend_failed", command_id=command.command_id, reason=reason, busy=True)
            return
        self._suspended_by = command.command_id
        if not keeper.suspending:
            self._stayed = self.departure
            self._depart(command.reason, kind=command.kind)
        try:
            saved = await keeper.suspend()
        except GpuProcessDied:
            return  # its end is told by whoever ended it, or as an end of its own
        except CANNOT_SAVE as error:
            if self._suspended_by != command.command_id:
                return  # the daemon has given that up, and tries it again
            self.departure, self.why_not_suspended = self._stayed, why_not(error)
            await self._tell("suspend_failed", command_id=command.command_id, reason=why_not(error))
            self._log.add(f"The variables could not be saved, so this notebook keeps its GPU: {why_not(error)}")
            return
        if self._suspended_by != command.command_id:
            return
        self._exit_told, self._saved_told = process, saved
        await self._tell("process_suspended", command_id=command.command_id, saved_bytes=saved.manifest.gpu_bytes)
        self._log.add(f"Suspended: {command.reason}.")

    async def _interrupt_cell(self, command: CommandMessage) -> None:
        reached = not self.over and await self._keeper.reclaim(command.reason, command.grace_s)
        unless = {} if reached else {"reached": False}
        await self._tell("cell_interrupted", command_id=command.command_id, **unless)
        if reached:
            self._log.add(f"The running cell was interrupted: {command.reason}.")

    async def _stop(self, command: CommandMessage) -> None:
        self._stop_reason = command.reason
        self._stop_came.set()
        if not self.over and self._keeper.process is self._was_ready and self._keeper.has_died:
            return  # this kernel stood still, and the daemon has ended it: `ended_by_itself` tells so
        if not self.over and not await self.standing.let_go():
            return  # it is told when the driver lets it go, or by its end
        reason = command.reason
        if not self.over and (why := await self._save_first(command)) is not None:
            reason += f", and what ran last could not be saved before: {why}"
        # After it was given up, the process that is there can be that of the notebook's next workload.
        process = None if self.over else await self._end(reason)
        if process is None:
            await self._tell_what_is_saved()
            await self._tell("process_exited", reason=command.reason)
            return
        await self.tell_exit(process, command.reason)
        self._log.add(f"Taken off the GPU: {reason}.")

    async def _save_first(self, command: CommandMessage) -> str | None:
        """What ran since the last save, within the grace; a cell that runs is interrupted for that.

        Returns:
            Why a save that was begun, perhaps long before, failed.
        """
        keeper, began = self._keeper, False
        if command.grace_s <= 0:
            return _NOT_IN_TIME if keeper.suspending else None
        try:
            async with asyncio.timeout(command.grace_s):
                if await keeper.reclaim(command.reason, command.grace_s):
                    await keeper.cell_over()
                if keeper.usable or keeper.suspending:
                    self._depart(command.reason)
                    began = True
                    await keeper.suspend()
        except (TimeoutError, GpuProcessDied, *CANNOT_SAVE) as error:
            _log.info("What ran last was not saved before the GPU process was stopped: %s", error)
            if began and not isinstance(error, GpuProcessDied):
                return _NOT_IN_TIME if isinstance(error, TimeoutError) else why_not(error)
        return None

    async def _end_lost(self, reason: str) -> None:
        """End a process that the driver has given up: what was saved stands."""
        process = None if self.over else await self._end(reason)
        if process is not None:
            await self.tell_exit(process, reason)
            self._log.add(f"The GPU process was ended: {reason}.", important=True)

    async def _end(self, reason: str) -> GpuProcess | None:
        process = self._keeper.process
        if self._keeper.usable or (process is not None and process is self._was_ready):
            # One that never became usable was nowhere, so the departure before stands.
            self._depart(reason)
        return await self._keeper.end(reason)

    # Telling

    def _report(self) -> Report:
        """How this notebook is, for a daemon that has just been connected to."""
        self.standing.reported()
        process, saved, stands = self._keeper.process, self._keeper.saved, self.standing.stands
        return Report(
            process=None if process is None else (process.pid, process.start_time),
            ready=self._keeper.usable,
            executing=bool(self._open),
            saved_bytes=None if saved is None else saved.manifest.gpu_bytes,
            frozen_bytes=None if stands is None else stands.bytes,
        )

    def _depart(self, why: str, *, died: bool = False, kind: str = "") -> None:
        self.departure = notices.Departure(why, self._gpus(), monotonic_s(), died, kind)

    def _gpus(self) -> str:
        return " and ".join(self.view["gpus"]) or "the GPU"

    def _tell_of_return(self, restored: Restored) -> None:
        left, self.departure = self.departure, None
        text = notices.returned(left, self._gpus(), restored, monotonic_s())
        worse = restored.missing or restored.not_back or restored.changed or restored.gone
        self._log.add(text, important=left is not None or bool(worse or restored.awaited))

    def _pass_on(self, process: GpuProcess, question: dict[str, Any]) -> None:
        self._tasks.spawn(self._questions.ask(process, question))

    async def _tell(self, event: str, **fields: Any) -> None:
        await self._link.send(event, **fields)

    def _failed(self, error: BaseException) -> None:
        _log.error("Looking after the GPU process failed.", exc_info=error)
        self._log.add(f"An internal error, please report it: {error!r}. %gpu restart begins again.", important=True)
