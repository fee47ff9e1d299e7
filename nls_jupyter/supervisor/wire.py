"""The channels to a GPU process and the lane beside them: each request gets its answer, each output its way."""

from __future__ import annotations

import asyncio
import inspect
import logging
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from nls_jupyter.between import lane_messages
from nls_jupyter.between.lane import OPEN
from nls_jupyter.between.restoring import COMM_BACK
from nls_jupyter.supervisor.connection import SIGNATURE_SCHEME
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from nls_jupyter.between.lane import Lane
    from nls_jupyter.supervisor.connection import Connection
    from nls_jupyter.supervisor.launch import ExitStatus
    from nls_jupyter.supervisor.pending import Expected, Message

_log = logging.getLogger(__name__)

# What a cell shows. `status` is followed here, `execute_input` is the kernel's own business.
FORWARDED = frozenset(
    {
        *("stream", "display_data", "update_display_data", "clear_output", "execute_result", "error"),
        *("comm_open", "comm_msg", "comm_close", COMM_BACK, "debug_event"),
    }
)
# What the GPU process asks beside the user's input, whether or not the frontend allows that: a `%gpu` line in a cell is
# to be carried out, or it lacks the inputs of earlier cells. `answer_own` answers.
OWN_REQUESTS = ("nls_command_request", "nls_inputs_request")
_CHANNELS = {"shell": zmq.DEALER, "control": zmq.DEALER, "stdin": zmq.DEALER, "iopub": zmq.SUB}
_RECONNECT_MS = 10
_UNREADABLE = "An unreadable message of the GPU process was skipped: %s"
# The system closes a dead process's connections at once, unless a child has inherited them: its guardian ends that.
_CLOSED_WITHIN_S = 10.0


