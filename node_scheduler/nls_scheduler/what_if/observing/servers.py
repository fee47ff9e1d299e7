"""Which kernels Jupyter Servers have, and whether they are busy: by their sessions API, which changes nothing there."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TIMEOUT_S: Final = 4.0


@dataclass(frozen=True, slots=True)
class Server:
    """A Jupyter Server, or with `is_hub` a JupyterHub whose users' servers are asked."""

    url: str
    token: str
    is_hub: bool = False

    @classmethod
    def parse(cls, text: str, *, is_hub: bool = False) -> Server:
        """`http://host:8888/?token=...`; else the token of the environment. Raises ValueError with one sentence."""
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"{text!r} is no address of a Jupyter Server: write for example http://localhost:8888/.")
        variable = "JUPYTERHUB_API_TOKEN" if is_hub else "JUPYTER_TOKEN"
        token = parse_qs(parts.query).get("token", [os.environ.get(variable, "")])[0]
        path = parts.path if parts.path.endswith("/") else parts.path + "/"
        return cls(urlunsplit((parts.scheme, parts.netloc, path, "", "")), token, is_hub)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel: its id, its notebook's path with the server's address before it, and whether it runs a cell."""

    id: str
    name: str
    busy: bool


def servers_of_this_user() -> list[Server]:
    """Those that have said in Jupyter's runtime directory where they are; one that has ended may be among them."""
    from jupyter_core.paths import jupyter_runtime_dir

    found = []
    for path in sorted(Path(jupyter_runtime_dir()).glob("jpserver-*.json")):
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            found.append(Server(str(said["url"]), str(said["token"])))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being written, or is another program's
    return found


async def kernels_of(servers: Iterable[Server]) -> tuple[list[Kernel], list[str]]:
    """What they have, and a sentence for each that did not tell."""
    client = SimpleAsyncHTTPClient(force_instance=True)
    kernels: list[Kernel] = []
    silent: list[str] = []
    try:
        for server in servers:
            try:
                async for one in _expanded(client, server):
                    kernels += _kernels(one.url, await _asked(client, one, "api/sessions"))
            except (HTTPClientError, HTTPTimeoutError, OSError, ValueError) as error:
                silent.append(f"{server.url} does not tell its sessions: {error}")
    finally:
        client.close()
    return kernels, silent


async def _expanded(client: SimpleAsyncHTTPClient, server: Server) -> Any:
    """Itself, or the servers of a hub's users."""
    if not server.is_hub:
        yield server
        return
    users = await _asked(client, server, "hub/api/users?state=active")
    for user in users if isinstance(users, list) else ():
        for name, one in (user.get("servers") or {}).items():
            where = one.get("url") or f"/user/{quote(str(user.get('name')))}/{quote(name)}"
            parts = urlsplit(server.url)
            yield Server(urlunsplit((parts.scheme, parts.netloc, str(where).rstrip("/") + "/", "", "")), server.token)


async def _asked(client: SimpleAsyncHTTPClient, server: Server, path: str) -> Any:
    headers = {"Authorization": f"token {server.token}"} if server.token else {}
    request = HTTPRequest(
        server.url + path, headers=headers, connect_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S, follow_redirects=False
    )
    return json.loads((await client.fetch(request)).body)


def _kernels(url: str, sessions: Any) -> Iterator[Kernel]:
    """Raises ValueError where the answer is none of a sessions API."""
    if not isinstance(sessions, list):
        raise ValueError("its answer is no list of sessions")  # noqa: TRY004 - what came is wrong, not its use
    for session in sessions:
        kernel = session.get("kernel") if isinstance(session, dict) else None
        if not isinstance(kernel, dict) or "id" not in kernel:
            raise ValueError("its answer has a session without a kernel")
        yield Kernel(str(kernel["id"]), f"{url}{session.get('path', '')}", kernel.get("execution_state") == "busy")
