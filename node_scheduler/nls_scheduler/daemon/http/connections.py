"""How many connections the daemon keeps open, and the clear answer to those that are too many."""

from __future__ import annotations

import asyncio
import os
import resource
from contextlib import suppress
from http.client import responses
from typing import TYPE_CHECKING, Any, Final

from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError, UnsatisfiableReadError

from nls_scheduler.daemon.bounds import TOO_MANY, User
from nls_scheduler.wire.errors import CONTENT_TYPE, Problem
from nls_scheduler.wire.trust import peer_ids

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tornado.iostream import IOStream

FILES_WANTED: Final = 4096
FILES_PER_CONNECTION: Final = 3
"""A supervisor's connection costs its socket, its caller's pidfd, and the lease's."""
FILES_OF_OURS: Final = 64
REFUSALS_AT_ONCE: Final = 32
KEPT_PART: Final = 50
"""One in so many connections is kept for root and our own user."""
REFUSAL_PATIENCE_S: Final = 1.0


def affordable(wanted: int) -> int:
    """As many of `wanted` connections as this process may have files for; raises its soft limit if it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < enough:
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
        soft = enough
    files = FILES_WANTED if soft == resource.RLIM_INFINITY else soft
    return max(1, min(wanted, (files - FILES_OF_OURS) // FILES_PER_CONNECTION))


class BoundedServer(HTTPServer):
    """Refuses connections beyond a number with a problem object, and those of one user beyond another number."""

    def initialize(  # type: ignore[override] # some more
        self,
        *args: Any,
        most_connections: int,
        most_per_user: int | None = None,
        tenant_of: Callable[[int], str] = lambda _: "",
        **kwargs: Any,
    ) -> None:
        """Tornado calls this with the constructor's arguments. `most_per_user`: `None` for half of all.

        `tenant_of` says whose pod a process is in, if any; outside of one, root and our own user may have all.
        """
        super().initialize(*args, **kwargs)
        self._most = most_connections
        self._most_per_user = max(1, most_connections // 2) if most_per_user is None else most_per_user
        self._tenant_of = tenant_of
        self._users: dict[IOStream, User] = {}
        self._refusals: set[asyncio.Task[None]] = set()

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        """Tornado calls this for each connection."""
        pid, uid = peer_ids(stream.socket)
        user = uid, self._tenant_of(pid)
        # Tornado forgets connections that have become WebSockets, so they are counted here.
        self._users = {known: whose for known, whose in self._users.items() if not known.closed()}
        unbound = user in ((0, ""), (os.geteuid(), ""))
        mine = sum(whose == user for whose in self._users.values())
        # Who looks after the node comes in whatever all others have open.
        most = self._most if unbound else self._most - self._most // KEPT_PART
        if len(self._users) >= most:
            self._refuse(stream, 503, f"The daemon has {len(self._users)} connections open already")
        elif mine >= self._most_per_user and not unbound:
            self._refuse(stream, TOO_MANY, f"You have {mine} connections open, as many as one user may")
        else:
            self._users[stream] = user
            super().handle_stream(stream, address)

    def forget_socket(self, listening: socket.socket) -> None:
        """Accept nobody there any more; who is connected stays so."""
        self._handlers.pop(listening.fileno())()
        self._sockets.pop(listening.fileno()).close()

    def _refuse(self, stream: IOStream, status: int, why: str) -> None:
        if len(self._refusals) >= REFUSALS_AT_ONCE:
            stream.close()
            return
        problem = Problem(status, "Too many connections", f"{why}: close some, or try again in a moment.")
        task = asyncio.get_running_loop().create_task(_answer_too_many(stream, problem))
        self._refusals.add(task)
        task.add_done_callback(self._refusals.discard)

    async def close_all_connections(self) -> None:
        """Tornado's, and the refusals under way."""
        for task in tuple(self._refusals):
            task.cancel()
        await asyncio.gather(*self._refusals, return_exceptions=True)
        await super().close_all_connections()


async def _answer_too_many(stream: IOStream, problem: Problem) -> None:
    body = problem.as_json().encode()
    head = (
        f"HTTP/1.1 {problem.status} {responses[problem.status]}\r\nContent-Type: {CONTENT_TYPE}\r\n"
        f"Content-Length: {len(body)}\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    )
    with suppress(StreamClosedError, UnsatisfiableReadError, TimeoutError):
        async with asyncio.timeout(REFUSAL_PATIENCE_S):
            await stream.write(head.encode() + body)
            # A connection that is closed on a client in mid-sentence would break its pipe before it reads the answer.
            await stream.read_until(b"\r\n\r\n", max_bytes=65536)
    stream.close()
