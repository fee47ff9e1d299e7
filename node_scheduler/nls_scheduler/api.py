"""HTTP and WebSocket handlers: each parses, calls the daemon, and renders."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from tornado import web, websocket
from tornado.iostream import StreamClosedError

from nls_scheduler.clock import boottime_s
from nls_scheduler.errors import CONTENT_TYPE, Problem
from nls_scheduler.model import WorkloadId
from nls_scheduler.peers import Peer
from nls_scheduler.protocol import MAX_BODY_BYTES, parse_object
from nls_scheduler.sessions import Session

if TYPE_CHECKING:
    from types import TracebackType

    from tornado.http1connection import HTTP1Connection

    from nls_scheduler.daemon import Daemon

Failure = tuple[type[BaseException] | None, BaseException | None, "TracebackType | None"]
_ID: Final = r"/v1/workloads/([^/]+)"
log = logging.getLogger(__name__)


class Answering(web.RequestHandler):
    """What all handlers share: the daemon, who asks, and problems as problem objects."""

    daemon: Daemon
    peer: Peer | None = None

    def initialize(self, daemon: Daemon) -> None:
        """Tornado calls this for each request."""
        self.daemon = daemon
        self.set_header("Server", "nls")

    def prepare(self) -> None:
        """Learn who asks before anything of the body is read."""
        connection = cast("HTTP1Connection", self.request.connection)
        self.peer = Peer.of(connection.stream.socket)
        self.daemon.active_at = boottime_s()

    @property
    def caller(self) -> Peer:
        """Who asks; valid until the request has been answered."""
        if self.peer is None:
            raise Problem(500, "Defect of the daemon", "A request was handled before its caller was known.", "server")
        return self.peer

    def on_finish(self) -> None:
        """Give the caller's pidfd back."""
        if self.peer is not None:
            self.peer.close()
            self.peer = None

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Tornado's way to answer an exception; a Problem brings its own status."""
        error = cast("Failure", kwargs.get("exc_info", (None, None, None)))[1]
        super().send_error(error.status if isinstance(error, Problem) else status_code, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Every error is a problem object."""
        error = cast("Failure", kwargs.get("exc_info", (None, None, None)))[1]
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish((error if isinstance(error, Problem) else self._problem(status_code)).as_json())

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """The caller's mistakes are no news for the log."""
        if isinstance(value, Problem):
            log.debug("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    def answer(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        """`value` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value) + "\n")

    def _problem(self, status_code: int) -> Problem:
        title = responses.get(status_code, "Error")
        if status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            return Problem(status_code, title, f"{self.request.method} is not possible on {self.request.path}.")
        if status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Problem(status_code, title, "The request could not be read: check its form.")
        detail = "A defect of the daemon, please report it with its log."
        return Problem(status_code, "Defect of the daemon", detail, "server")


class NotFound(Answering):
    """Any path that is not ours."""

    def prepare(self) -> None:
        """Refuse."""
        raise Problem(404, "No such resource", f"There is nothing at {self.request.path[:200]!r}: see /v1/status.")


class Livez(Answering):
    """`GET /livez`: the loop runs."""

    def get(self) -> None:
        """Answer."""
        self.answer({"live": True})


class Readyz(Answering):
    """`GET /readyz`: the Gpus can be seen (or there are none)."""

    def get(self) -> None:
        """200, or 503 with the reason."""
        why_not = self.daemon.not_ready
        if why_not is not None:
            raise Problem(503, "Not ready", why_not, "node")
        self.answer({"ready": True})


class Status(Answering):
    """`GET /v1/status`."""

    def get(self) -> None:
        """The node."""
        self.answer(self.daemon.status())


class Entries(Answering):
    """`GET /v1/history`."""

    def get(self) -> None:
        """What happened, oldest first."""
        self.answer({"entries": self.daemon.history.entries()})


class Stream(Answering):
    """`GET /v1/events`: the history's entries as they happen, one JSON object per line."""

    queue: asyncio.Queue[dict[str, Any] | None] | None = None

    async def get(self) -> None:
        """Until the client goes, the daemon ends, or the client lags too far behind."""
        self.set_header("Content-Type", "application/x-ndjson")
        self.queue = self.daemon.history.follow()
        try:
            await self.flush()
            while (entry := await self.queue.get()) is not None:
                self.write(json.dumps(entry) + "\n")
                await self.flush()
        except StreamClosedError:
            pass  # the client has gone, which is how a stream ends
        finally:
            self.daemon.history.unfollow(self.queue)

    def on_connection_close(self) -> None:
        """The client has gone."""
        if self.queue is not None:
            self.daemon.history.unfollow(self.queue)


