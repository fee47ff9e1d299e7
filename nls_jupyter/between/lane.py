"""Whole messages between the kernel and its GPU process, beside Jupyter's channels and without their threads.

A message of Jupyter's shell channel passes through three other threads of the GPU process and back through two. Here
the loops that send it and read it have the two ends of one socket.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Names the end that the GPU process inherits.
VARIABLE = "NLS_LANE_FD"
# What the GPU process sends first: from now on it takes requests here.
OPEN = b"open"
# Among the identities of a message that has come this way: its answer goes back this way.
MARK = b"lane"
# In the metadata of a reply: which of the process's outputs was the last before it.
OUTPUTS = "nls_outputs"
_COUNT = struct.Struct(">I")
_AT_ONCE_BYTES = 1 << 18


class Lane:
    """One end, which never blocks. Belongs to one thread."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)  # noqa: FBT003 - its only signature
        self._socket = end
        self._arrived = bytearray()
        self._to_send = bytearray()

    @classmethod
    def pair(cls) -> tuple[Self, socket.socket]:
        """The kernel's end, and the one to be inherited."""
        own, inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(own), inherited

    @classmethod
    def inherited(cls) -> Self:
        """The GPU process's end. Raises `KeyError` where no kernel started the process."""
        descriptor = int(os.environ.pop(VARIABLE))
        os.set_inheritable(descriptor, False)  # noqa: FBT003 - its only signature
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """For an event loop; -1 when it is closed."""
        return self._socket.fileno()

    def wait_for(self, event: int, within_s: float | None = None) -> bool:
        """Until there is something to read (`select.POLLIN`), or room to send (`POLLOUT`); False: not within so long.

        Not by `select`: where the kernel has opened many files, this one's number is above those that it knows.
        """
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(None if within_s is None else within_s * 1000))

    def send(self, frames: Sequence[bytes | memoryview]) -> bool:
        """Send a message, or as much of it as there is room for. Returns and raises as `send_rest`."""
        parts = [memoryview(frame).cast("B") for frame in frames]
        self._to_send += struct.pack(f">I{len(parts)}Q", len(parts), *map(len, parts))
        for part in parts:
            self._to_send += part
        return self.send_rest()

    def send_rest(self) -> bool:
        """Go on with what there was no room for. Whether all is sent. Raises `OSError` where the other side is gone."""
        while self._to_send:
            try:
                sent = self._socket.send(self._to_send)
            except BlockingIOError:
                return False
            del self._to_send[:sent]
        return True

    def arrived(self) -> Iterator[list[bytes]]:
        """The messages that have arrived as a whole. Raises `OSError` where the other side is gone, after the last."""
        gone = self._take_in()
        while (message := self._next()) is not None:
            yield message
        if gone:
            raise ConnectionResetError("the other side of the lane is gone")

    def _take_in(self) -> bool:
        """What is there now. Whether the other side is gone."""
        while True:
            try:
                content = self._socket.recv(_AT_ONCE_BYTES)
            except BlockingIOError:
                return False
            except ConnectionError:
                return True
            self._arrived += content
            if len(content) < _AT_ONCE_BYTES:
                return not content

    def _next(self) -> list[bytes] | None:
        if len(self._arrived) < _COUNT.size:
            return None
        (count,) = _COUNT.unpack_from(self._arrived)
        lengths = struct.Struct(f">{count}Q")
        at = _COUNT.size + lengths.size
        if len(self._arrived) < at:
            return None
        sizes = lengths.unpack_from(self._arrived, _COUNT.size)
        if len(self._arrived) < at + sum(sizes):
            return None
        frames = []
        for size in sizes:
            frames.append(bytes(self._arrived[at : at + size]))
            at += size
        del self._arrived[:at]
        return frames

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
