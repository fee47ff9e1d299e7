"""Lets tornado's HTTP and WebSocket clients connect to a Unix socket, if it is the daemon of somebody to be trusted."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from tornado.iostream import StreamClosedError
from tornado.netutil import Resolver
from tornado.tcpclient import TCPClient

from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.trust import check_daemon

if TYPE_CHECKING:
    from pathlib import Path

    from tornado.iostream import IOStream


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

    async def connect(self, *arguments: Any, **named: Any) -> IOStream:
        """Tornado's client calls it. Raises DaemonUnreachable."""
        stream = await super().connect(*arguments, **named)
        if stream.socket is None:  # the socket's queue is full
            raise StreamClosedError(real_error=stream.error)
        try:
            check_daemon(stream.socket, self._path)
        except DaemonUnreachable:
            stream.close()
            raise
        return stream
