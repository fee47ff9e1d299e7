"""WebSockets as RFC 6455 has them: a client masks its frames, and one that does not is let go (5.1)."""

from __future__ import annotations

import asyncio
from typing import Final

from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketProtocol13

_MASKED: Final = 0x80
_PROTOCOL_ERROR: Final = 1002


class MaskedProtocol(WebSocketProtocol13):
    """The server's end of a connection; ends with 1002 at a frame that is not masked."""

    _begins = False

    async def _receive_frame(self) -> None:
        self._begins = True
        await super()._receive_frame()
        # Tornado goes on as long as there is more to read: pings without end would keep everybody else waiting.
        await asyncio.sleep(0)

    async def _read_bytes(self, n: int) -> bytes:
        """Tornado's; the first bytes of a frame say whether it is masked."""
        data = await super()._read_bytes(n)
        begins, self._begins = self._begins, False
        if begins and not data[1] & _MASKED:
            self.close(_PROTOCOL_ERROR, "a client masks its frames: RFC 6455, 5.1")
            raise StreamClosedError
        return data