@web.stream_request_body
class WithBody(Answering):
    """A handler whose body is a small JSON object; a large one is refused before it is read."""

    SUPPORTED_METHODS: ClassVar = ("POST", "PATCH", "DELETE")  # type: ignore[misc] # tornado annotates an instance

    def prepare(self) -> None:
        """Refuse a body that is announced as too large."""
        super().prepare()
        self.received = bytearray()
        announced = self.request.headers.get("Content-Length", "0")
        if announced.isdigit() and int(announced) > MAX_BODY_BYTES:
            self._refuse_large()

    def on_connection_close(self) -> None:
        """The client went in the middle of its body: tornado then neither runs nor finishes the handler."""
        self.on_finish()

    def data_received(self, chunk: bytes) -> None:
        """Collect the body, and of one that turns out too large only what shows that it is."""
        self.received += chunk[: MAX_BODY_BYTES + 1 - len(self.received)]

    def fields(self) -> dict[str, Any]:
        """The body's fields; none for an empty body. Raises Problem."""
        if len(self.received) > MAX_BODY_BYTES:
            self._refuse_large()
        return parse_object(bytes(self.received)) if self.received else {}

    def _refuse_large(self) -> None:
        raise Problem(413, "Body too large", f"A body may have at most {MAX_BODY_BYTES} bytes: send less.")


class Workloads(WithBody):
    """`POST /v1/workloads`: submit."""

    def post(self) -> None:
        """201 with the new workload's status entry."""
        workload_id = self.daemon.submit(self.fields(), self.caller)
        self.set_header("Location", f"/v1/workloads/{workload_id}")
        self.answer(self.daemon.view(workload_id), HTTPStatus.CREATED)


class Workload(WithBody):
    """`PATCH` and `DELETE /v1/workloads/{id}`."""

    def patch(self, workload_id: str) -> None:
        """Change what it asks for; answers its status entry."""
        self.daemon.respecify(WorkloadId(workload_id), self.fields(), self.caller)
        self.answer(self.daemon.view(WorkloadId(workload_id)))

    def delete(self, workload_id: str) -> None:
        """Release it; its record ends when its process has."""
        self.daemon.release(WorkloadId(workload_id), self.caller)
        self.answer({"released": workload_id}, HTTPStatus.ACCEPTED)


class Act(WithBody):
    """`POST /v1/workloads/{id}/suspend` and `/resume`."""

    def post(self, workload_id: str, action: str) -> None:
        """Answers its status entry: what was asked for is then under way, not done."""
        act = self.daemon.suspend if action == "suspend" else self.daemon.resume
        act(WorkloadId(workload_id), self.caller)
        self.answer(self.daemon.view(WorkloadId(workload_id)), HTTPStatus.ACCEPTED)


class Supervisor(Answering, websocket.WebSocketHandler):
    """The WebSocket of one workload's supervisor."""

    session: Session | None = None
    sender: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Refuse strangers before the protocol is switched."""
        super().prepare()
        self.daemon.check_supervisor(WorkloadId(self.path_args[0]), self.caller)

    def open(self, workload_id: str) -> None:
        """The connection stands."""
        self.session = Session(WorkloadId(workload_id), self.caller, self.close)
        self.sender = asyncio.ensure_future(self.session.run(self.daemon.encode, self._send))
        self.daemon.attach(self.session)

    def on_message(self, message: str | bytes) -> None:
        """One fact, or nonsense."""
        if self.session is not None:
            self.daemon.hear(self.session, message)

    def on_finish(self) -> None:
        """Tornado calls this when the protocol is switched, too; the caller is then needed until the end."""
        if self.get_status() != HTTPStatus.SWITCHING_PROTOCOLS:
            super().on_finish()

    def on_close(self) -> None:
        """The connection is gone; the process may well live."""
        if self.sender is not None:
            self.sender.cancel()
        if self.session is not None:
            self.daemon.detach(self.session)
        Answering.on_finish(self)

    async def _send(self, text: str) -> None:
        try:
            await self.write_message(text)
        except websocket.WebSocketClosedError:
            log.debug("not sent, the supervisor has gone: %.200s", text)


def application(daemon: Daemon) -> web.Application:
    """All routes."""
    settings = {"daemon": daemon}
    return web.Application(
        [
            (r"/livez", Livez, settings),
            (r"/readyz", Readyz, settings),
            (r"/v1/status", Status, settings),
            (r"/v1/history", Entries, settings),
            (r"/v1/events", Stream, settings),
            (r"/v1/workloads", Workloads, settings),
            (_ID, Workload, settings),
            (rf"{_ID}/(suspend|resume)", Act, settings),
            (rf"{_ID}/supervisor", Supervisor, settings),
        ],
        default_handler_class=NotFound,
        default_handler_args=settings,
        websocket_max_message_size=MAX_BODY_BYTES,
        log_function=lambda handler: log.debug("%s %s", handler.get_status(), handler.request.uri),
    )
