"""What all HTTP handlers share: who asks, which protocol, small bodies, and problems as problem objects."""

from __future__ import annotations

import asyncio
import json
import logging
import select
from http import HTTPStatus
from http.client import responses
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from tornado import web

from nls_scheduler.daemon.http.fairness import Fairness, in_line
from nls_scheduler.daemon.peers import Peer
from nls_scheduler.units.clock import awake_s
from nls_scheduler.wire.errors import CONTENT_TYPE, Problem, malformed
from nls_scheduler.wire.protocol import (
    MAX_BODY_BYTES,
    ONLY_ARGUMENT,
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    check_version,
    clean_text,
    parse_object,
)

if TYPE_CHECKING:
    from types import TracebackType

    from tornado.http1connection import HTTP1Connection
    from tornado.iostream import IOStream

    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.daemon.daemon import Daemon

_METHODS: Final = frozenset({"get", "post", "put", "patch", "delete"})
Failure = tuple[type[BaseException] | None, BaseException | None, "TracebackType | None"]
LINGER_S: Final = 1.0
"""How long the rest of a body that was refused is thrown away before the connection is closed."""
log = logging.getLogger(__name__)


class Answering(web.RequestHandler):
    """The daemon, who asks, and problems as problem objects."""

    SUPPORTED_METHODS: ClassVar = ("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS")  # type: ignore[misc] # tornado annotates an instance
    counts_as_use: ClassVar = True
    """Whether somebody who asks this keeps a per-user daemon from ending."""

    daemon: Daemon
    fairness: Fairness
    peer: Peer | None = None
    _identified: bool = False

    def __init_subclass__(cls) -> None:
        """Nothing that a handler does is begun before it is its caller's turn."""
        for name in _METHODS & vars(cls).keys():
            setattr(cls, name, in_line(vars(cls)[name]))

    def initialize(self, daemon: Daemon, fairness: Fairness) -> None:
        """Tornado calls this for each request."""
        self.daemon, self.fairness = daemon, fairness

    def set_default_headers(self) -> None:
        """Tornado calls this for each request and again for each error."""
        self.set_header("Server", "nls")
        self.set_header(PROTOCOL_HEADER, str(PROTOCOL_VERSION))

    def prepare(self) -> None:
        """Learn who asks, and in which protocol, before anything of the body is read."""
        connection = cast("HTTP1Connection", self.request.connection)
        if connection.stream.closed():
            raise _gone()
        self.peer = Peer.of(connection.stream.socket, self.daemon.access.admin_gid)
        if self.counts_as_use:
            self.daemon.active_at = awake_s()
        check_version(self.request.headers.get(PROTOCOL_HEADER))
        for said in self.get_query_arguments("protocol"):
            check_version(said, "protocol")

    @property
    def caller(self) -> Peer:
        """Who asks; valid until the request has been answered."""
        if self.peer is None:
            raise Problem(500, "Defect of the daemon", "A request was handled before its caller was known.", "server")
        if not self._identified:
            if _hung_up(cast("HTTP1Connection", self.request.connection).stream):
                raise _gone()
            # Not before the body is read: a refusal would close the connection while the caller still writes.
            self.peer, self._identified = self.daemon.identified(self.peer), True
        return self.peer

    @property
    def is_only(self) -> bool:
        """Whether the calling process says that it looks after no other workload."""
        return self.get_query_argument(ONLY_ARGUMENT, "") == "true"

    def number(self, name: str, most: int) -> int:
        """A whole number of the query, from 1 to `most`, which is also what it is when not said. Raises Problem."""
        found = most
        for said in self.get_query_arguments(name):
            found = int(said) if said.isascii() and said.isdecimal() and len(said) <= len(str(most)) else 0
            if not 1 <= found <= most:
                raise malformed(f"{name} is a whole number from 1 to {most}, not {clean_text(said)[:100]!r}.")
        return found

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
        if status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            self.set_header("Allow", ", ".join(self._methods()))
        if status_code == HTTPStatus.UPGRADE_REQUIRED:
            self.set_header("Upgrade", "websocket")
        if isinstance(error, Problem) and error.retry_after_s is not None:
            self.set_header("Retry-After", str(error.retry_after_s))
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish((error if isinstance(error, Problem) else self._problem(status_code)).as_json())

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """The caller's mistakes are no news for the log, nor who still waited when the daemon ends."""
        is_refusal = isinstance(value, web.HTTPError) and _is_the_callers(value.status_code)
        if is_refusal or isinstance(value, Problem | asyncio.CancelledError):
            log.debug("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    def answer(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        """`value` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value) + "\n")

    def answer_entry(self, workload: WorkloadId, status: HTTPStatus = HTTPStatus.OK) -> None:
        """A workload's status entry, as far as the caller may read it."""
        self.answer(self.daemon.view(workload, self.caller), status)

    def _methods(self) -> list[str]:
        return [name for name in ("GET", "POST", "PUT", "PATCH", "DELETE") if _implements(type(self), name.lower())]

    def _problem(self, status_code: int) -> Problem:
        title = responses.get(status_code, "Error")
        if status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            there = ", ".join(self._methods()) or "nothing"
            detail = f"{self.request.method} is not possible on {self.request.path[:200]}: {there} is."
            return Problem(status_code, title, detail)
        if _is_the_callers(status_code):
            return Problem(status_code, title, "The request could not be read: check its form.")
        detail = "A defect of the daemon, please report it with its log."
        return Problem(status_code, "Defect of the daemon", detail, "server")


