"""The service's handlers: who asks is known from the hub, what they may read from the daemon."""

from __future__ import annotations

import os
import pwd
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jupyterhub.services.auth import HubOAuthCallbackHandler, HubOAuthenticated
from jupyterhub.utils import url_path_join
from tornado.web import Application, RequestHandler, authenticated

from nls_jupyter_server.hub.node import Node, NotShownError, Seen
from nls_jupyter_server.hub.page import page, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_USER_VARIABLE: Final = "NLS_HUB_SYSTEM_USER"
_POLICY: Final = "default-src 'none'; style-src 'nonce-{nonce}'; frame-ancestors 'none'; base-uri 'none'"


class NodeHandler(HubOAuthenticated, RequestHandler):  # type: ignore[misc]  # it has no types here
    """What both have: everything of the node for the hub's administrators, for users what is theirs."""

    async def seen(self) -> Seen:
        """Raises NotShownError."""
        node: Node = self.settings["node"]
        user: dict[str, Any] = self.current_user
        if user.get("admin"):
            return await node.for_administrator()
        return await node.for_user(user["name"])

    def set_default_headers(self) -> None:
        """Nothing of it is kept anywhere, and no other site may show it."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")


class PageHandler(NodeHandler):
    """`GET /`: the page."""

    @authenticated
    async def get(self) -> None:
        """Where nothing can be shown it says why."""
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Security-Policy", _POLICY.format(nonce=nonce))
        try:
            self.write(page(await self.seen(), "", name_of, nonce))
        except NotShownError as error:
            self.set_status(503)
            self.write(page(None, str(error), name_of, nonce))


class StatusHandler(NodeHandler):
    """`GET /api/status`: the same for programs."""

    @authenticated
    async def get(self) -> None:
        """The daemon's status, with the workloads that the page lists."""
        try:
            seen = await self.seen()
        except NotShownError as error:
            self.set_status(503)
            self.write({"message": str(error)})
        else:
            self.write({**seen.status, "workloads": shown(seen)})


def name_of(uid: int) -> str:
    """What a user id is called on this machine."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def application(environment: Mapping[str, str] = os.environ) -> Application:
    """As the hub's and the administrator's variables say."""
    prefix = environment["JUPYTERHUB_SERVICE_PREFIX"]
    socket = environment.get("NLS_SOCKET")
    node = Node(Path(socket) if socket else None, environment.get(SYSTEM_USER_VARIABLE, "{username}"))
    routes: list[Any] = [
        (url_path_join(prefix, "oauth_callback"), HubOAuthCallbackHandler),
        (url_path_join(prefix, "api/status"), StatusHandler),
        (prefix, PageHandler),
    ]
    return Application(routes, node=node, cookie_secret=secrets.token_bytes(32))
