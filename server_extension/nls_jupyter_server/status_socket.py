"""The WebSocket of one page: the whole state once, then what changed, as fast as this page can take it."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from jupyter_core.utils import ensure_async
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from nls_jupyter_server.gpu_handler import RESOURCE
from nls_jupyter_server.page_state import difference

if TYPE_CHECKING:
    from nls_jupyter_server.page_state import State
    from nls_jupyter_server.status_feed import StatusFeed

ALIVE_EVERY_S: Final = 15.0
_INTERNAL_ERROR: Final = 1011
"""Of RFC 6455, 7.4.1."""


class StatusSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """`GET nls/api/stream`. Nothing is read from the page; a slow page gets fewer and larger differences."""

    auth_resource = RESOURCE
    _sender: asyncio.Task[None] | None = None

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Refuse whoever may not read, then switch the protocol."""
        if not await self._may("read"):
            raise HTTPError(403, "You may not read the status of the GPUs of this server.")
        self.may = {"write": await self._may("write"), "execute": await self._may("execute")}
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        """The connection stands."""
        super().open(*args, **kwargs)
        self._sender = asyncio.get_running_loop().create_task(self._send_all(self.settings["nls_status_feed"]))

    def on_message(self, message: str | bytes) -> None:
        """A page has nothing to say here; its orders are requests of their own."""

    def on_close(self) -> None:
        """The page has gone."""
        super().on_close()
        if self._sender is not None:
            self._sender.cancel()

    async def _may(self, action: str) -> bool:
        return bool(await ensure_async(self.authorizer.is_authorized(self, self.current_user, action, RESOURCE)))

    async def _send_all(self, feed: StatusFeed) -> None:
        try:
            with feed.watched():
                await feed.newer_than(feed.version, 1.0)  # the first answer, so that a page need not blink
                version, state = feed.version, feed.state
                await self._send(version, None, {"snapshot": state, "may": self.may})
                while True:
                    await feed.newer_than(version, ALIVE_EVERY_S)
                    last, version, before, state = version, feed.version, state, feed.state
                    await self._send(version, last, _difference(before, state))
        except WebSocketClosedError:
            self.log.debug("A page that showed the GPUs has gone.")
        except Exception:
            self.log.exception("What a page is shown of the GPUs failed, please report it; the page connects anew.")
            self.close(_INTERNAL_ERROR)

    async def _send(self, version: int, after: int | None, message: State) -> None:
        head = {"version": version, "after": after, "time": round(time.time(), 3)}
        # Done when the page's side has taken it: that is what slows the next one down.
        await self.write_message(json.dumps(head | message, separators=(",", ":")))


def _difference(before: State, state: State) -> dict[str, Any]:
    return {} if before is state else difference(before, state)
