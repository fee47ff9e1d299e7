"""Which kernels Jupyter Servers have, and whether they are busy: by their sessions API, which changes nothing there."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit, urlunsplit

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import UnsatisfiableReadError
from tornado.simple_httpclient import HTTPTimeoutError, SimpleAsyncHTTPClient

from nls_scheduler.wire.hanging_up import HangingUp

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

_Told = TypeVar("_Told")
TIMEOUT_S: Final = 4.0
_MOST_AT_ONCE: Final = 1000
_SILENT: Final = (HTTPClientError, HTTPTimeoutError, UnsatisfiableReadError, OSError, ValueError, RecursionError)


@dataclass(frozen=True, slots=True)
class Server:
    """A Jupyter Server, or with `is_hub` a JupyterHub whose users' servers are asked.

    Attributes:
        url: without any secret, as it is told and recorded.
        user: who asks and with which password, where there is no token and something before the server wants them.
    """

    url: str
    token: str
    is_hub: bool = False
    user: tuple[str, str] | None = None

    @classmethod
    def parse(cls, text: str, *, is_hub: bool = False) -> Server:
        """`http://host:8888/?token=...`; else the token of the environment. Raises ValueError with one sentence."""
        try:
            parts = urlsplit(text)
            is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_one = False
        if not is_one:
            shown = without_secrets(text)
            raise ValueError(f"{shown!r} is no address of a Jupyter Server: write for example http://localhost:8888/.")
        variable = "JUPYTERHUB_API_TOKEN" if is_hub else "JUPYTER_TOKEN"
        token = parse_qs(parts.query, keep_blank_values=True).get("token", [os.environ.get(variable, "")])[0]
        path = parts.path if parts.path.endswith("/") else parts.path + "/"
        user = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
        return cls(urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], path, "", "")), token, is_hub, user)


def without_secrets(text: str) -> str:
    """What may be an address, without what stands before its host and after its path."""
    shown = re.sub(r"[?#].*", "?...", text, flags=re.DOTALL)
    return re.sub(r"^(\w+://)?.*@", r"\1...@", shown, flags=re.DOTALL)


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
            found.append(Server.parse(f"{said['url']}?{urlencode({'token': said['token']})}"))
        except (OSError, ValueError, KeyError, TypeError):
            continue  # it is being written, or is another program's
    return found


async def kernels_of(servers: Iterable[Server]) -> tuple[list[Kernel], list[str]]:
    """What they have, all asked at once, and a sentence for each that did not tell; a hub's one by one."""
    client = SimpleAsyncHTTPClient(force_instance=True, max_clients=_MOST_AT_ONCE)
    client.tcp_client = connections = HangingUp()
    try:
        lists = await asyncio.gather(*(_told(server.url, _servers(client, server)) for server in servers))
        asked = [server for found, _ in lists for server in found]
        answers = await asyncio.gather(*(_told(server.url, _kernels(client, server)) for server in asked))
    finally:
        connections.hang_up()
        client.close()
    silent = [why for _, why in [*lists, *answers] if why is not None]
    return [kernel for found, _ in answers for kernel in found], silent


async def _told(url: str, asking: Coroutine[Any, Any, list[_Told]]) -> tuple[list[_Told], str | None]:
    """Its answer, or nothing and why: whatever a server says ends nobody's observation."""
    try:
        return await asking, None
    except _SILENT as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        return [], f"{url} does not tell its sessions: {why}"


async def _servers(client: SimpleAsyncHTTPClient, server: Server) -> list[Server]:
    """Itself, or the servers of a hub's users. Raises ValueError where the answer is none of a hub's API."""
    if not server.is_hub:
        return [server]
    users, found = await _asked(client, server, "hub/api/users?state=active"), []
    for user in _of(list, users, "list of users"):
        known = _of(dict, _of(dict, user, "user").get("servers") or {}, "list of servers")
        for name, one in known.items():
            where = _of(dict, one, "server").get("url") or f"/user/{quote(str(user.get('name')))}/{quote(name)}"
            parts = urlsplit(server.url)
            url = urlunsplit((parts.scheme, parts.netloc, str(where).rstrip("/") + "/", "", ""))
            found.append(Server(url, server.token, user=server.user))
    return found


async def _kernels(client: SimpleAsyncHTTPClient, server: Server) -> list[Kernel]:
    """Raises ValueError where the answer is none of a sessions API."""
    found = []
    for session in _of(list, await _asked(client, server, "api/sessions"), "list of sessions"):
        kernel = _of(dict, _of(dict, session, "session").get("kernel"), "session with a kernel")
        # A name need not be text that can be written down.
        name = f"{server.url}{session.get('path', '')}".encode(errors="replace").decode()
        found.append(Kernel(str(kernel.get("id")), name, kernel.get("execution_state") == "busy"))
    return found


def _of(kind: type[_Told], value: object, what: str) -> _Told:
    if not isinstance(value, kind):
        raise ValueError(f"its answer has no {what} where one should be")  # noqa: TRY004 - what came is wrong
    return value


async def _asked(client: SimpleAsyncHTTPClient, server: Server, path: str) -> Any:
    headers = {"Authorization": f"token {server.token}"} if server.token else {}
    name, password = server.user if server.user is not None and not server.token else (None, None)
    request = HTTPRequest(
        server.url + path,
        headers=headers,
        auth_username=name,
        auth_password=password,
        connect_timeout=TIMEOUT_S,
        request_timeout=TIMEOUT_S,
        follow_redirects=False,
    )
    return json.loads((await client.fetch(request)).body)
