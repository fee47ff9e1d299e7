"""What all REST handlers share: who may, small bodies, and problems as problem objects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import APIHandler

from nls_scheduler.wire.errors import CONTENT_TYPE, DaemonUnreachable, Problem, malformed
from nls_scheduler.wire.protocol import MAX_BODY_BYTES, parse_object

if TYPE_CHECKING:
    from types import TracebackType

    from nls_jupyter_server.orders import Orders

RESOURCE: Final = "nls_gpu"
_CHANGEABLE: Final = frozenset({"request", "limit", "keep_s"})


class GpuHandler(APIHandler):
    """Problems as problem objects, and the two kinds of orders: on one's own workloads, and on anybody's."""

    auth_resource = RESOURCE

    @property
    def orders(self) -> Orders:
        """What the server can do for a page."""
        orders: Orders = self.settings["nls_orders"]
        return orders

    async def require_administrator(self) -> None:
        """Raises Problem unless this user may act on what is not their own."""
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, "execute", RESOURCE)):
            detail = "That is not your workload: acting on it needs the permission `execute` on `nls_gpu`."
            raise Problem(403, "Not an administrator", detail)

    async def require_own(self, workload_id: str) -> None:
        """Raises Problem unless the workload is this server's user's own, or the page's user an administrator."""
        if not await self.orders.is_own(workload_id):
            await self.require_administrator()

    def fields(self) -> dict[str, Any]:
        """The body's fields. Raises Problem."""
        if len(self.request.body) > MAX_BODY_BYTES:
            raise Problem(413, "Body too large", f"A body may have at most {MAX_BODY_BYTES} bytes: send less.")
        fields = parse_object(self.request.body)
        if unknown := fields.keys() - _CHANGEABLE:
            raise malformed(f"{sorted(unknown)[0]!r:.60} cannot be changed here: request, limit and keep_s can.")
        if not fields:
            raise malformed("Nothing is asked for: send a request, a limit or keep_s.")
        return fields

    def answer(self, value: object, status: int = 200) -> None:
        """`value` as JSON."""
        self.set_status(status)
        self.finish(json.dumps(value))

    def send_error(self, status_code: int = 500, **kwargs: Any) -> None:
        """Tornado's way to answer an exception; ours bring their own status."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, DaemonUnreachable):
            kwargs["problem"] = Problem(503, "No daemon", str(error), "node")
        elif isinstance(error, Problem):
            kwargs["problem"] = error
        problem: Problem | None = kwargs.get("problem")
        super().send_error(status_code if problem is None else problem.status, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """A problem object, whose sentence Jupyter's own clients find under `message`."""
        problem: Problem | None = kwargs.get("problem")
        if problem is None:
            super().write_error(status_code, **kwargs)
            return
        self.set_header("Content-Type", CONTENT_TYPE)
        self.finish(json.dumps(problem.as_dict() | {"message": problem.detail}))

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """A refusal is no news for the log."""
        if isinstance(value, Problem | DaemonUnreachable):
            self.log.debug("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)
