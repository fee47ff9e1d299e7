"""The routes of the daemon's interface, as `openapi.json` describes them: each parses, calls the daemon, renders."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from http import HTTPStatus
from importlib import resources
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from tornado import web, websocket
from tornado.iostream import StreamClosedError

from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.daemon.http.answering import Answering, NotFound, WithBody
from nls_scheduler.daemon.http.fairness import Fairness
from nls_scheduler.daemon.http.masked import MaskedProtocol
from nls_scheduler.daemon.journal_tables import HISTORY_KEPT
from nls_scheduler.daemon.sessions import Session
from nls_scheduler.views.entries import entry_view
from nls_scheduler.views.metrics import CONTENT_TYPE as METRICS_TYPE
from nls_scheduler.wire.errors import Problem
from nls_scheduler.wire.protocol import MAX_BODY_BYTES, REPORTS, REPORTS_HEADER, SECRET_HEADER, clean_text

if TYPE_CHECKING:
    from tornado.http1connection import HTTP1Connection
    from tornado.httputil import HTTPServerRequest

    from nls_scheduler.daemon.daemon import Daemon
    from nls_scheduler.views.entries import Entry

_ID: Final = r"/v1/workloads/([^/]+)"
OPENAPI: Final = "openapi.json"
REASON_LIMIT: Final = 500
log = logging.getLogger(__name__)


class Livez(Answering):
    """`GET /livez`: the loop turns."""

    counts_as_use: ClassVar = False

    def get(self) -> None:
        """Answer."""
        self.answer({"live": True})


class Readyz(Answering):
    """`GET /readyz`: the GPUs have been seen a moment ago (or there are none)."""

    counts_as_use: ClassVar = False

    def get(self) -> None:
        """200, or 503 with the reason."""
        why_not = self.daemon.not_ready
        if why_not is not None:
            raise Problem(503, "Not ready", why_not, "node")
        self.answer({"ready": True})


class Metrics(Answering):
    """`GET /metrics`, for Prometheus."""

    counts_as_use: ClassVar = False

    def get(self) -> None:
        """Everything as text."""
        self.set_header("Content-Type", METRICS_TYPE)
        self.finish(self.daemon.metrics.text())


class OpenApi(Answering):
    """`GET /v1/openapi.json`: the contract."""

    def get(self) -> None:
        """The file of the package."""
        self.set_header("Content-Type", "application/json")
        self.finish(resources.files("nls_scheduler.wire").joinpath(OPENAPI).read_bytes())


class Status(Answering):
    """`GET /v1/status`."""

    def get(self) -> None:
        """The node."""
        self.answer({**self.daemon.status(self.caller), "administrator": self.caller.administrator})


class Entries(Answering):
    """`GET /v1/history`."""

    def get(self) -> None:
        """What happened, oldest first; with `limit` the last entries alone."""
        limit, viewer = self.number("limit", HISTORY_KEPT), self.daemon.viewer(self.caller)
        self.answer({"entries": [entry_view(entry, viewer) for entry in self.daemon.history.entries()[-limit:]]})


class Stream(Answering):
    """`GET /v1/events`: the history's entries as they happen, one JSON object per line."""

    queue: asyncio.Queue[Entry | None] | None = None

    async def get(self) -> None:
        """Until the client goes, reads nothing for too long, or lags too far behind, or the daemon ends."""
        self.queue = self.daemon.follow(self.caller, passive=self.get_query_argument("passive", "false") == "true")
        self.set_header("Content-Type", "application/x-ndjson")
        try:
            await self._push("")
            while (entry := await self.queue.get()) is not None:
                await self._push(json.dumps(entry_view(entry, self.daemon.viewer(self.caller))) + "\n")
        except StreamClosedError:
            pass  # the client has gone, which is how a stream ends
        except TimeoutError:
            log.info("a follower of the events reads nothing and is let go")
            self.request.connection.stream.close()  # type: ignore[union-attr] # tornado's declared type is too general
        finally:
            self.daemon.history.unfollow(self.queue)

    def on_connection_close(self) -> None:
        """The client has gone."""
        if self.queue is not None:
            self.daemon.history.unfollow(self.queue)

    async def _push(self, text: str) -> None:
        self.write(text)
        async with asyncio.timeout(self.settings["client_timeout_s"]):
            await self.flush()


class Workloads(WithBody):
    """`POST /v1/workloads`: submit."""

    def post(self) -> None:
        """201 with the new workload's status entry."""
        workload_id = self.daemon.submit(self.fields(), self.caller)
        self.set_header("Location", f"/v1/workloads/{workload_id}")
        self.answer_entry(workload_id, HTTPStatus.CREATED)


class Workload(WithBody):
    """`PUT`, `PATCH` and `DELETE /v1/workloads/{id}`."""

    async def put(self, workload_id: str) -> None:
        """A supervisor brings it back to a daemon that has lost its journal; 201 with its status entry."""
        await self.daemon.adopt(WorkloadId(workload_id), self.fields(), self.caller, only=self.is_only)
        self.answer_entry(WorkloadId(workload_id), HTTPStatus.CREATED)

    def patch(self, workload_id: str) -> None:
        """Change what it asks for; answers its status entry."""
        self.daemon.respecify(WorkloadId(workload_id), self.fields(), self.caller)
        self.answer_entry(WorkloadId(workload_id))

    def delete(self, workload_id: str) -> None:
        """Release it, for its user's own reason if one is given; its record ends when its process has."""
        why = clean_text(self.get_query_argument("reason", ""))[:REASON_LIMIT]
        self.daemon.release(WorkloadId(workload_id), self.caller, why)
        self.answer({"released": workload_id}, HTTPStatus.ACCEPTED)


