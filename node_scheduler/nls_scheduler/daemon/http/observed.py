"""What probes and Prometheus may ask over TCP: three pages to read, nothing to act on.

The Unix socket knows who asks and answers everything; a kubelet and a Prometheus can only reach an address.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tornado import web
from tornado.httpserver import HTTPServer

from nls_scheduler.daemon.http.addresses import listen_on, parse_address
from nls_scheduler.views.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tornado.iostream import IOStream

    from nls_scheduler.daemon.daemon import Daemon

MOST_CONNECTIONS: Final = 64
"""A kubelet and a few Prometheus servers need one each; nobody on the network may take the daemon's files away."""
MOST_PER_ADDRESS: Final = 16
REQUEST_WITHIN_S: Final = 3.0
"""A connection that has not sent its whole request by then is closed."""
ANSWERED_WITHIN_S: Final = 15.0
"""And one that has not read its answer by then; a scrape takes 10 s at most, unless somebody has set more."""
_MOST_WAITING: Final = 1024
"""In the kernel, to be accepted; those who have sent nothing are not (`TCP_DEFER_ACCEPT`, tcp(7))."""
_HEADER_LIMIT_BYTES: Final = 16 * 1024
log = logging.getLogger(__name__)


class _Page(web.RequestHandler):
    """`GET` only. Whoever reads is unknown, so nothing here names a user."""

    SUPPORTED_METHODS: ClassVar = ("GET",)  # type: ignore[misc] # tornado annotates an instance

    def initialize(self, daemon: Daemon) -> None:
        """Tornado calls this for each request."""
        self.daemon = daemon

    def set_default_headers(self) -> None:
        """Tornado calls this for each request and again for each error."""
        self.set_header("Server", "nls")

    def answer(self, value: dict[str, Any], status: int = 200) -> None:
        """`value` as JSON."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(value) + "\n")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """No page of ours, or a defect, which is in the log."""
        del kwargs
        self.answer({"status": status_code, "detail": "There are /livez, /readyz and /metrics."}, status_code)


class _Livez(_Page):
    def get(self) -> None:
        """The loop turns."""
        self.answer({"live": True})


class _Readyz(_Page):
    def get(self) -> None:
        """200, or 503 with the reason."""
        why_not = self.daemon.not_ready
        self.answer({"ready": why_not is None, "detail": why_not}, 200 if why_not is None else 503)


class _Metrics(_Page):
    def get(self) -> None:
        """Everything as text."""
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(self.daemon.metrics.text())


class Observed(HTTPServer):
    """The server of these pages; `start_on` begins, `stop` and `close_all_connections` end."""

    def initialize(self, daemon: Daemon, **kwargs: Any) -> None:  # type: ignore[override] # what it shows, not a callback
        """Tornado calls this with the constructor's arguments."""
        pages = [(r"/livez", _Livez), (r"/readyz", _Readyz), (r"/metrics", _Metrics)]
        application = web.Application(
            [(path, page, {"daemon": daemon}) for path, page in pages],
            default_handler_class=web.ErrorHandler,
            default_handler_args={"status_code": 404},
            log_function=lambda handler: log.debug("%s %s", handler.get_status(), handler.request.uri),
        )
        super().initialize(
            application,
            max_body_size=1024,
            max_header_size=_HEADER_LIMIT_BYTES,
            idle_connection_timeout=REQUEST_WITHIN_S,
            body_timeout=REQUEST_WITHIN_S,
            no_keep_alive=True,
            **kwargs,
        )
        self._open: dict[IOStream, tuple[str, asyncio.TimerHandle]] = {}
        """Whose connections there are, and what closes each when it is late; the oldest first."""

    def start_on(self, address: str) -> int:
        """Listen; the port that was bound, which 0 leaves to the system. Raises ValueError, OSError."""
        host, port = parse_address(address)
        try:
            listening = listen_on(host, port, _MOST_WAITING)
        except OSError as error:
            raise OSError(error.errno, f"observe_address {address}: {os.strerror(error.errno or 0)}") from error
        with suppress(OSError):  # where the network is not the kernel's own, an idle one is let go a little later
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, round(REQUEST_WITHIN_S))
        self.add_socket(listening)
        bound_host, bound, *_ = listening.getsockname()
        log.info("/livez, /readyz and /metrics at %s, port %d", bound_host, bound)
        return int(bound)

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Tornado calls this for each connection. For one too many an older one goes: who asks now gets an answer."""
        for known in [known for known in self._open if known.closed()]:
            self._open.pop(known)[1].cancel()
        host = address[0]
        same = [known for known, (whose, _) in self._open.items() if whose == host]
        if len(same) >= MOST_PER_ADDRESS:
            _oldest_idle(same).close()
        elif len(self._open) >= MOST_CONNECTIONS:
            _oldest_idle([*self._open]).close()
        self._open[stream] = host, asyncio.get_running_loop().call_later(ANSWERED_WITHIN_S, stream.close)
        super().handle_stream(stream, address)


def _oldest_idle(streams: Sequence[IOStream]) -> IOStream:
    """The first that is not being answered, if there is one."""
    return next((stream for stream in streams if not stream.writing()), streams[0])
