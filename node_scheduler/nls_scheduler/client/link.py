"""A supervisor's connection to the daemon, which comes back by itself."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING, Any, Final, Self

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClosedError, WebSocketError, websocket_connect

from nls_scheduler.client.answers import refusal_in
from nls_scheduler.client.patience import once_let_in
from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.wire.errors import DaemonUnreachable, Problem, out_of_files
from nls_scheduler.wire.protocol import (
    CLOSE_ENDED,
    CLOSE_REPLACED,
    MAX_BODY_BYTES,
    ONLY_QUERY,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    REPORTS_HEADER,
    SECRET_HEADER,
    CommandMessage,
    DaemonMessage,
    ErrorMessage,
    ViewMessage,
    encode_event,
    parse_daemon_message,
)
from nls_scheduler.wire.trust import check_daemon
from nls_scheduler.wire.unix_resolver import UnixResolver

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from tornado.websocket import WebSocketClientConnection

    from nls_scheduler.client.patience import Patience

CONNECT_TIMEOUT_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0
GROWTH: Final = 1.4
"""A daemon that starts anew is found after a third of the time that it was away, at most."""
STARTS_APART_S: Final = 60.0
"""A daemon that was killed, and does not stay, is started anew so seldom."""
CLOSE_PATIENCE_S: Final = 1.0
# What is told of cells lets the cells themselves go first: a short one has answered by then, and the next one of a
# notebook that is run as a whole has begun.
GO_FIRST_S: Final = {"cell_started": 0.01, "cell_finished": 0.05, "state_saved": 0.05}
_STARTED: Final = encode_event("cell_started", {})
_FINISHED: Final = encode_event("cell_finished", {})
_SAVED: Final = encode_event("state_saved", {"saved_bytes": 0}).partition(",")[0]
_CELLS: Final = frozenset({_STARTED, _FINISHED})
_UNKNOWN: Final = 404
_NOT_YET: Final = 503
_GOES_ON: Final = object()
# Fields of an adoption that only some workloads have, with their names in the status.
_ADOPTED_IF_SET: Final = (("gpus_max", "gpu_count_max"), ("gang", "gang"), ("gang_size", "gang_size"))
_LOST: Final = (HTTPClientError, OSError, StreamClosedError, WebSocketClosedError, WebSocketError)
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """How a workload is, as its supervisor knows it.

    Attributes:
        process: pid and start time of the GPU process, if there is one.
        ready: whether it can be used.
        executing: whether a cell runs or waits.
        saved_bytes: what is saved of its Gpu memory; `None`: nothing.
        frozen_bytes: what of it stands still in host memory; `None`: the process is not frozen.
    """

    process: tuple[int, int] | None = None
    ready: bool = False
    executing: bool = False
    saved_bytes: int | None = None
    frozen_bytes: int | None = None


class SupervisorLink:
    """Orders and views in, facts out, for one workload. Use as `async with`, then `async for message in link`.

    Lost connections come back with growing pauses; facts sent meanwhile are delivered then, in order. A daemon that has
    lost its journal gets the workload back if its GPU process runs. The iteration ends when the workload has ended, and
    raises Problem when the daemon does not know it any more or another supervisor has taken over. An order that the
    daemon repeats after a lost connection is not given out twice: what was answered to it is sent again.
    """

    def __init__(
        self,
        socket: Path,
        workload_id: str,
        report: Callable[[], Report] | None = None,
        adopt: Callable[..., Awaitable[Mapping[str, Any]]] | None = None,
        *,
        only: bool = False,
        patience: Patience | None = None,
        start_again: Callable[[], None] | None = None,
    ) -> None:
        """`report` says how the workload is; `adopt` is `DaemonClient.adopt`; `only`: this process has no other one.

        With `patience` the first connection waits for a daemon that is away for a moment, as all later ones do; for one
        that has too many connections and says when to try again it waits in any case.
        `start_again`, which may block, starts a daemon that was killed and is not back soon.
        """
        self._start_again = start_again
        self._only = only
        self._patience = patience
        self.workload_id = workload_id
        self.on_connection: Callable[[bool], None] | None = None
        """Called in the loop with `connected` whenever that changes after the first connection."""
        self.ended_because: str | None = None
        """Who ended the workload, as the daemon was told; `None`: it has not ended, or by itself."""
        self._socket = socket
        self._resolver = UnixResolver(socket)
        self._connection: WebSocketClientConnection | None = None
        self._told_connected = True
        self._incoming: asyncio.Queue[DaemonMessage | Problem | None] = asyncio.Queue()
        self._outgoing: deque[str] = deque()
        self._to_send = asyncio.Event()
        self._waits: asyncio.TimerHandle | None = None
        self._wished = self._ends_wish = self._follows = self._ended_short = self._untold_end = False
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._report = report
        self._adopt = adopt
        self._secret = ""
        self._view: Mapping[str, Any] | None = None
        self._gpus: Sequence[str] = ()
        self._takes: Sequence[str] = ()
        self._last_order = 0
        self._last_kind = ""
        self._done_order = 0
        self._answers: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._end: Problem | None = None
        self._ended = False

    @property
    def connected(self) -> bool:
        """Whether the daemon can be reached now."""
        return self._connection is not None

    async def __aenter__(self) -> Self:
        """Connect. Raises Problem when the daemon refuses and DaemonUnreachable when it does not answer."""
        first = self._first_connection
        patience = self._patience
        connection = await once_let_in(first if patience is None else lambda: patience.until_answered(first))
        self._connection = connection
        self._task = asyncio.create_task(self._run(connection))
        self._task.add_done_callback(self._tell_defect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """`close`."""
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> DaemonMessage:
        """The next message; the same end again after the end."""
        if not self._ended or not self._incoming.empty():
            message = await self._incoming.get()
            if message is not None and not isinstance(message, Problem):
                return message
            self._ended, self._end = True, message
        if self._end is not None:
            raise self._end
        raise StopAsyncIteration

    async def send(self, event: str, **fields: Any) -> None:
        """Report a fact; returns once it is on its way or kept for the next connection. Raises Problem if malformed."""
        text = encode_event(event, fields)
        if event == "cell_started":
            self._follows = self._take_back_the_end()
            self._untold_end = self._untold_end or self._follows  # a cell that waits is told of more than once
            if self._follows and not self._ended_short:
                return
            self._wished, self._ends_wish = False, self._wished
        elif event == "cell_finished":
            self._ended_short, self._untold_end = self._was_short(), False
            if self._ended_short:
                self._outgoing.pop()
        elif event == "memory_wanted":
            self._wished = True
        elif event == "process_exited" and self._untold_end:
            # Deaths count in a row unless a cell has ended between them.
            self._untold_end = False
            for told in (_FINISHED, _STARTED):
                self._post(told, within_s=0.0)
        if fields.get("command_id") == self._last_order:
            self._answers.append(text)
        if event == "process_exited" or (event != "process_started" and "command_id" in fields):
            self._done_order = max(self._done_order, fields.get("command_id", self._last_order))
        self._post(text, within_s=0.0 if self._yields and event == "cell_finished" else GO_FIRST_S.get(event, 0.0))

    @property
    def _yields(self) -> bool:
        """Whether the daemon waits for the end of a cell."""
        return self._view is not None and self._view.get("yields", False)

    def _take_back_the_end(self) -> bool:
        """A cell follows one whose end is here still: both are one to a daemon that waits for no end.

        Only what was saved behind that may have come between: anything else is to be heard between two cells.
        """
        waits = list(dropwhile(lambda text: text.startswith(_SAVED), reversed(self._outgoing)))
        if self._yields or not waits or waits[0] != _FINISHED:
            return False
        del self._outgoing[len(waits) - 1]
        if not self._outgoing:
            self._let_rest()
        return True

    def _was_short(self) -> bool:
        """A cell by itself has ended whose begin is here still: of one that was on its Gpu the end tells all.

        Unless its begin is the end of a wish for memory, of a cell before it.
        """
        runs = self._view is not None and self._view.get("phase") == "running" and not self._yields
        alone = not self._follows and not self._ends_wish
        return runs and alone and bool(self._outgoing) and self._outgoing[-1] == _STARTED

    def hurry(self) -> None:
        """What is asked of the daemon in another way comes next: what waits for a moment waits no longer."""
        self._to_send.set()

    async def all_sent(self) -> None:
        """Until what was reported so far is on its way, however often the connection has to be made anew.

        What is asked of the daemon in another way comes after it then.
        """
        self.hurry()
        await self._all_sent.wait()

    async def close(self) -> None:
        """Close for good, after a moment in which the daemon takes in what was sent: what is asked of it next is later.

        The workload stays the calling process's.
        """
        if self._task is None:
            return
        self._closing = True
        if self._connection is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_PATIENCE_S):
                    await self.all_sent()
                    if self._connection is not None:
                        self._connection.close()  # answered when all before it was read
                        await asyncio.wait([self._task])
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None

    async def _run(self, connection: WebSocketClientConnection | None) -> None:
        pause_s, warned, may_start_at = FIRST_PAUSE_S, False, 0.0
        while True:
            if connection is not None:
                pause_s, warned = FIRST_PAUSE_S, False
                end = await self._converse(connection)
                if self._closing:
                    return
                if end is not _GOES_ON:
                    self._incoming.put_nowait(end if isinstance(end, Problem) else None)
                    return
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads reconnects, no secret
            pause_s = min(LONGEST_PAUSE_S, pause_s * GROWTH)
            connection = None
            try:
                connection = await self._connect()
            except _LOST:
                if pause_s == LONGEST_PAUSE_S and monotonic_s() >= may_start_at:
                    await self._have_it_started()
                    may_start_at = monotonic_s() + STARTS_APART_S
                continue
            except DaemonUnreachable as error:  # another user's
                if not warned:
                    log.warning("%s", error)
                warned = True
            except Problem as problem:
                if problem.status == _UNKNOWN and await self._bring_back():
                    continue
                self._incoming.put_nowait(problem)
                return

    async def _have_it_started(self) -> None:
        try:
            if self._start_again is not None:
                await asyncio.to_thread(self._start_again)
        except DaemonUnreachable as error:
            log.warning("%s", error)

    async def _bring_back(self) -> bool:
        """The daemon has lost its journal: tell it of the workload, if that has a GPU process to lose."""
        report, view = None if self._report is None else self._report(), self._view
        if self._adopt is None or view is None or report is None or report.process is None or not report.ready:
            return False
        pid, start_time = report.process
        try:
            await self._adopt(
                self.workload_id,
                only=self._only,
                **({"secret": self._secret} if self._secret else {}),
                **{name: view[name] for name in ("kind", "name", "priority", "requeue")},
                request=f"{view['request_bytes']}B",
                limit=f"{view['limit_bytes']}B",
                pools=",".join(view["pools"]),
                gpus=view["gpu_count"],
                **{name: view[key] for name, key in _ADOPTED_IF_SET if view.get(key) is not None},
                current=list(self._gpus or view["current"]),
                command_id=self._last_order,
                pid=pid,
                start_time=start_time,
                executing=report.executing,
                saved_bytes=report.saved_bytes,
                **({} if report.frozen_bytes is None else {"frozen_bytes": report.frozen_bytes}),
            )
        except DaemonUnreachable:
            return True  # it has gone again; the next connection tells
        except Problem as refusal:
            if refusal.status == _NOT_YET or refusal.retry_after_s is not None:
                return True  # a daemon that has just started, or has many of its user's here, asks to be asked again
            log.warning("the daemon does not take workload %s up again: %s", self.workload_id, refusal)
            return False
        return True

    async def _first_connection(self) -> WebSocketClientConnection:
        try:
            return await self._connect()
        except _LOST as error:
            if isinstance(error, HTTPClientError) and (refusal := refusal_in(error)) is not None:
                raise refusal from error
            why = f"The daemon at {self._socket} does not answer ({error})."
            raise out_of_files(error) or DaemonUnreachable(why, may_come=True) from error

    async def _connect(self) -> WebSocketClientConnection:
        request = HTTPRequest(
            f"ws://nls/v1/workloads/{self.workload_id}/supervisor{ONLY_QUERY if self._only else ''}",
            headers={PROTOCOL_HEADER: str(PROTOCOL_VERSION)},
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=CONNECT_TIMEOUT_S,
        )
        try:
            connection = await websocket_connect(request, resolver=self._resolver, max_message_size=MAX_BODY_BYTES)
        except HTTPClientError as error:
            refusal = refusal_in(error)
            if refusal is None or refusal.status not in (400, 403, 404, 409):
                raise
            raise refusal from error
        try:
            check_daemon(_socket(connection), self._socket)
        except DaemonUnreachable:
            _hang_up(connection)
            raise
        # Told at each connection: who began with another daemon, or another key, has this one's from then on.
        told = connection.headers
        self._secret = self._secret if told is None else told.get(SECRET_HEADER, self._secret)
        self._takes = () if told is None else told.get(REPORTS_HEADER, "").split()
        return connection

    async def _converse(self, connection: WebSocketClientConnection) -> object:
        """Send and receive until the connection is gone. Returns the end, or _GOES_ON to connect again."""
        self._connection = connection
        self._tell_connection(connected=True)
        # Before any order is read: an order that has just come is not one that this report knows of.
        report = None if self._report is None else self._reported(self._report())
        if report is not None:
            # It says whether a cell runs. One that began before would wake up what its user has suspended since.
            self._outgoing = deque(text for text in self._outgoing if text not in _CELLS)
        sender = asyncio.create_task(self._send_all(connection, report))
        sender.add_done_callback(self._tell_defect)
        try:
            while (text := await connection.read_message()) is not None:
                self._take(text)
        finally:
            self._connection = None
            sender.cancel()
            with suppress(asyncio.CancelledError):
                await sender
            _hang_up(connection)
        if connection.close_code == CLOSE_ENDED:
            self.ended_because = connection.close_reason or None
            return None
        if connection.close_code == CLOSE_REPLACED:
            return Problem(409, "Replaced", "Another process has taken over this workload.")
        self._tell_connection(connected=False)
        return _GOES_ON

    def _tell_defect(self, task: asyncio.Task[None]) -> None:
        """Whoever iterates must not wait for ever for a task that failed."""
        if not task.cancelled() and (error := task.exception()) is not None:
            detail = f"The link to the daemon failed, please report it: {type(error).__name__}: {error}"
            self._incoming.put_nowait(Problem(500, "Defect of the client", detail))

    def _tell_connection(self, *, connected: bool) -> None:
        changed, self._told_connected = connected != self._told_connected, connected
        if changed and self.on_connection is not None:
            self.on_connection(connected)

    def _post(self, *texts: str, within_s: float = 0.0) -> None:
        self._outgoing.extend(texts)
        if not self._outgoing:
            return
        self._all_sent.clear()
        if not within_s:
            self._to_send.set()
            return
        loop = asyncio.get_running_loop()
        if self._waits is None or loop.time() + within_s < self._waits.when():
            self._forget_wait()
            self._waits = loop.call_later(within_s, self._to_send.set)

    def _let_rest(self) -> None:
        """Nothing is to be sent."""
        self._forget_wait()
        self._all_sent.set()

    def _forget_wait(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None

    def _take(self, text: str | bytes) -> None:
        try:
            message = parse_daemon_message(text)
        except ValueError as error:
            message = ErrorMessage(Problem(502, "Unreadable message", str(error), "server"))
        if isinstance(message, ViewMessage):
            self._view = message.view
            if self._yields:
                self.hurry()
        if isinstance(message, CommandMessage):
            if message.command_id < self._last_order:
                return  # by a journal that has lost its end: the report tells what has become of it
            self._gpus = message.gpus or self._gpus
            if message.command_id == self._last_order:
                self._post(*(answer for answer in self._answers if answer not in self._outgoing))
                return
            self._last_order, self._last_kind, self._answers = message.command_id, message.command, []
        self._incoming.put_nowait(message)

    def _reported(self, report: Report) -> str:
        pid, start_time = report.process or (None, None)
        fields = {"pid": pid, "start_time": start_time, "ready": report.ready, "executing": report.executing}
        known = {key: value for key, value in fields.items() if value is not None}
        sizes = {"saved_bytes": report.saved_bytes, "frozen_bytes": report.frozen_bytes}
        saved = {key: size for key, size in sizes.items() if size is not None}
        answered = {"command_id": self._done_order, "received": self._last_order}
        doing = self._last_kind.partition("_")[0] if self._done_order < self._last_order else ""
        there = {"gpus": list(self._gpus) if report.process or doing == "start" else [], "doing": doing}
        where = {name: value for name, value in there.items() if name in self._takes}
        return encode_event("reported", {**answered, **known, **saved, **where})

    async def _send_all(self, connection: WebSocketClientConnection, report: str | None) -> None:
        if report is not None:
            try:
                await connection.write_message(report)
            except (WebSocketClosedError, StreamClosedError):
                return
        while True:
            while self._outgoing:
                # While it is written, nobody takes it for what is still to be sent.
                text = self._outgoing.popleft()
                try:
                    await connection.write_message(text)
                except (WebSocketClosedError, StreamClosedError):
                    self._outgoing.appendleft(text)  # kept for the next connection
                    return
                except asyncio.CancelledError:
                    self._outgoing.appendleft(text)
                    raise
            self._let_rest()
            self._to_send.clear()
            await self._to_send.wait()


def _socket(connection: WebSocketClientConnection) -> socket.socket:
    """What it goes through. Raises WebSocketClosedError when it is closed already."""
    protocol = connection.protocol
    if protocol is None or protocol.stream is None or protocol.stream.socket is None:
        raise WebSocketClosedError
    connected: socket.socket = protocol.stream.socket
    return connected


def _hang_up(connection: WebSocketClientConnection) -> None:
    """Close the socket itself too: the loop may end before a closing handshake does."""
    protocol = connection.protocol  # `close` forgets it
    connection.close()
    if protocol is not None and protocol.stream is not None:
        protocol.stream.close()
