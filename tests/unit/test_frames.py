"""What the daemon's end of a WebSocket makes of frames, whoever sends them."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter

import pytest
from tornado import web, websocket
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

from nls_scheduler.daemon.http.masked import MaskedProtocol

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: nls\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
BEGIN, MORE, END, PING, PONG = (bytes([first, 0x80, 0, 0, 0, 0]) for first in (0x01, 0x00, 0x80, 0x89, 0x8A))
MANY = 500


@pytest.mark.parametrize("frames", [PING * MANY, PONG * MANY, BEGIN + MORE * MANY + END])
def test_others_have_their_turn_between_two_frames_however_many_come_at_once(frames: bytes) -> None:
    asyncio.run(take_turns(frames))


async def take_turns(frames: bytes) -> None:
    turn, read_in, over = 0, Counter[int](), asyncio.Event()

    class Counted(MaskedProtocol):
        async def _receive_frame(self) -> None:
            await super()._receive_frame()
            read_in[turn] += 1

    class Handler(websocket.WebSocketHandler):
        def get_websocket_protocol(self) -> websocket.WebSocketProtocol | None:
            made = super().get_websocket_protocol()
            assert isinstance(made, websocket.WebSocketProtocol13)
            return Counted(self, False, made.params)

        def on_close(self) -> None:
            over.set()

    server = HTTPServer(web.Application([("/", Handler)]))
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(HANDSHAKE + frames)
        server.handle_stream(IOStream(ours), "")
        theirs.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(30):
            while not over.is_set():
                turn += 1
                await asyncio.sleep(0)
        await server.close_all_connections()
    assert read_in.total() >= MANY
    assert max(read_in.values()) == 1
