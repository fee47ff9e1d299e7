"""The kernel's side of one GPU process: cells and requests in, replies and outputs back, over Jupyter messaging."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nls_jupyter.saved_state import STOPPED, Manifest
from nls_jupyter.supervisor.arrivals import Arrivals
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.pending import Expected, Message, RequestFailed, accepted
from nls_jupyter.supervisor.started import Started
from nls_jupyter.supervisor.tasks import Tasks
from nls_jupyter.supervisor.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

_log = logging.getLogger(__name__)

_ASK_AGAIN_AFTER_S = 0.5
# A Jupyter Server gives a kernel five seconds to end, with all that belongs to it.
_FLUSHED_WITHIN_S = 1.0
_LEFT_WITHIN_S = 2.0


class Luggage(Protocol):
    """Variables that a cell takes along and brings back."""

    async def give(self, process: GpuProcess) -> None:
        """Copy into the process what the cell needs. Raises GpuTransferFailed, CancelledError, GpuProcessDied."""

    async def take(self, process: GpuProcess, reply: Message) -> None:
        """Copy out of it what is wanted of the cell, whose reply this is. Raises GpuProcessDied."""


class GpuProcess:
    """One GPU process, from its launch to its end. It never comes back: the supervisor launches another one.

    All methods belong to the event loop's thread in which it was launched, which must live as long as the process.

    Attributes:
        exited: done when the process, its descendants, its files and sockets are gone.
        modules: what it had imported at its last save, for a process that stands by.
        environment: what cells had changed of it until then, for the same.
        can_be_copied: whether `save_aside` can be asked for, as far as the last save told.
        on_memory_wanted: gets what an allocation in a cell lacks: `number, gpu, bytes, held_bytes`; `answer_memory`
            answers. Must not block.
        on_notice: gets what the user has to know, as a sentence, perhaps more than once. Must not block.
    """

    def __init__(
        self,
        started: Started,
        forward: Callable[[Message], None],
        on_save_point: Callable[[tuple[int, ...], Manifest], None] | None = None,
        connection_timeout_s: float = 60.0,
    ) -> None:
        self._process = started.process
        self._shares = shares = started.shares
        self._wire = Wire(started.connection, forward, self._on_news, shares.lane)
        self._arrivals = Arrivals(shares.states, on_save_point)
        self._save_numbers = itertools.count(1)
        self._copies: dict[int, asyncio.Future[str]] = {}
        self._connection_timeout_s = connection_timeout_s
        self.modules: Sequence[str] = ()
        self.environment: Mapping[str, str | None] = {}
        self.can_be_copied = True
        self.on_memory_wanted: Callable[[Message], None] | None = None
        self.on_notice: Callable[[str], None] | None = None
        self.exited: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks(_failed)
        self._tasks.spawn(self._follow_the_end())

    @classmethod
    async def launch(
        cls,
        *,
        environment: Mapping[str, str | None],
        directory: Path,
        forward: Callable[[Message], None],
        on_save_point: Callable[[tuple[int, ...], Manifest], None] | None = None,
        cwd: Path | None = None,
        connection_timeout_s: float = 60.0,
        arguments: Sequence[str] = (),
    ) -> GpuProcess:
        """Start a GPU process; it accepts requests at once and answers after `ready()`.

        Args:
            environment: added to this kernel's own, such as the variables that mask the Gpus; `None` removes one.
            directory: created with mode 0700 for the connection file and sockets, deleted when the process has ended.
                Where the sockets' paths would be too long, a temporary directory is used instead.
            forward: gets each output message, in order, in the loop's thread; must not block.
            on_save_point: gets the descriptors (the callee's to close) and the manifest of each save in mid-cell, or
                of a copy of the process.
            cwd: working directory, else the kernel's.
            connection_timeout_s: how long `ready()` waits.
            arguments: more command-line arguments of ipykernel, such as `--profile=NAME`.

        Raises:
            LaunchFailed: it can't be started.
        """
        started = await Started.start(environment=environment, directory=directory, cwd=cwd, arguments=arguments)
        return await cls.of(started, forward, on_save_point, connection_timeout_s)

    @classmethod
    async def of(
        cls,
        started: Started,
        forward: Callable[[Message], None],
        on_save_point: Callable[[tuple[int, ...], Manifest], None] | None = None,
        connection_timeout_s: float = 60.0,
    ) -> GpuProcess:
        """The one that was started; see `launch`. Raises LaunchFailed where nobody can talk to it: then it is ended."""
        try:
            return cls(started, forward, on_save_point, connection_timeout_s)
        except OSError as error:
            await started.end()
            raise LaunchFailed(f"the GPU process cannot be talked to: {error}") from error

    @property
    def pid(self) -> int:
        """Of the GPU process itself, which has the CUDA context (not of its guardian)."""
        return self._process.pid

    @property
    def start_time(self) -> int:
        """Clock ticks since boot; with the pid it makes the process unmistakable."""
        return self._process.start_time

    @property
    def alive(self) -> bool:
        """As the system knows it now, before `exited` tells of an end."""
        return self._process.alive

    def began_last(self, msg_id: str) -> bool:
        """Whether the cell of this message is the last that the process began, also when it is dead by now."""
        return self._shares.begun.is_last(msg_id)

    async def ready(self) -> None:
        """Until the process answers.

        Raises:
            LaunchFailed: it ended before, or did not answer in time and was killed; with the end of its output.
        """
        try:
            async with asyncio.timeout(self._connection_timeout_s):
                while True:
                    with suppress(TimeoutError):
                        # An idle status can precede the subscription: then only asking again gets one.
                        async with asyncio.timeout(_ASK_AGAIN_AFTER_S):
                            asked = Expected(with_idle=True, on_stdin=None)
                            await self._wire.ask("shell", "kernel_info_request", {}, asked)
                        self._wire.take_the_lane()
                        return
        except GpuProcessDied as died:
            raise LaunchFailed(
                f"the GPU process {died.status.describe()} while it started", self._process.output_tail()
            ) from died
        except TimeoutError:
            self.kill()
            reason = f"the GPU process did not answer within {self._connection_timeout_s:g} s"
            raise LaunchFailed(reason, self._process.output_tail()) from None

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        store_history: bool = True,
        allow_stdin: bool = True,
        user_expressions: Mapping[str, str] | None = None,
        on_stdin: Callable[[Message], Awaitable[None] | None] | None = None,
        msg_id: str | None = None,
        cell: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        transfer: Luggage | None = None,
    ) -> Message:
        """Run a cell. Returns the whole `execute_reply` after the last of its outputs was forwarded.

        Args:
            code: the cell's source.
            silent: as in Jupyter's protocol, like `store_history` and `user_expressions`.
            store_history: see above.
            allow_stdin: only with `on_stdin`.
            user_expressions: see above.
            on_stdin: gets each `input_request` and those of `OWN_REQUESTS`; see `answer_stdin`, `answer_own`.
            msg_id: identifies the cell's outputs to `forward`, see `OutputRelay.follow`.
            cell: the cell's label, for the manifests of its save points.
            metadata: of the request, such as the number of the cell (`numbering.KEY`).
            transfer: variables that are copied before and after the cell.

        Raises:
            GpuProcessDied: it ended first.
            GpuTransferFailed, CancelledError: as `Luggage.give`; the cell did not run.
        """
        content = {
            "code": code,
            "silent": silent,
            "store_history": store_history,
            "user_expressions": dict(user_expressions or {}),
            "allow_stdin": allow_stdin and on_stdin is not None,
            # What is queued behind a failed cell waits in the notebook's kernel, which drops it.
            "stop_on_error": False,
        }
        expected = Expected(with_idle=True, on_stdin=on_stdin)
        known = {**(metadata or {}), "nls_cell": cell or ""}
        if transfer is not None:
            await transfer.give(self)
        reply = await self._wire.ask("shell", "execute_request", content, expected, msg_id=msg_id, metadata=known)
        if transfer is not None:
            await transfer.take(self, reply)
        return reply

    async def tell(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        msg_id: str,
        metadata: Mapping[str, Any] | None = None,
        buffers: Sequence[Any] = (),
        subshell_id: str | None = None,
    ) -> None:
        """Send what has no reply; returns when it was dealt with and its outputs were forwarded.

        Raises:
            GpuProcessDied: it ended first.
        """
        expected = Expected(with_idle=True, on_stdin=None, with_reply=False)
        await self._wire.ask(
            "shell",
            msg_type,
            content,
            expected,
            msg_id=msg_id,
            metadata=metadata,
            buffers=buffers,
            subshell_id=subshell_id,
        )

    async def request(
        self,
        msg_type: str,
        content: Mapping[str, Any],
        *,
        channel: Literal["shell", "control"] = "shell",
        timeout_s: float | None,
    ) -> Message:
        """Any other request of Jupyter's or ours. Returns the reply's content, whatever its status.

        Raises:
            GpuProcessDied: it ended first.
            TimeoutError: no reply in time; a late one is ignored.
        """
        async with asyncio.timeout(timeout_s):
            reply = await self._wire.ask(channel, msg_type, content, Expected(with_idle=False, on_stdin=None))
        answer: Message = reply["content"]
        return answer

    def next_save(self) -> int:
        """The number of one more save, by which it can be stopped also before it is asked for."""
        return next(self._save_numbers)

    def stop_saves(self, number: int) -> None:
        """Have this save and those numbered before it fail (`ename` SaveStoppedError), unless they are done."""
        self._shares.stops.stop(number)

    def drop_saves(self, descriptors: Sequence[int]) -> None:
        """What it has saved into these files is to be emptied: it goes on from nothing, and is heard of none of it."""
        self._shares.stops.drop()
        self._arrivals.refuse(descriptors)

    async def save(
        self,
        *,
        cell: str | None,
        number: int | None = None,
        within_budget: bool = False,
        timeout_s: float | None = None,
    ) -> tuple[tuple[int, ...], Manifest]:
        """Have the user's names saved, after the cells sent so far. Returns descriptors, the caller's to close.

        One that nobody waits for any more is stopped.

        Args:
            cell: the cell's label.
            number: from `next_save`, where somebody may stop it.
            within_budget: give up when it costs more than a save after a cell may.
            timeout_s: how long to wait.

        Raises:
            RequestFailed: the process could not save at all, or (`ename` OverBudgetError) not within the budget, or
                (`ename` SaveStoppedError) it was stopped.
            GpuProcessDied, TimeoutError: as in `request`.
        """
        number = number or self.next_save()
        asked = {"cell": cell, "within_budget": within_budget, "number": number}
        try:
            answer = await self.request("nls_save_request", asked, timeout_s=timeout_s)
        except (asyncio.CancelledError, TimeoutError):
            self.stop_saves(number)
            raise
        return self._received(accepted(answer))

    async def save_aside(self, *, cell: str | None) -> asyncio.Future[str]:
        """Have a copy of the process save the user's names as they are now; returns once it is there.

        From then on the process takes cells again. Anything else that concerns saved state ends the copy.

        Args:
            cell: the cell's label.

        Returns:
            How the copy ended, see `saved_state.aside`; a save that it has made was given to `on_save_point` before.

        Raises:
            RequestFailed: the process cannot be copied (`ename` NotAsideError).
            GpuProcessDied: as in `request`.
        """
        asked = {"cell": cell, "number": self.next_save()}
        try:
            answer = accepted(await self.request("nls_save_aside_request", asked, timeout_s=None))
        except RequestFailed:
            self.can_be_copied = False
            raise
        self.modules, self.environment = answer["modules"], answer["environment"]
        return self._copy(answer["number"])

    def _copy(self, number: int) -> asyncio.Future[str]:
        """The news of its end may come before the reply."""
        if number not in self._copies:
            self._copies = {number: asyncio.get_running_loop().create_future()}  # one at a time
        return self._copies[number]

    def _received(self, content: Message) -> tuple[tuple[int, ...], Manifest]:
        self.modules, self.environment = content["modules"], content["environment"]
        self.can_be_copied = content["can_be_copied"]
        manifest = Manifest.from_json(content["manifest"])
        return self._arrivals.sent(content["number"]), manifest

    @property
    def restored_last(self) -> str | None:
        """The component of the saved state that the process brings back, or brought back when it died."""
        return self._shares.restored.key

    async def restore(
        self,
        descriptors: Sequence[int],
        *,
        deaths: Mapping[str, int] | None = None,
        timeout_s: float | None = None,
    ) -> Message:
        """Put a saved state's names into the process; descriptors stay the caller's.

        Args:
            descriptors: of its files.
            deaths: how many processes died of a component of it; what killed one is left out.
            timeout_s: how long to wait.

        Returns:
            The fields of a `saved_state.RestoreReport`.

        Raises:
            RequestFailed: nothing could be restored.
            GpuProcessDied, TimeoutError: as in `request`.
        """
        asked = {"number": self._arrivals.send(descriptors), "deaths": dict(deaths or {})}
        return accepted(await self.request("nls_restore_request", asked, timeout_s=timeout_s))

    async def try_again(self, *, asked: bool) -> Message:
        """Have what could not be restored tried once more, after the cells sent so far. Returns as `restore`.

        `asked` for by the user: what killed processes, too. Raises RequestFailed, GpuProcessDied.
        """
        return accepted(await self.request("nls_try_again_request", {"asked": asked}, timeout_s=None))

    async def forget(self, names: Sequence[str], *, timeout_s: float | None = 10.0) -> None:
        """Have what could not be restored of these names given up.

        Raises RequestFailed, GpuProcessDied, TimeoutError.
        """
        accepted(await self.request("nls_forget_request", {"names": list(names)}, timeout_s=timeout_s))

    async def give(self, fd: int) -> None:
        """Put packed variables (`packed.pack`) into the namespace. Raises RequestFailed, OSError, GpuProcessDied."""
        number = self._arrivals.send((fd,))
        accepted(await self.request("nls_give_request", {"number": number}, timeout_s=None))

    async def take(self, names: Sequence[str], *, tensors: bool) -> int:
        """Have variables packed (`packed.pack`). Returns a memfd, the caller's to close. Raises as `give`."""
        content = accepted(await self.request("nls_take_request", {"names": names, "tensors": tensors}, timeout_s=None))
        (descriptor,) = self._arrivals.sent(content["number"])
        return descriptor

    async def follow_allowance(self, allowance_bytes: int | None, *, timeout_s: float | None = 10.0) -> None:
        """Tell the process's allocators how much they may hold, also in mid-cell; `None` lifts the bound.

        Raises:
            RequestFailed, GpuProcessDied, TimeoutError: as in `save`.
        """
        content = {"allowance_bytes": allowance_bytes}
        accepted(await self.request("nls_allowance_request", content, channel="control", timeout_s=timeout_s))

    async def trim(self, *, timeout_s: float | None = 10.0) -> int:
        """Have the process's allocators give back memory that they cache and nobody uses, also in mid-cell.

        Returns the bytes that were given back.

        Raises:
            RequestFailed, GpuProcessDied, TimeoutError: as in `save`.
        """
        answer = accepted(await self.request("nls_trim_request", {}, channel="control", timeout_s=timeout_s))
        return int(answer["freed_bytes"])

    async def answer_memory(self, answer: Mapping[str, Any], *, timeout_s: float | None = 10.0) -> None:
        """Answer what `on_memory_wanted` got: `number` as there, `granted`, and the `reason` for the user.

        Raises:
            RequestFailed, GpuProcessDied, TimeoutError: as in `save`.
        """
        accepted(await self.request("nls_memory_answer_request", answer, channel="control", timeout_s=timeout_s))

    async def reclaim(self, reason: str, grace_s: float) -> bool:
        """Raise `GpuReclaimed` in the running cell; one that holds the GIL is told when it lets go. False: none runs.

        Args:
            reason: why, as the user reads it.
            grace_s: told to the cell; ending the process afterwards is the caller's.

        Raises:
            RequestFailed, GpuProcessDied: as in `save`.
        """
        content = {"reason": reason, "grace_s": grace_s}
        answer = accepted(await self.request("nls_reclaim_request", content, channel="control", timeout_s=None))
        return bool(answer["interrupted"])

    async def why_not_frozen(self, *, timeout_s: float) -> str | None:
        """What it uses of the GPU that a driver cannot freeze, as a clause; `None`: nothing that it knows of.

        Raises:
            RequestFailed, GpuProcessDied, TimeoutError: as in `save`.
        """
        answer = accepted(await self.request("nls_freezable_request", {}, channel="control", timeout_s=timeout_s))
        refusal: str | None = answer["refusal"]
        return refusal

    def answer_stdin(self, value: str) -> None:
        """Answer the `input_request` that `on_stdin` got last."""
        self._wire.reply_on_stdin("input_reply", {"value": value})

    def answer_own(self, content: Mapping[str, Any]) -> None:
        """Answer the request of our own, see `OWN_REQUESTS`, that `on_stdin` got last."""
        self._wire.reply_on_stdin("nls_reply", dict(content))

    def interrupt(self) -> None:
        """SIGINT, as Jupyter interrupts a kernel. Harmless when no cell runs."""
        self._process.interrupt()

    async def flush_files(self) -> None:
        """Have what cells have written reach their files, unless a cell runs; takes a moment at most, never fails."""
        with suppress(GpuProcessDied, TimeoutError):
            if not self._wire.runs_cells:
                await self.request("nls_flush_request", {}, timeout_s=_FLUSHED_WITHIN_S)

    async def leave(self) -> None:
        """Have it end as Python does when its program is over, unless a cell runs; `kill` ends what does not in time.

        So functions given to `atexit` run, finalizers do, and files are closed.
        """
        with suppress(GpuProcessDied, TimeoutError):
            async with asyncio.timeout(_LEFT_WITHIN_S):
                if not self._wire.runs_cells:
                    await self.request("shutdown_request", {"restart": False}, channel="control", timeout_s=None)
                    await asyncio.shield(self.exited)

    def kill(self, why: str | None = None) -> None:
        """End it and all its descendants now, as `GuardedProcess.kill`. Idempotent; `exited` tells when it is done."""
        self._process.kill(why)

    def _on_news(self, message: Message) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "nls_memory_request" and self.on_memory_wanted is not None:
            self.on_memory_wanted(content)
        elif kind == "nls_notice" and self.on_notice is not None:
            self.on_notice(content["text"])
        elif kind == "nls_saved_aside":
            self._arrivals.take()
            self.can_be_copied = content["can_be_copied"]
            self._copy(content["number"]).set_result(content["how"])

    async def _follow_the_end(self) -> None:
        status = await asyncio.shield(self._process.ended)
        self._wire.close_for_sending(status)
        await self._wire.last_words()
        self._arrivals.take()
        for copy in self._copies.values():
            if not copy.done():
                copy.set_result(STOPPED)
        self._wire.fail_all()
        await asyncio.shield(self._process.exited)
        self._wire.close()
        self._arrivals.close()
        self._shares.close()
        if not self.exited.done():
            self.exited.set_result(status)


def _failed(error: BaseException) -> None:
    _log.error("What follows the end of a GPU process was lost.", exc_info=error)
