"""Lets tornado's HTTP and WebSocket clients connect to a Unix socket, if it is the daemon of somebody to be trusted."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

from tornado.iostream import IOStream, StreamClosedError
from tornado.netutil import Resolver
from tornado.tcpclient import TCPClient

from nls_scheduler.units.clock import monotonic_s
from nls_scheduler.wire.trust import check_daemon

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_S: Final = 20.0
"""Until then a queue in which too many wait already is looked at again."""
_AGAIN_S: Final = 0.02


class UnixResolver(Resolver):
    """Resolves every host to one socket path."""

    def initialize(self, path: Path) -> None:
        """Called by tornado with the constructor's arguments."""
        self._path = str(path)

    async def resolve(
        self, host: str, port: int, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[tuple[int, Any]]:
        """The one address."""
        del host, port, family
        return [(socket.AF_UNIX, self._path)]


class TrustedConnections(TCPClient):
    """Tornado's, to one socket: nothing is sent before it is known whose daemon listens there."""

    def __init__(self, path: Path) -> None:
        super().__init__(resolver=UnixResolver(path))
        self._path = path

    async def connect(self, *_: Any, max_buffer_size: int | None = None, **__: Any) -> IOStream:
        """Tornado's client calls it. Raises DaemonUnreachable; StreamClosedError where nobody listens, or for long."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(0)
            await _connect(connection, self._path)
            check_daemon(connection, self._path)
            return IOStream(connection, max_buffer_size=max_buffer_size)
        except OSError as error:
            connection.close()
            raise StreamClosedError(real_error=error) from error
        except BaseException:
            connection.close()
            raise


async def _connect(connection: socket.socket, path: Path) -> None:
    """Tornado would take a full queue for a connection under way, as it is for TCP: it is to be tried again."""
    gives_up_at = monotonic_s() + _PATIENCE_S
    while True:
        try:
            return connection.connect(str(path))
        except BlockingIOError:
            if monotonic_s() > gives_up_at:
                raise
        await asyncio.sleep(_AGAIN_S)
