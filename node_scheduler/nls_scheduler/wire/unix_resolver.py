"""Lets tornado's HTTP and WebSocket clients connect to a Unix socket."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from tornado.netutil import Resolver

if TYPE_CHECKING:
    from pathlib import Path


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
