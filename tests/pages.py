"""A page's view of `nls_jupyter_server`: its WebSocket followed and its differences applied, as a browser does."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nls_scheduler.demo.jupyter import JupyterServer

PATIENCE_S = 30.0
ENABLED = 'c.ServerApp.jpserver_extensions = {"nls_jupyter": True}\nc.ServerApp.allow_unauthenticated_access = False\n'


def enable_extension(directory: Path, settings: str = "") -> None:
    """What `pip install` does by a file in the environment, for a server that is to run below `directory`."""
    (directory / "config").mkdir(exist_ok=True)
    (directory / "config" / "jupyter_server_config.py").write_text(ENABLED + settings)


class Answer:
    """Status and JSON of an HTTP answer, refusals too."""

    def __init__(self, code: int, body: bytes) -> None:
        self.code = code
        self.json: Any = json.loads(body) if body[:1] in (b"{", b"[") else None


async def ask(
    server: JupyterServer, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
) -> Answer:
    """One request below `nls/api/`; with the server's token unless other headers are given."""
    headers = {"Authorization": f"token {server.token}"} if headers is None else headers
    text = body if isinstance(body, str | bytes) else None if body is None else json.dumps(body)
    allow = {"allow_nonstandard_methods": True}
    request = HTTPRequest(f"{server.url}/nls/api/{path}", method=method, headers=headers, body=text, **allow)
    response = await AsyncHTTPClient(force_instance=True).fetch(request, raise_error=False)
    return Answer(response.code, response.body)


class Page:
    """One open page."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.may: dict[str, bool] = {}
        self.bytes = 0

    async def open(self, server: JupyterServer, headers: dict[str, str] | None = None) -> Page:
        """Connect. Raises HTTPClientError when refused."""
        url = f"{server.url}/nls/api/stream".replace("http://", "ws://", 1)
        headers = {"Authorization": f"token {server.token}"} if headers is None else headers
        self._socket = await websocket_connect(HTTPRequest(url, headers=headers))
        return self

    async def until(self, holds: Callable[[dict[str, Any]], object], timeout_s: float = PATIENCE_S) -> Any:
        """Follow until the state is so; what `holds` gave."""
        async with asyncio.timeout(timeout_s):
            while not self.state or not (value := holds(self.state)):
                await self.read()
        return value

    async def read(self) -> dict[str, Any]:
        """The next message, applied."""
        text = await self._socket.read_message()
        assert isinstance(text, str), "the server has closed the stream"
        self.bytes += len(text)
        message: dict[str, Any] = json.loads(text)
        if "snapshot" in message:
            assert message["after"] is None
            self.state, self.may = message["snapshot"], message["may"]
        else:
            assert message["after"] == self.messages[-1]["version"], "a message was lost"
            apply(self.state, message)
        self.messages.append(message)
        return message

    def close(self) -> None:
        """The tab is closed."""
        self._socket.close()


def apply(state: dict[str, Any], message: dict[str, Any]) -> None:
    """One difference."""
    state["daemon"] = message.get("daemon", state["daemon"])
    for part in ("gpus", "workloads", "queues"):
        for name, fields in message.get(part, {}).items():
            if fields is None:
                del state[part][name]
            else:
                state[part].setdefault(name, {}).update(fields)
    kept = [] if message.get("history_anew") else state["history"]
    state["history"] = [*kept, *message.get("history", [])]


def named(state: dict[str, Any], name: str) -> Any:
    """The workload of that name, or None."""
    return next((w for w in state["workloads"].values() if w["name"] == name), None)
