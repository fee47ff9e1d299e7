"""Tornado's connections, which can be closed with whoever asked by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tornado.tcpclient import TCPClient

if TYPE_CHECKING:
    from tornado.iostream import IOStream


class HangingUp(TCPClient):
    """Tornado's client, when it is closed or cancelled, leaves an answer that still comes to itself: who asked goes on.

    Before another `TCPClient` among the bases it keeps that one's connections.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._streams: list[IOStream] = []
        self._over = False

    async def connect(self, *arguments: Any, **named: Any) -> IOStream:
        """Tornado's client calls it."""
        stream = await super().connect(*arguments, **named)
        self._streams.append(stream)
        if self._over:
            stream.close()
        return stream

    def hang_up(self) -> None:
        """Close what is connected and whatever else will be."""
        self._over = True
        for stream in self._streams:
            stream.close()
