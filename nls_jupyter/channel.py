"""The kernel's side of one GPU process: cells and requests in, replies and outputs back, over Jupyter messaging."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import os
import shutil
import subprocess
import sys
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from nls_jupyter import begun as begun_cell
from nls_jupyter import state_socket
from nls_jupyter.begun import BegunCell
from nls_jupyter.connection import SIGNATURE_SCHEME, Connection
from nls_jupyter.launch import ExitStatus, GpuProcessDied, GuardedProcess, LaunchFailed
from nls_jupyter.pending import Expected, Message, accepted
from nls_jupyter.saved_state import Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from nls_jupyter.transfer import Transfer

_log = logging.getLogger(__name__)

# What a cell shows. `status` is followed here, `execute_input` is the kernel's own business.
FORWARDED = frozenset(
    {
        *("stream", "display_data", "update_display_data", "clear_output", "execute_result", "error"),
        *("comm_open", "comm_msg", "comm_close", "debug_event"),
    }
)
# What the GPU process asks beside the user's input, whether or not the frontend allows that: a `%gpu` line in a cell is
# to be carried out, or it lacks the inputs of earlier cells. `answer_own` answers.
OWN_REQUESTS = ("nls_command_request", "nls_inputs_request")
_CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}
_RECONNECT_MS = 10
_ASK_AGAIN_AFTER_S = 0.5
# What the process sent before it died may still be in this process's own queues.
_LAST_WORDS_S = 0.05


class GpuProcess:
    """One GPU process, from its launch to its end. It never comes back: the supervisor launches another one.

    All methods belong to the event loop's thread in which it was launched, which must live as long as the process.

    Attributes:
        exited: done when the process, its descendants, its files and sockets are gone.
        modules: what it had imported at its last save, for a process that stands by.
        on_memory_wanted: gets what an allocation in a cell lacks: `number, gpu, bytes, held_bytes`; `answer_memory`
            answers. Must not block.
    """

    def __init__(
        self,
        process: GuardedProcess,
        connection: Connection,
        states: state_socket.StateSocket,
        begun: BegunCell,
        forward: Callable[[Message], None],
        on_save_point: Callable[[tuple[int, ...], Manifest], None] | None,
        connection_timeout_s: float,
    ) -> None:
        self._process = process
        self._session = Session(key=connection.key, signature_scheme=SIGNATURE_SCHEME, username="nls")
        self._loop = asyncio.get_running_loop()
        self._states = states
        self._begun = begun
        self._arrived: dict[int, tuple[int, ...]] = {}
        self._loop.add_reader(states.fileno(), self._take_states)
        self._forward = forward
        self._on_save_point = on_save_point
        self._connection_timeout_s = connection_timeout_s
        self._expected: dict[str, Expected] = {}
        self._numbers = itertools.count(1)
        self._died: ExitStatus | None = None
        self.modules: Sequence[str] = ()
        self.on_memory_wanted: Callable[[Message], None] | None = None
        self.exited: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        self._context = zmq.asyncio.Context()
        self._sockets = {name: self._connect(kind, connection.address(name)) for name, kind in _CHANNELS.items()}
        self._sockets["iopub"].subscribe(b"")
        understand = {"iopub": self._on_iopub, "stdin": self._on_stdin}
        self._tasks: set[asyncio.Task[None]] = set()
        for name in _CHANNELS:
            self._spawn(self._read(name, understand.get(name, self._on_reply)))
        self._spawn(self._follow_the_end())

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
            on_save_point: gets the descriptors (the callee's to close) and the manifest of each save in mid-cell.
            cwd: working directory, else the kernel's.
            connection_timeout_s: how long `ready()` waits.
            arguments: more command-line arguments of ipykernel, such as `--profile=NAME`.

        Raises:
            LaunchFailed: it can't be started.
        """
        try:
            connection = Connection.create(directory)
        except OSError as error:
            raise LaunchFailed(f"no place for the GPU process's sockets: {error}") from error
        states, inherited = state_socket.StateSocket.pair()
        begun = BegunCell.create()
        try:
            process = await GuardedProcess.start(
                [*_interpreter(), "-m", "nls_jupyter.gpu_process", "-f", str(connection.file), *arguments],
                environment={
                    **environment,
                    "NLS_GPU_PROCESS": "1",
                    state_socket.VARIABLE: str(inherited.fileno()),
                    begun_cell.VARIABLE: str(begun.descriptor),
                },
                directory=connection.directory,
                pass_fds=(inherited.fileno(), begun.descriptor),
                cwd=cwd,
            )
        except BaseException:
            states.close()
            begun.close()
            shutil.rmtree(connection.directory, ignore_errors=True)
            raise
        finally:
            inherited.close()
        return cls(process, connection, states, begun, forward, on_save_point, connection_timeout_s)

    @property
    def pid(self) -> int:
        """Of the GPU process itself, which has the CUDA context (not of its guardian)."""
        return self._process.pid

    @property
    def start_time(self) -> int:
        """Clock ticks since boot; with the pid it makes the process unmistakable."""
        return self._process.start_time

    def began_last(self, msg_id: str) -> bool:
        """Whether the cell of this message is the last that the process began, also when it is dead by now."""
        return self._begun.is_last(msg_id)

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
                            await self._ask("shell", "kernel_info_request", {}, asked)
                        return
        except GpuProcessDied as died:
            raise LaunchFailed(
                self._with_output(f"the GPU process {died.status.describe()} while it started")
            ) from died
        except TimeoutError:
            self.kill()
            reason = f"the GPU process did not answer within {self._connection_timeout_s:g} s"
            raise LaunchFailed(self._with_output(reason)) from None

    async def execute(
        self,
        code: str,
        *,
        silent: bool = False,
        store_history: bool = True,
        allow_stdin: bool = True,
        stop_on_error: bool = True,
        user_expressions: Mapping[str, str] | None = None,
        on_stdin: Callable[[Message], Awaitable[None] | None] | None = None,
        msg_id: str | None = None,
        cell: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        transfer: Transfer | None = None,
    ) -> Message:
        """Run a cell. Returns the whole `execute_reply` after the last of its outputs was forwarded.

        Args:
            code: the cell's source.
            silent: as in Jupyter's protocol, like `store_history`, `stop_on_error` and `user_expressions`.
            store_history: see above.
            allow_stdin: only with `on_stdin`.
            stop_on_error: see above.
            user_expressions: see above.
            on_stdin: gets each `input_request` and those of `OWN_REQUESTS`; see `answer_stdin`, `answer_own`.
            msg_id: identifies the cell's outputs to `forward`, see `OutputRelay.follow`.
            cell: the cell's label, for the manifests of its save points.
            metadata: of the request, such as the number of the cell (`numbering.KEY`).
            transfer: variables that are copied before and after the cell.

        Raises:
            GpuProcessDied: it ended first.
            GpuTransferFailed, CancelledError: as `Transfer.give`; the cell did not run.
        """
        content = {
            "code": code,
            "silent": silent,
            "store_history": store_history,
            "user_expressions": dict(user_expressions or {}),
            "allow_stdin": allow_stdin and on_stdin is not None,
            "stop_on_error": stop_on_error,
        }
        expected = Expected(with_idle=True, on_stdin=on_stdin)
        known = {**(metadata or {}), "nls_cell": cell or ""}
        if transfer is not None:
            await transfer.give(self)
        reply = await self._ask("shell", "execute_request", content, expected, msg_id=msg_id, metadata=known)
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
        await self._ask(
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
            reply = await self._ask(channel, msg_type, content, Expected(with_idle=False, on_stdin=None))
        answer: Message = reply["content"]
        return answer

    async def save(
        self, *, cell: str | None, within_budget: bool = False, timeout_s: float | None = None
    ) -> tuple[tuple[int, ...], Manifest]:
        """Have the user's names saved, after the cells sent so far. Returns descriptors, the caller's to close.

        Args:
            cell: the cell's label.
            within_budget: give up when it costs more than a save after a cell may.
            timeout_s: how long to wait.

        Raises:
            RequestFailed: the process could not save at all, or (`ename` OverBudgetError) not within the budget.
            GpuProcessDied, TimeoutError: as in `request`.
        """
        asked = {"cell": cell, "within_budget": within_budget}
        return self._received(accepted(await self.request("nls_save_request", asked, timeout_s=timeout_s)))

    def _received(self, content: Message) -> tuple[tuple[int, ...], Manifest]:
        self.modules = content["modules"]
        manifest = Manifest.from_json(content["manifest"])
        return self._sent(content["number"]), manifest

    def _sent(self, number: int) -> tuple[int, ...]:
        """What the process has sent under this number."""
        self._take_states()
        for earlier in [n for n in self._arrived if n < number]:
            _close_all(self._arrived.pop(earlier))  # of requests that were given up
        try:
            return self._arrived.pop(number)
        except KeyError:
            raise OSError("the GPU process did not send the file that it announced") from None

    async def restore(self, descriptors: Sequence[int], *, timeout_s: float | None = None) -> Message:
        """Put a saved state's names into the process; descriptors stay the caller's.

        Returns:
            `restored`: names; `missing`: objects with `name, type_name, reason`.

        Raises:
            RequestFailed: nothing could be restored.
            GpuProcessDied, TimeoutError: as in `request`.
        """
        number = next(self._numbers)
        self._states.send(number, descriptors)
        return accepted(await self.request("nls_restore_request", {"number": number}, timeout_s=timeout_s))

    async def give(self, fd: int) -> None:
        """Put packed variables (`packed.pack`) into the namespace. Raises RequestFailed, OSError, GpuProcessDied."""
        number = next(self._numbers)
        self._states.send(number, (fd,))
        accepted(await self.request("nls_give_request", {"number": number}, timeout_s=None))

    async def take(self, names: Sequence[str], *, tensors: bool) -> int:
        """Have variables packed (`packed.pack`). Returns a memfd, the caller's to close. Raises as `give`."""
        content = accepted(await self.request("nls_take_request", {"names": names, "tensors": tensors}, timeout_s=None))
        (descriptor,) = self._sent(content["number"])
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

    async def reclaim(self, reason: str, grace_s: float, *, timeout_s: float | None = 2.0) -> bool:
        """Raise `GpuReclaimed` in the running cell. False: none runs.

        Args:
            reason: why, as the user reads it.
            grace_s: told to the cell; ending the process afterwards is the caller's.
            timeout_s: for the answer; a process that holds the GIL reads the request when it lets go.

        Raises:
            RequestFailed, GpuProcessDied, TimeoutError: as in `save`.
        """
        content = {"reason": reason, "grace_s": grace_s}
        answer = accepted(await self.request("nls_reclaim_request", content, channel="control", timeout_s=timeout_s))
        return bool(answer["interrupted"])

    def answer_stdin(self, value: str) -> None:
        """Answer the `input_request` that `on_stdin` got last."""
        self._reply_on_stdin("input_reply", {"value": value})

    def answer_own(self, content: Mapping[str, Any]) -> None:
        """Answer the request of our own, see `OWN_REQUESTS`, that `on_stdin` got last."""
        self._reply_on_stdin("nls_reply", dict(content))

    def _reply_on_stdin(self, msg_type: str, content: dict[str, Any]) -> None:
        if self._died is None:
            self._spawn(self._send("stdin", self._session.msg(msg_type, content)))

    def interrupt(self) -> None:
        """SIGINT, as Jupyter interrupts a kernel. Harmless when no cell runs."""
        self._process.interrupt()

    def kill(self) -> None:
        """End it and all its descendants now. Idempotent; `exited` tells when it is done."""
        self._process.kill()

    async def _ask(
        self,
        channel: str,
        msg_type: str,
        content: Mapping[str, Any],
        expected: Expected,
        *,
        msg_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        buffers: Sequence[Any] = (),
        subshell_id: str | None = None,
    ) -> Message:
        if self._died is not None:
            raise GpuProcessDied(self._died)
        header = self._session.msg_header(msg_type)
        header["msg_id"] = msg_id = msg_id or uuid.uuid4().hex
        if subshell_id is not None:
            header["subshell_id"] = subshell_id
        self._expected[msg_id] = expected
        message = self._session.msg(msg_type, content=dict(content), header=header, metadata=dict(metadata or {}))
        try:
            await self._send(channel, message, buffers)
            return await expected.answer
        finally:
            del self._expected[msg_id]

    async def _send(self, channel: str, message: Message, buffers: Sequence[Any] = ()) -> None:
        await self._sockets[channel].send_multipart([*self._session.serialize(message), *buffers])

    def _connect(self, kind: int, address: str) -> zmq.asyncio.Socket:
        connected = self._context.socket(kind)
        # Replies to one identity on shell let `input_request` find its way on stdin.
        connected.identity = self._session.bsession
        connected.linger = 0
        # Nothing is dropped: a lost `idle` would leave the user's cell waiting.
        connected.rcvhwm = connected.sndhwm = 0
        connected.reconnect_ivl = _RECONNECT_MS
        connected.connect(address)
        return connected

    async def _read(self, channel: str, understand: Callable[[Message], None]) -> None:
        while True:
            frames = await self._sockets[channel].recv_multipart()
            try:
                message = self._session.deserialize(self._session.feed_identities(frames)[1])
            except (ValueError, TypeError) as error:
                _log.error("An unreadable message of the GPU process was skipped: %s", error)
                continue
            understand(message)

    def _on_reply(self, message: Message) -> None:
        if expected := self._expected.get(message["parent_header"].get("msg_id", "")):
            expected.replied(message)

    def _on_iopub(self, message: Message) -> None:
        msg_type = message["header"]["msg_type"]
        if msg_type == "status" and message["content"]["execution_state"] == "idle":
            if expected := self._expected.get(message["parent_header"].get("msg_id", "")):
                expected.idle()
        elif msg_type == "nls_memory_request":
            if self.on_memory_wanted is not None:
                self.on_memory_wanted(message["content"])
        elif msg_type in FORWARDED:
            try:
                self._forward(message)
            except Exception:  # noqa: BLE001 - reported, and one bad output must not cost the next ones
                _log.exception("An output of the GPU process (%s) could not be shown.", msg_type)

    def _take_states(self) -> None:
        """Save points are taken over at once; the others wait for the message that names them."""
        try:
            for number, save_point, descriptors in self._states.arrived():
                if not save_point:
                    self._arrived[number] = descriptors
                elif self._on_save_point is None:
                    _close_all(descriptors)
                else:
                    self._on_save_point(descriptors, read_manifest(descriptors))
        except OSError:  # the process is gone, which is told by its guardian
            self._loop.remove_reader(self._states.fileno())

    def _close_states(self) -> None:
        self._take_states()
        self._loop.remove_reader(self._states.fileno())
        self._states.close()
        while self._arrived:
            _close_all(self._arrived.popitem()[1])

    def _on_stdin(self, message: Message) -> None:
        expected = self._expected.get(message["parent_header"].get("msg_id", ""))
        asks = message["header"]["msg_type"] in ("input_request", *OWN_REQUESTS)
        if not asks or expected is None or expected.on_stdin is None:
            return
        answering = expected.on_stdin(message)
        if inspect.isawaitable(answering):
            self._spawn(_awaiting(answering))

    async def _follow_the_end(self) -> None:
        status = await asyncio.shield(self._process.ended)
        self._died = status
        await asyncio.sleep(_LAST_WORDS_S)
        self._take_states()
        for expected in self._expected.values():
            expected.fail(status)
        await asyncio.shield(self._process.exited)
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        self._context.destroy(linger=0)
        self._close_states()
        self._begun.close()
        if not self.exited.done():
            self.exited.set_result(status)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("The channel to the GPU process %d lost a task.", self.pid, exc_info=error)

    def _with_output(self, reason: str) -> str:
        tail = self._process.output_tail()
        return f"{reason}. The end of its output:\n{tail}" if tail else reason


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _interpreter() -> list[str]:
    """With the same options (-X, -W, -O) as the kernel's, as multiprocessing starts its workers."""
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # Jupyter starts its kernels so too: debugpy, which ipykernel loads, complains about frozen modules.
    frozen = [] if "frozen_modules" in sys._xoptions else ["-Xfrozen_modules=off"]
    return [sys.executable, *options, *frozen]


async def _awaiting(work: Awaitable[None]) -> None:
    await work