class Wire:
    """Connects at once; what is asked before the process listens waits in the sockets.

    All methods belong to the event loop's thread in which it was made.

    Args:
        connection: where the process listens, and the key of its messages.
        forward: gets each output message, in order; must not block.
        on_news: gets each message of ours that belongs to no cell; must not block.
        lane: where shell messages go once the process takes them there; closed with this.

    Raises:
        OSError: this process can open no more files.
    """

    def __init__(
        self,
        connection: Connection,
        forward: Callable[[Message], None],
        on_news: Callable[[Message], None],
        lane: Lane | None = None,
    ) -> None:
        self._session = Session(key=connection.key, signature_scheme=SIGNATURE_SCHEME, username="nls")
        self._forward = forward
        self._on_news = on_news
        self._expected: dict[str, Expected] = {}
        self._died: ExitStatus | None = None
        self._outputs_heard = 0
        self._loop = asyncio.get_running_loop()
        self._lane = lane
        self._lane_offered = self._lane_is_open = False
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        ends: dict[str, zmq.asyncio.Socket] = {}
        try:
            with ExitStack() as opened:
                self._context = zmq.asyncio.Context()
                opened.callback(self._context.destroy, linger=0)
                for name, kind in _CHANNELS.items():
                    self._sockets[name] = connected = self._connect(kind, connection.address(name))
                    ends[name] = connected.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                opened.pop_all()
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror) from error
        self._sockets["iopub"].subscribe(b"")
        if lane is not None:
            self._loop.add_reader(lane.fileno(), self._read_lane)
        understand = {"iopub": self._on_iopub, "stdin": self._on_stdin}
        self._heard: set[str] = set()
        self._closed = {name: asyncio.Event() for name in _CHANNELS}
        self._tasks = Tasks(_failed)
        for name in _CHANNELS:
            self._tasks.spawn(self._read(name, understand.get(name, self._on_reply)))
            self._tasks.spawn(self._note_the_end(name, ends[name]))

    @property
    def runs_cells(self) -> bool:
        """Whether a cell has been sent, or a widget's message, that is not over yet."""
        return any(expected.runs_code for expected in self._expected.values())

    def close_for_sending(self, status: ExitStatus) -> None:
        """The process is dead: every further request raises GpuProcessDied; its last words may still come."""
        self._died = status

    async def last_words(self) -> None:
        """The process is dead: until all was heard that it has said."""
        try:
            async with asyncio.timeout(_CLOSED_WITHIN_S):
                for channel in sorted(self._heard):
                    await self._closed[channel].wait()
                self._read_lane()
                while self._unread():  # noqa: ASYNC110 - the readers are woken by their sockets, and take all in one go
                    await asyncio.sleep(0)
                await asyncio.sleep(0)
        except TimeoutError:
            _log.warning("The channels to a dead GPU process stayed open; what it said last may be missing.")

    def _unread(self) -> bool:
        return any(int(self._sockets[channel].get(zmq.EVENTS)) & zmq.POLLIN for channel in self._heard)

    def fail_all(self) -> None:
        """Its last words were heard: what still waits for an answer gets none."""
        if self._died is not None:
            for expected in self._expected.values():
                expected.fail(self._died)

    def close(self) -> None:
        """Let go of the sockets."""
        self._tasks.cancel()
        self._context.destroy(linger=0)
        self._leave_lane()
        if self._lane is not None:
            self._lane.close()

    def take_the_lane(self) -> None:
        """The process answers: from now on its shell is asked there, if it takes requests there."""
        self._read_lane()
        self._lane_is_open = self._lane_offered

    def _read_lane(self) -> None:
        if self._lane is None or self._lane.fileno() < 0:
            return
        try:
            for frames in self._lane.arrived():
                if frames == [OPEN]:
                    self._lane_offered = True
                else:
                    self._answered(frames)
        except OSError:  # the process is gone, which is told by its guardian
            self._leave_lane()

    def _answered(self, frames: list[bytes]) -> None:
        try:
            message = lane_messages.unpack(frames)
        except (ValueError, TypeError, KeyError) as error:
            _log.error(_UNREADABLE, error)
        else:
            self._on_reply(message)

    def _leave_lane(self) -> None:
        self._lane_is_open = False
        if self._lane is not None and self._lane.fileno() >= 0:
            self._loop.remove_reader(self._lane.fileno())
            self._loop.remove_writer(self._lane.fileno())

    def _send_by_lane(self, lane: Lane, message: Message, buffers: Sequence[Any]) -> None:
        try:
            if not lane.send([self._session.bsession, *lane_messages.pack(message, buffers)]):
                self._loop.add_writer(lane.fileno(), self._send_rest_by_lane, lane)
        except OSError:
            self._leave_lane()

    def _send_rest_by_lane(self, lane: Lane) -> None:
        try:
            if lane.send_rest():
                self._loop.remove_writer(lane.fileno())
        except OSError:
            self._leave_lane()

    async def ask(
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
        """Send a request; its whole reply, once `expected` is complete. Raises GpuProcessDied."""
        if self._died is not None:
            raise GpuProcessDied(self._died)
        header = self._session.msg_header(msg_type)
        header["msg_id"] = msg_id = msg_id or uuid.uuid4().hex
        if subshell_id is not None:
            header["subshell_id"] = subshell_id
        self._expected[msg_id] = expected
        message = self._session.msg(msg_type, content=dict(content), header=header, metadata=dict(metadata or {}))
        try:
            if self._lane_is_open and channel == "shell" and subshell_id is None and self._lane is not None:
                self._send_by_lane(self._lane, message, buffers)
            else:
                await self._send(channel, message, buffers)
            return await expected.answer
        finally:
            del self._expected[msg_id]

    def reply_on_stdin(self, msg_type: str, content: dict[str, Any]) -> None:
        """Answer what the running cell asked last."""
        if self._died is None:
            self._tasks.spawn(self._send("stdin", self._session.msg(msg_type, content)))

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
            self._heard.add(channel)
            identities = self._understood(frames, understand)
            if channel == "iopub" and identities and identities[0].isdigit():
                self._outputs_heard = int(identities[0])
                for expected in self._expected.values():
                    expected.heard(self._outputs_heard)

    def _understood(self, frames: list[bytes], understand: Callable[[Message], None]) -> Sequence[bytes]:
        """Returns what stood before the message."""
        identities: Sequence[bytes] = ()
        try:
            identities, rest = self._session.feed_identities(frames)
            message = self._session.deserialize(rest)
        except (ValueError, TypeError) as error:
            _log.error(_UNREADABLE, error)
        else:
            understand(message)
        return identities

    async def _note_the_end(self, channel: str, ends: zmq.asyncio.Socket) -> None:
        """Told by the socket once it has taken in all that came before the other side closed it."""
        await ends.recv_multipart()
        self._closed[channel].set()

    def _on_reply(self, message: Message) -> None:
        if expected := self._expected.get(message["parent_header"].get("msg_id", "")):
            expected.replied(message, self._outputs_heard)

    def _on_iopub(self, message: Message) -> None:
        msg_type = message["header"]["msg_type"]
        if msg_type == "status" and message["content"]["execution_state"] == "idle":
            if expected := self._expected.get(message["parent_header"].get("msg_id", "")):
                expected.idle()
        elif msg_type in FORWARDED:
            try:
                self._forward(message)
            except Exception:  # noqa: BLE001 - reported, and one bad output must not cost the next ones
                _log.exception("An output of the GPU process (%s) could not be shown.", msg_type)
        elif msg_type.startswith("nls_"):
            self._on_news(message)

    def _on_stdin(self, message: Message) -> None:
        expected = self._expected.get(message["parent_header"].get("msg_id", ""))
        asks = message["header"]["msg_type"] in ("input_request", *OWN_REQUESTS)
        if not asks or expected is None or expected.on_stdin is None:
            return
        answering = expected.on_stdin(message)
        if inspect.isawaitable(answering):
            self._tasks.spawn(_awaiting(answering))


async def _awaiting(work: Awaitable[None]) -> None:
    await work


def _failed(error: BaseException) -> None:
    _log.error("The channels to a GPU process lost a task.", exc_info=error)
