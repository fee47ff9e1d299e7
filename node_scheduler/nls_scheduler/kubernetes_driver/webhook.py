"""Serves `admission` to the API server over TLS. It has no rights there and keeps nothing, so that several may run."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tornado import web
from tornado.httpserver import HTTPServer

from nls_scheduler.daemon.http.addresses import listen_on
from nls_scheduler.kubernetes_driver.admission import UnreadableReview, answer
from nls_scheduler.kubernetes_driver.injecting import Role
from nls_scheduler.kubernetes_driver.pace import Rounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nls_scheduler.kubernetes_driver.certificate import Certificate
    from nls_scheduler.kubernetes_driver.injecting import Injection

PODS: Final = "/pods"
"""Where pods with the label are sent."""
OWNERS: Final = "/owners"
"""Where all pods of a namespace with the label are sent."""
_BODY_LIMIT_BYTES: Final = 4 * 2**20
_WITHIN_S: Final = 10.0
_LOOK_S: Final = 60.0
_MOST_WAITING: Final = 128
log = logging.getLogger(__name__)


class _Page(web.RequestHandler):
    """Answers in JSON, mistakes too."""

    SUPPORTED_METHODS: ClassVar = ("GET", "POST")  # type: ignore[misc] # tornado annotates an instance

    def set_default_headers(self) -> None:
        """Tornado calls this for each request and again for each error."""
        self.set_header("Server", "nls")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A mistake of the caller's, or a defect, which is in the log."""
        del kwargs
        self.tell(status_code, f"POST an AdmissionReview to {PODS} or {OWNERS}.")

    def tell(self, status: int, detail: str) -> None:
        """One sentence."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"status": status, "detail": detail}) + "\n")


class _Nothing(_Page):
    def prepare(self) -> None:
        """Any path that is none of ours."""
        raise web.HTTPError(404)


class _Livez(_Page):
    def get(self) -> None:
        """The loop turns."""
        self.tell(200, "live")


class _Readyz(_Page):
    def initialize(self, certificate: Certificate) -> None:
        """Tornado calls this for each request."""
        self._certificate = certificate

    def get(self) -> None:
        """503 while the API server cannot believe us: nothing is added to any pod then, and nobody is told."""
        why = self._certificate.trouble
        self.tell(200 if why is None else 503, why or "ready")


class _Review(_Page):
    def initialize(self, injection: Injection, default: Role | None) -> None:
        """Tornado calls this for each request."""
        self._injection = injection
        self._default = default

    def post(self) -> None:
        """200 with the review, or 400."""
        try:
            review = answer(self.request.body, self._injection, self._default, on_defect=log.exception)
        except UnreadableReview as why:
            self.tell(400, str(why))
            return
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(review) + "\n")


def server(injection: Injection, certificate: Certificate) -> HTTPServer:
    """The server; `listen` begins."""
    pages: list[Any] = [
        (r"/livez", _Livez),
        (r"/readyz", _Readyz, {"certificate": certificate}),
        (PODS, _Review, {"injection": injection, "default": None}),
        (OWNERS, _Review, {"injection": injection, "default": Role.OWNER}),
    ]
    application = web.Application(
        pages,
        default_handler_class=_Nothing,
        log_function=lambda handler: log.debug("%s %s", handler.get_status(), handler.request.uri),
    )
    return HTTPServer(
        application,
        ssl_options=certificate.context,
        max_body_size=_BODY_LIMIT_BYTES,
        max_buffer_size=2 * _BODY_LIMIT_BYTES,
        idle_connection_timeout=_WITHIN_S,
        body_timeout=_WITHIN_S,
    )


async def serve(
    injection: Injection,
    certificate: Certificate,
    address: tuple[str, int],
    ready: Callable[[int], None],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Until SIGTERM or SIGINT. `ready` is told the port. Raises OSError."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    serving = server(injection, certificate)
    listening = listen_on(*address, _MOST_WAITING)
    serving.add_socket(listening)
    ready(listening.getsockname()[1])
    watch = asyncio.ensure_future(_look(certificate, pause))
    try:
        await ended.wait()
    finally:
        watch.cancel()
        serving.stop()
        await serving.close_all_connections()


async def _look(certificate: Certificate, pause: Callable[[float], Awaitable[None]]) -> None:
    told: str | None = None

    async def tell_and_look() -> None:
        nonlocal told
        why = certificate.trouble
        if why is not None and why != told:
            log.error("%s Pods start without what they need.", why)
        told = why
        await pause(_LOOK_S)
        certificate.look()

    await Rounds("A look at the certificate").go_on(tell_and_look)