class Act(WithBody):
    """`POST /v1/workloads/{id}/suspend` and `/resume`."""

    def post(self, workload_id: str, action: str) -> None:
        """Answers its status entry: what was asked for is then under way, not done."""
        act = self.daemon.suspend if action == "suspend" else self.daemon.resume
        act(WorkloadId(workload_id), self.caller)
        self.answer_entry(WorkloadId(workload_id), HTTPStatus.ACCEPTED)


class Explanation(Answering):
    """`GET /v1/workloads/{id}/explanation`: why it is where it is, what it waits for, and what would help."""

    def get(self, workload_id: str) -> None:
        """To its own user and to administrators."""
        self.answer(self.daemon.explanation(WorkloadId(workload_id), self.caller))


class Migrate(WithBody):
    """`POST /v1/workloads/{id}/migrate`: move it to another GPU."""

    def post(self, workload_id: str) -> None:
        """Answers its status entry: the move is then under way, or waits for the end of its cell."""
        self.daemon.migrate(WorkloadId(workload_id), self.fields(), self.caller)
        self.answer_entry(WorkloadId(workload_id), HTTPStatus.ACCEPTED)


class ReturnGpu(WithBody):
    """`POST /v1/gpus/{uuid}/return`: an administrator's word that a GPU is well again."""

    async def post(self, gpu: str) -> None:
        """Its status entry."""
        self.answer(await self.daemon.return_gpu(gpu, self.caller))


class Start(WithBody):
    """`POST /v1/start`: a pod's init container asks whether the GPUs that the pod was given are vacated."""

    def post(self) -> None:
        """Answers at once; whoever has to wait asks again."""
        self.answer(self.daemon.may_start(self.fields(), self.caller))


class Supervisor(Answering, websocket.WebSocketHandler):
    """The WebSocket of one workload's supervisor."""

    session: Session | None = None
    sender: asyncio.Task[None] | None = None

    def prepare(self) -> None:
        """Refuse strangers before the protocol is switched."""
        super().prepare()
        if self.request.method != "GET":
            return  # tornado answers that
        self.daemon.check_supervisor(WorkloadId(self.path_args[0]), self.caller)
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise Problem(426, "Upgrade required", "A supervisor speaks WebSocket here: send an Upgrade header.")
        self.set_header(SECRET_HEADER, self.daemon.secret(WorkloadId(self.path_args[0]), self.caller))
        self.set_header(REPORTS_HEADER, REPORTS)

    def get_websocket_protocol(self) -> websocket.WebSocketProtocol | None:
        """Tornado's, which refuses frames that are not masked."""
        made = super().get_websocket_protocol()
        return MaskedProtocol(self, False, made.params) if isinstance(made, websocket.WebSocketProtocol13) else None  # noqa: FBT003

    def open(self, workload_id: str) -> None:
        """The connection stands."""
        session = self.session = Session(WorkloadId(workload_id), self.caller, self.close, only=self.is_only)
        encode = partial(self.daemon.encode, peer=session.peer)
        self.sender = asyncio.ensure_future(session.run(encode, self._send))
        self.daemon.attach(session)

    async def on_message(self, message: str | bytes) -> None:
        """One fact, or nonsense."""
        if self.session is not None:
            await self.fairness.begin(self.session.peer.user)
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


class Routes(web.Application):
    """Tornado's."""

    def get_handler_delegate(self, request: HTTPServerRequest, target_class: Any, *args: Any, **kwargs: Any) -> Any:
        """For a handler that takes no body, tornado keeps all of one in memory: a small one is enough."""
        if not issubclass(target_class, WithBody):
            cast("HTTP1Connection", request.connection).set_max_body_size(MAX_BODY_BYTES)
        return super().get_handler_delegate(request, target_class, *args, **kwargs)


def application(daemon: Daemon, client_timeout_s: float) -> web.Application:
    """All routes. A follower of the events that reads nothing for `client_timeout_s` is let go."""
    settings = {"daemon": daemon, "fairness": Fairness()}
    return Routes(
        [
            (r"/livez", Livez, settings),
            (r"/readyz", Readyz, settings),
            (r"/metrics", Metrics, settings),
            (r"/v1/openapi\.json", OpenApi, settings),
            (r"/v1/status", Status, settings),
            (r"/v1/history", Entries, settings),
            (r"/v1/events", Stream, settings),
            (r"/v1/workloads", Workloads, settings),
            (_ID, Workload, settings),
            (rf"{_ID}/(suspend|resume)", Act, settings),
            (rf"{_ID}/explanation", Explanation, settings),
            (rf"{_ID}/migrate", Migrate, settings),
            (rf"{_ID}/supervisor", Supervisor, settings),
            (r"/v1/gpus/([^/]+)/return", ReturnGpu, settings),
            (r"/v1/start", Start, settings),
        ],
        default_handler_class=NotFound,
        default_handler_args=settings,
        client_timeout_s=client_timeout_s,
        websocket_max_message_size=MAX_BODY_BYTES,
        log_function=lambda handler: log.debug("%s %s", handler.get_status(), handler.request.uri),
    )