def _implements(handler: type[web.RequestHandler], method: str) -> bool:
    return getattr(handler, method) is not getattr(web.RequestHandler, method)


def _is_the_callers(status_code: int) -> bool:
    return status_code < HTTPStatus.INTERNAL_SERVER_ERROR


class NotFound(Answering):
    """Any path that is not ours."""

    def prepare(self) -> None:
        """Refuse."""
        raise Problem(
            404, "No such resource", f"There is nothing at {self.request.path[:200]!r}: see /v1/openapi.json."
        )


@web.stream_request_body
class WithBody(Answering):
    """A handler whose body is a small JSON object; a large one is refused before or while it arrives."""

    def prepare(self) -> None:
        """Refuse a body that is announced as too large."""
        super().prepare()
        self.received = bytearray()
        self._linger: asyncio.TimerHandle | None = None
        if _number_in(self.request.headers.get("Content-Length", "0")) > MAX_BODY_BYTES:
            if "Expect" in self.request.headers:
                raise _too_large()
            self._refuse()

    def on_connection_close(self) -> None:
        """The client went: in the middle of its body tornado then neither runs nor finishes the handler.

        One that runs still needs its caller, whose pidfd's number would be somebody else's.
        """
        if not self._identified:
            self.on_finish()

    def on_finish(self) -> None:
        """Nothing is waited for any more."""
        if getattr(self, "_linger", None) is not None:
            cast("asyncio.TimerHandle", self._linger).cancel()
            self._linger = None
        super().on_finish()

    def data_received(self, chunk: bytes) -> None:
        """Collect the body; what comes after a refusal is thrown away."""
        if self._linger is not None:
            return
        self.received += chunk[: MAX_BODY_BYTES + 1 - len(self.received)]
        if len(self.received) > MAX_BODY_BYTES:
            self._refuse()

    def fields(self) -> dict[str, Any]:
        """The body's fields. Raises Problem."""
        if not self.received:
            raise malformed("A body is needed: send one JSON object.")
        return parse_object(bytes(self.received))

    def _refuse(self) -> None:
        """Answer now and close later: a client in the middle of its body would lose the answer with its connection."""
        body = _too_large().as_json()
        for method in ("post", "put", "patch", "delete"):
            setattr(self, method, self._end_of_refused)
        self.set_status(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.set_header("Content-Type", CONTENT_TYPE)
        self.set_header("Content-Length", str(len(body)))
        self.set_header("Connection", "close")
        self.write(body)
        self.flush()
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self._end_of_refused)

    def _end_of_refused(self, *_: str) -> None:
        if not self._finished:
            self.finish()


def _number_in(header: str) -> int:
    """What is no number is 0 here: tornado refuses it before it reads a body."""
    try:
        return int(header)
    except ValueError:
        return 0


def _hung_up(stream: IOStream) -> bool:
    """Whether the other side has closed all of it, also where what it wrote before is still to be read.

    A daemon that was stopped for a while, or is late, would do what its caller has been told is not done.
    """
    closed = select.poll()
    if not stream.closed():
        closed.register(stream.socket, 0)  # POLLHUP is told unasked: poll(2)
    return stream.closed() or bool(closed.poll(0))


def _gone() -> Problem:
    return Problem(403, "Unknown caller", "The caller has closed the connection before it was answered.")


def _too_large() -> Problem:
    return Problem(413, "Body too large", f"A body may have at most {MAX_BODY_BYTES} bytes: send less.")
