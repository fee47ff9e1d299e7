"""The daemon's client: requests, the stream of events, and a supervisor's link. Runs in any asyncio loop."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tornado.httpclient import HTTPClientError, HTTPError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from nls_scheduler.client.answers import refusal_in
from nls_scheduler.client.link import Report, SupervisorLink
from nls_scheduler.client.patience import once_let_in
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable, out_of_files
from nls_scheduler.wire.hanging_up import HangingUp
from nls_scheduler.wire.holder import holder_of
from nls_scheduler.wire.protocol import ONLY_QUERY, PROTOCOL_HEADER, PROTOCOL_VERSION
from nls_scheduler.wire.told import read_told
from nls_scheduler.wire.unix_resolver import TrustedConnections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from tornado.httpclient import HTTPResponse

    from nls_scheduler.client.patience import Patience

REQUEST_TIMEOUT_S: Final = 20.0
CONNECT_TIMEOUT_S: Final = 5.0
_NO_ANSWER: Final = "Timeout during request"
"""What Tornado's client says when it was connected."""
_BASE: Final = "http://nls"
_HEADERS: Final = {PROTOCOL_HEADER: str(PROTOCOL_VERSION)}


class DaemonClient:
    """One daemon, by its socket. Every call is one connection; the daemon knows the caller from it.

    Raises DaemonUnreachable when no daemon answers and Problem when it refuses, with a sentence for the user.
    """

    def __init__(self, socket: Path, patience: Patience | None = None, *, starts_again: bool = False) -> None:
        """`socket` is a path that `locate` gave; nothing is connected yet.

        With `patience` requests wait for a daemon that is away for a moment, and are made again where their answer was
        lost. A submission that was made twice ends when its process has a link with `only`. With `starts_again` whoever
        waits for a daemon that was killed starts it anew.
        """
        self.socket = socket
        self._patience = patience
        self._start_again = partial(locate.start_again, socket) if starts_again else None

    @classmethod
    async def connect(
        cls, socket: Path | None = None, *, may_start: bool = True, patience: Patience | None = None
    ) -> DaemonClient:
        """A client of the daemon at `socket`, or of the one `locate` finds, or (`may_start`) of a new one."""
        seek = locate.find_or_start if may_start else locate.find

        def found() -> tuple[Path, bool]:
            path = seek(socket)
            holder = holder_of(path) if may_start else None
            return path, holder is not None and locate.has_come_unasked(holder)

        if patience is None:
            path, unasked = await asyncio.to_thread(found)
        else:
            path, unasked = await patience.until_answered(lambda: asyncio.to_thread(found))
        return cls(path, patience, starts_again=unasked)

    async def status(self) -> dict[str, Any]:
        """The node: Gpus and workloads, as `nls status --json` prints it."""
        return await self._request("GET", "/v1/status")

    async def submit(self, **fields: Any) -> dict[str, Any]:
        """A new workload, from the fields of a submission in `openapi.json`; `kind` is needed. Its status entry.

        It belongs to the calling process: when that ends, the workload ends. Where the daemon says when to try again,
        it is tried again then (`once_let_in`).
        """
        answer = await once_let_in(lambda: self._answer("POST", "/v1/workloads", fields))
        view: dict[str, Any] = read_told(answer.body)
        return view

    async def adopt(self, workload_id: str, *, only: bool = False, **fields: Any) -> dict[str, Any]:
        """Bring back a workload that the daemon no longer knows, with its running GPU process; its status entry.

        `fields` are those of `submit`, and `command_id`, `pid`, `start_time`, `current`, `executing`, `saved_bytes`,
        and the `secret` that its supervisor was told; `only`: this process has no other one.
        """
        path = f"/v1/workloads/{workload_id}{ONLY_QUERY if only else ''}"
        view: dict[str, Any] = read_told((await self._ask("PUT", path, fields)).body)  # a link asks again by itself
        return view

    async def patch(self, workload_id: str, **fields: Any) -> dict[str, Any]:
        """Change what a workload asks for; its status entry."""
        return await self._request("PATCH", f"/v1/workloads/{workload_id}", fields)

    async def release(self, workload_id: str, reason: str = "") -> None:
        """End a workload; its supervisor is told to stop the GPU process. `reason`: for its history."""
        why = f"?reason={_quoted(reason)}" if reason else ""
        await self._request("DELETE", f"/v1/workloads/{workload_id}{why}")

    async def suspend(self, workload_id: str) -> dict[str, Any]:
        """Take a notebook off its Gpu until its next cell; its status entry."""
        return await self._request("POST", f"/v1/workloads/{workload_id}/suspend", {})

    async def resume(self, workload_id: str) -> dict[str, Any]:
        """Bring a notebook back; its status entry."""
        return await self._request("POST", f"/v1/workloads/{workload_id}/resume", {})

    async def explain(self, workload_id: str) -> dict[str, Any]:
        """Why a workload is where it is, what it waits for, and what would help."""
        return await self._request("GET", f"/v1/workloads/{workload_id}/explanation")

    async def migrate(self, workload_id: str, gpu: str) -> dict[str, Any]:
        """Move a workload to a Gpu (UUID or index), at the end of its cell; its status entry."""
        return await self._request("POST", f"/v1/workloads/{workload_id}/migrate", {"gpu": gpu})

    async def return_gpu(self, gpu: str) -> dict[str, Any]:
        """An administrator's word that a Gpu (UUID or index) is well again; its status entry."""
        return await self._request("POST", f"/v1/gpus/{_quoted(gpu)}/return", {})

    async def may_start(self, *, gives_up: bool = False) -> dict[str, Any]:
        """Whether the Gpus of the calling process's pod are vacated (`Start` in `openapi.json`).

        `gives_up`: the pod starts whatever the answer is.
        """
        return await self._request("POST", "/v1/start", {"gives_up": gives_up})

    async def history(self) -> list[dict[str, Any]]:
        """What happened on the node, oldest first."""
        answer = await self._request("GET", "/v1/history")
        entries: list[dict[str, Any]] = answer["entries"]
        return entries

    async def ready(self) -> None:
        """Return if the daemon can do its work. Raises Problem with the reason."""
        await self._request("GET", "/readyz")

    async def events(
        self, *, passive: bool = False, began: Callable[[], None] = lambda: None
    ) -> AsyncIterator[dict[str, Any]]:
        """The history's entries as they happen. Raises DaemonUnreachable when the daemon ends.

        Args:
            passive: a per-user daemon that nobody else needs may end meanwhile.
            began: called, maybe more than once, when the daemon has answered: whatever happens from then on comes.
        """
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        buffer = bytearray()

        def receive(chunk: bytes) -> None:
            buffer.extend(chunk)
            while (end := buffer.find(b"\n")) >= 0:
                lines.put_nowait(bytes(buffer[:end]))
                del buffer[: end + 1]

        http = SimpleAsyncHTTPClient(force_instance=True)
        http.tcp_client = connections = _Connections(self.socket)
        request = HTTPRequest(
            f"{_BASE}/v1/events{'?passive=true' if passive else ''}",
            headers=_HEADERS,
            request_timeout=0,
            connect_timeout=CONNECT_TIMEOUT_S,
            header_callback=lambda _: began(),
            streaming_callback=receive,
        )
        fetch = asyncio.ensure_future(http.fetch(request))
        fetch.add_done_callback(lambda _: lines.put_nowait(None))
        try:
            while (line := await lines.get()) is not None:
                yield read_told(line)
            await self._outcome(fetch, buffer)
            raise self._unreachable("it has ended")
        finally:
            # Closing the connection ends the fetch with an error that nobody is interested in any more.
            http.close()
            connections.hang_up()
            with suppress(asyncio.CancelledError, HTTPError, StreamClosedError, OSError):
                await fetch

    def supervise(
        self, workload_id: str, report: Callable[[], Report] | None = None, *, only: bool = False
    ) -> SupervisorLink:
        """The link of a workload's supervisor: `async with client.supervise(…) as link: async for message in link`.

        `report` says how the workload is; it is asked at each connection, so that a daemon that was away knows.
        `only`: this process has no other workload; what the daemon still knows of one is over.
        """
        again, patience = self._start_again, self._patience
        return SupervisorLink(
            self.socket, workload_id, report, self.adopt, only=only, patience=patience, start_again=again
        )

    async def _request(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
        answer: dict[str, Any] = read_told((await self._answer(method, path, fields)).body)
        return answer

    async def _answer(self, method: str, path: str, fields: Mapping[str, Any] | None) -> HTTPResponse:
        if self._patience is None:
            return await self._ask(method, path, fields)
        return await self._patience.until_answered(lambda: self._ask_or_start(method, path, fields), self._not_yet)

    def _not_yet(self) -> str:
        holder = holder_of(self.socket)
        why = f": {holder}" if holder is not None and holder.stopped else ""
        return f"the daemon at {self.socket} has not answered yet{why}"

    async def _ask_or_start(self, method: str, path: str, fields: Mapping[str, Any] | None) -> HTTPResponse:
        try:
            return await self._ask(method, path, fields)
        except DaemonUnreachable:
            if self._start_again is None:
                raise
            await asyncio.to_thread(self._start_again)
        return await self._ask(method, path, fields)

    async def _ask(self, method: str, path: str, fields: Mapping[str, Any] | None) -> HTTPResponse:
        http = SimpleAsyncHTTPClient(force_instance=True)
        http.tcp_client = connections = _Connections(self.socket)
        request = HTTPRequest(
            _BASE + path,
            method=method,
            headers=_HEADERS,
            body=None if fields is None else json.dumps(fields),
            request_timeout=REQUEST_TIMEOUT_S,
            connect_timeout=CONNECT_TIMEOUT_S,
        )
        fetch = asyncio.ensure_future(http.fetch(request))
        # Tornado logs what a fetch that was cancelled ends with: whoever gives up waiting leaves it to its end.
        fetch.add_done_callback(lambda over: over.cancelled() or over.exception())
        try:
            return await self._outcome(asyncio.shield(fetch))
        finally:
            connections.hang_up()  # or the daemon would act on what nobody waits for any more
            http.close()

    async def _outcome(self, fetch: asyncio.Future[HTTPResponse], received: bytearray | None = None) -> HTTPResponse:
        """The answer of `fetch`, or what it says; `received`: its body, where that was taken as it came."""
        try:
            return await fetch
        except HTTPClientError as error:
            if isinstance(error, HTTPTimeoutError) and error.message == _NO_ANSWER:
                holder = holder_of(self.socket)
                why = "its process is stopped or overloaded, or its machine is"
                if holder is not None and holder.stopped:
                    why = str(holder)
                raise DaemonUnreachable(
                    f"The daemon at {self.socket} has not answered within {REQUEST_TIMEOUT_S:g} s: "
                    f"{why}; nothing else can serve there meanwhile."
                ) from error
            if (refusal := refusal_in(error, bytes(received or b""))) is None:
                raise self._unreachable(error.message or str(error)) from error
            raise refusal from error
        except (OSError, StreamClosedError) as error:
            raise out_of_files(error) or self._unreachable(str(error)) from error

    def _unreachable(self, why: str) -> DaemonUnreachable:
        holder = holder_of(self.socket)
        advice = "`nls up` starts one" if holder is None else str(holder)
        return DaemonUnreachable(f"The daemon at {self.socket} does not answer ({why}): {advice}.", may_come=True)


class _Connections(HangingUp, TrustedConnections):
    """To the daemon, which would go on with what nobody waits for any more."""


def _quoted(word: str) -> str:
    r"""As a part of an address; bytes of a command line that are no text as Python shows them: `\udcff`."""
    return quote(word, safe="", errors="backslashreplace")
