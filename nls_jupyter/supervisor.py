"""Looks after one notebook's workload: asks the daemon for a GPU, carries out its orders, runs cells when it can.

Everything here runs in the loop's thread (`loop_thread`); `cells` is the notebook's side of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nls_jupyter import notices
from nls_jupyter.errors import GpuEvicted, GpuProcessDied, GpuUnavailable
from nls_jupyter.keeper import Keeper
from nls_jupyter.launch import GpuProcessDied as ProcessDied
from nls_jupyter.launch import LaunchFailed
from nls_jupyter.pending import RequestFailed
from nls_scheduler.errors import DaemonUnreachable, Problem
from nls_scheduler.protocol import CommandMessage, ErrorMessage, ViewMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.channel import GpuProcess
    from nls_jupyter.keeper import Restored, SavedState
    from nls_jupyter.launch import ExitStatus
    from nls_jupyter.pending import Message
    from nls_scheduler.client import DaemonClient
    from nls_scheduler.link import SupervisorLink
    from nls_scheduler.protocol import DaemonMessage

_log = logging.getLogger(__name__)

# A cell that follows one after which the GPU was to be given back waits this long for the daemon's word.
_YIELD_ANSWER_S = 2.0
# How often the live line of a waiting cell is written again, and how short a wait shows none.
_LIVE_LINE_S = 0.5
_SHORT_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell for the GPU process.

    Attributes:
        code: its source.
        label: how the user knows it, such as `[5]`.
        msg_id: identifies its outputs, from `OutputRelay.follow`.
        wait: whether it may wait for a GPU at all.
        wait_timeout_s: how long it may wait for one; `None`: as long as it takes.
        on_stdin: gets each input request.
        on_wait: gets the live line while it waits, then `None` once.
        on_notices: shows what happened since the last cell, before this one's outputs.
    """

    code: str
    label: str
    msg_id: str
    wait: bool
    wait_timeout_s: float | None
    on_stdin: Callable[[Message], Awaitable[None] | None]
    on_wait: Callable[[str | None], None]
    on_notices: Callable[[Sequence[notices.Notice]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Departure:
    """The last way off a Gpu, for the notice when it is back."""

    why: str
    from_gpu: str
    began: float
    died: bool = False


class Supervisor:
    """One notebook's workload, from its first request to the end of the kernel.

    Attributes:
        view: the daemon's status entry of the workload, as last received; `None` without a workload.
        keeper: its GPU process and what it saved.
        log: what happened, for the user.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[DaemonClient]],
        forward: Callable[[Message], None],
        directory: Callable[[], Path],
        defaults: Mapping[str, Any],
    ) -> None:
        self._connect = connect
        self._defaults = defaults
        self._client: DaemonClient | None = None
        self._link: SupervisorLink | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._changed = asyncio.Condition()
        self._done_command = 0
        self._asked_to_yield = False
        self._departure: _Departure | None = None
        self.keeper = Keeper(directory, forward, self._ended_by_itself)
        self.workload_id: str | None = None
        self.view: Mapping[str, Any] | None = None
        self.log = notices.NoticeLog()

    # What the user asks for

    async def client(self) -> DaemonClient:
        """The connection to the node's daemon, made at first use. Raises DaemonUnreachable."""
        if self._client is None:
            self._client = await self._connect()
        return self._client

    async def request(self, **wanted: Any) -> Mapping[str, Any]:
        """Ask for a GPU, or for something else than before. Returns the status entry. Raises Problem."""
        client = await self.client()
        if self.workload_id is not None:
            self.view = await client.patch(self.workload_id, **wanted)
            return self.view
        view = await client.submit(kind="notebook", **{**self._defaults, **wanted})
        self.workload_id, self.view, self._done_command = view["id"], view, 0
        # What is told before the connection stands waits in the link.
        self._link = client.supervise(view["id"])
        self._spawn(self._follow(self._link, view["id"]))
        return view

    async def release(self) -> bool:
        """Give the GPU back; what was saved stays for the next request. False: there was nothing to give back."""
        if self.workload_id is None:
            return False
        client, workload_id = await self.client(), self.workload_id
        if self.keeper.usable:
            await self.keeper.suspend()
        self.workload_id, self.view = None, None
        await client.release(workload_id)
        await self.keeper.end("released by you")
        self.log.add("GPU released by you; the saved variables come back with the next request.")
        await self._notify()
        return True

    async def restart(self) -> None:
        """A new, empty GPU process in place of this one; what was saved is dropped."""
        if self.workload_id is None:
            raise GpuUnavailable("there is no GPU process to restart; %gpu request asks for a GPU.")
        self.keeper.drop_saved()
        process, self._departure = self.keeper.process, None
        await self.keeper.end("restarted by you")
        self.keeper.drop_saved()
        self.log.add("GPU process restarted by you; it begins without variables.")
        if process is not None:
            await self._tell_exit(process, "restarted by its user")
        self.view = await (await self.client()).resume(self.workload_id)
        await self._notify()

    async def run(self, cell: Cell) -> Message:
        """Run a cell: waits for the GPU process, returns the execute reply.

        Raises:
            GpuUnavailable: no GPU now (`wait` is off), not in time, or given up for good.
            GpuProcessDied, GpuEvicted: the process ended in the middle of the cell.
        """
        if self.workload_id is None:
            await self.request()
        await self._tell("cell_started")
        ran = False
        try:
            await self._wait_until_usable(cell)
            while unread := self.log.take_unread():
                await cell.on_notices(unread)
                await self._wait_until_usable(cell)
            ran = True
            return await self.keeper.execute(cell.code, msg_id=cell.msg_id, on_stdin=cell.on_stdin)
        except ProcessDied as died:
            raise self._why_it_died(died.status) from None
        finally:
            if ran:
                self._asked_to_yield = bool(self.view and self.view["yields"])
                self.keeper.save_soon(cell.label, self._tell_saved)
            await asyncio.shield(self._tell("cell_finished"))

    def interrupt(self) -> None:
        """Ctrl-C for the running cell."""
        if self.keeper.process is not None and self.keeper.executing:
            self.keeper.process.interrupt()

    def answer_stdin(self, value: str) -> None:
        """The user's answer to the last input request."""
        if self.keeper.process is not None:
            self.keeper.process.answer_stdin(value)

    async def close(self) -> None:
        """The kernel ends: so does the GPU process."""
        await self.keeper.end("the kernel ends")
        self.keeper.drop_saved()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Waiting

    async def _wait_until_usable(self, cell: Cell) -> None:
        await self._settle_yield()
        if self.keeper.usable:
            return
        if not cell.wait:
            await self._refuse_to_wait()
        try:
            async with asyncio.timeout(cell.wait_timeout_s):
                await self._wait_with_line(cell)
        except TimeoutError:
            reason = self.view["reason"] if self.view else "the daemon does not answer"
            raise GpuUnavailable(f"no GPU within {cell.wait_timeout_s:g} s: {reason}. The cell did not run.") from None

    async def _settle_yield(self) -> None:
        """After a cell at whose end the GPU was to be given back, the next one waits for the daemon's word."""
        if not self._asked_to_yield:
            return
        self._asked_to_yield = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_YIELD_ANSWER_S), self._changed:
                await self._changed.wait_for(
                    lambda: not self.keeper.usable or not (self.view is not None and self.view["yields"])
                )

    async def _refuse_to_wait(self) -> None:
        """`--no-wait`: go on only if a process is on its way already."""
        if self.workload_id is None:
            raise GpuUnavailable("this notebook has no GPU; %gpu request asks for one.")
        self.view = view = await (await self.client()).resume(self.workload_id)
        if view["phase"] not in ("starting", "running"):
            raise GpuUnavailable(f"no GPU is free now: {view['reason']}. Without --no-wait the cell waits for one.")

    async def _wait_with_line(self, cell: Cell) -> None:
        began = time.monotonic()
        try:
            while not self.keeper.usable:
                self._raise_if_hopeless()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LIVE_LINE_S), self._changed:
                        await self._changed.wait()
                waited_s = time.monotonic() - began
                if waited_s >= _SHORT_WAIT_S and self.view is not None and not self.keeper.usable:
                    cell.on_wait(notices.waiting_line(self.view, waited_s))
        finally:
            cell.on_wait(None)

    def _raise_if_hopeless(self) -> None:
        if self.workload_id is None:
            raise GpuUnavailable("the GPU was released while the cell waited; %gpu request asks for one again.")
        if self.view is not None and self.view["phase"] == "failed":
            raise GpuUnavailable(f"{self.view['reason']}. %gpu restart tries again with an empty GPU process.")

    def _why_it_died(self, status: ExitStatus) -> GpuEvicted | GpuProcessDied:
        saved = self.keeper.saved
        stands = f"with the {len(saved.manifest.saved)} variables of cell {saved.manifest.cell}" if saved else "empty"
        if self.keeper.ordered_end is not None:
            return GpuEvicted(
                f"the GPU was taken back in the middle of this cell: {self.keeper.ordered_end}. The kernel and its "
                f"variables live; the GPU process comes back {stands}. Run the cell again."
            )
        return GpuProcessDied(
            f"the GPU process {status.describe()}, in the middle of this cell. The kernel and its variables live; "
            f"the GPU process comes back {stands}."
        )

    # What the daemon orders

    async def _follow(self, link: SupervisorLink, workload_id: str) -> None:
        """Carry out the daemon's orders for as long as the workload is ours."""
        why = "the node's daemon ended it"
        try:
            async with link:
                async for message in link:
                    await self._take(message)
        except (Problem, DaemonUnreachable) as problem:
            why = str(problem)
        if self._link is link:
            self._link = None
        if self.workload_id == workload_id:
            await self._lose_workload(why)

    async def _take(self, message: DaemonMessage) -> None:
        match message:
            case ViewMessage(view=view):
                self.view = view
                self._spawn(self.keeper.follow_allowance(view["allowance_bytes"]))
                await self._notify()
            case CommandMessage() if message.command_id > self._done_command:
                self._done_command = message.command_id
                self._spawn(self._carry_out(message))
            case ErrorMessage(problem=problem):
                _log.error("The daemon refused a message of this kernel: %s", problem)

    async def _lose_workload(self, why: str) -> None:
        """Nothing is guaranteed without the daemon's record: save, and ask again with the next cell."""
        self.workload_id, self.view = None, None
        self.log.add(
            f"This notebook's place on the GPU has ended ({why}); the next GPU cell asks again.", important=True
        )
        with contextlib.suppress(RequestFailed, ProcessDied):
            if self.keeper.usable and not self.keeper.executing:
                await self.keeper.suspend()
        await self.keeper.end(why)
        await self._notify()

    async def _carry_out(self, command: CommandMessage) -> None:
        match command.command:
            case "start_process":
                await self._start(command)
            case "suspend_process":
                await self._suspend(command)
            case "stop_process":
                await self._stop(command)
        await self._notify()

    async def _start(self, command: CommandMessage) -> None:
        try:
            process = await self.keeper.launch({**command.environment, "NLS_WORKLOAD": self.workload_id})
            await self._tell(
                "process_started", command_id=command.command_id, pid=process.pid, start_time=process.start_time
            )
            restored = await self.keeper.bring_back(process, self.view["allowance_bytes"] if self.view else None)
        except (LaunchFailed, ProcessDied, RequestFailed) as error:
            if self.keeper.ordered_end is None:
                await self.keeper.end("it did not start")
                await self._tell("start_failed", command_id=command.command_id, reason=str(error))
                self.log.add(f"The GPU process could not start: {error}", important=True)
            return
        await self._tell("process_ready", command_id=command.command_id)
        self._tell_of_return(restored)

    async def _suspend(self, command: CommandMessage) -> None:
        if self.keeper.executing or not self.keeper.usable:
            reason = "a cell is running" if self.keeper.executing else "the GPU process is not ready"
            await self._tell("suspend_failed", command_id=command.command_id, reason=reason, busy=True)
            return
        self._depart(command.reason)
        try:
            saved = await self.keeper.suspend()
        except (RequestFailed, ProcessDied) as error:
            await self._tell("suspend_failed", command_id=command.command_id, reason=str(error))
            return
        await self._tell("process_suspended", command_id=command.command_id, saved_bytes=saved.manifest.gpu_bytes)
        self.log.add(f"Suspended: {command.reason}.")

    async def _stop(self, command: CommandMessage) -> None:
        process = self.keeper.process
        if process is None:
            await self._tell("process_exited", reason=command.reason)
            return
        self._depart(command.reason)
        self.keeper.ordered_end = command.reason
        await self.keeper.end(command.reason)
        await self._tell_exit(process, command.reason)
        self.log.add(f"Taken off the GPU: {command.reason}.")

    async def _ended_by_itself(self, process: GpuProcess, status: ExitStatus) -> None:
        why = f"the GPU process {status.describe()}"
        self._depart(why, died=True)
        self.log.add(f"{why[0].upper()}{why[1:]}.")
        await self._tell_exit(process, status.describe())
        await self._notify()

    # Telling

    def _depart(self, why: str, *, died: bool = False) -> None:
        gpus = " and ".join(self.view["gpus"]) if self.view and self.view["gpus"] else "the GPU"
        self._departure = _Departure(why, gpus, time.monotonic(), died)

    def _tell_of_return(self, restored: Restored) -> None:
        gpus = " and ".join(self.view["gpus"]) if self.view and self.view["gpus"] else "a GPU"
        left, self._departure = self._departure, None
        if left is None:
            self.log.add(f"GPU process ready on {gpus} after {restored.seconds:.1f} s.")
            return
        kept = notices.kept(restored.names, restored.missing, restored.memory_bytes)
        took = f"{time.monotonic() - left.began:.1f} s"
        if left.died:
            text = f"{left.why}; back on {gpus} with the variables of cell {restored.cell} after {took}: {kept}."
        elif left.from_gpu == gpus:
            text = f"back on {gpus} after {took}: {kept}. It was away because {left.why}."
        else:
            text = f"moved from {left.from_gpu} to {gpus} because {left.why} ({took}): {kept}."
        self.log.add(text[0].upper() + text[1:], important=True)

    async def _tell_saved(self, saved: SavedState) -> None:
        await self._tell("state_saved", saved_bytes=saved.manifest.gpu_bytes)

    async def _tell_exit(self, process: GpuProcess, reason: str) -> None:
        await self._tell("process_exited", pid=process.pid, start_time=process.start_time, reason=reason)

    async def _tell(self, event: str, **fields: Any) -> None:
        if self._link is not None:
            await self._link.send(event, **fields)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("Looking after the GPU process failed.", exc_info=error)
            self.log.add(f"An internal error: {error!r}; %gpu restart begins again.", important=True)
