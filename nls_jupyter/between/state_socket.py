"""Saved state changes hands between the kernel and its GPU process as numbered file descriptors."""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Names the end that the GPU process inherits.
VARIABLE = "NLS_STATE_SOCKET_FD"
# The number, and whether a message names it.
_TAG = struct.Struct(">Q?")
_ARRIVES_WITHIN_S = 10.0
# At most: the file in memory, and the one on disk.
_FILES = 2


class Arrival(NamedTuple):
    """Descriptors from the other side, the taker's to close; a message names those that are `announced`.

    There are none where this process could not open as many as were sent.
    """

    number: int
    announced: bool
    descriptors: tuple[int, ...]


def none_free() -> OSError:
    """What to raise for an arrival without descriptors."""
    return OSError(
        errno.EMFILE,
        "this process has no free file descriptor for what it was sent: close files, or raise the limit (ulimit -n)",
    )


class StateSocket:
    """One end of the socket pair. A sender puts descriptors in before it sends the message that names their number.

    What was sent arrives, even if the sender is killed in the next moment.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[StateSocket, socket.socket]:
        """The kernel's end, which never blocks, and the one to be inherited."""
        own, inherited = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)  # noqa: FBT003 - its only signature
        return cls(own), inherited

    @classmethod
    def inherited(cls) -> StateSocket:
        """The GPU process's end. Not inheritable any more, or each `!command` would hold it open."""
        descriptor = int(os.environ.pop(VARIABLE))
        os.set_inheritable(descriptor, False)  # noqa: FBT003
        end = socket.socket(fileno=descriptor)
        end.settimeout(_ARRIVES_WITHIN_S)
        return cls(end)

    def fileno(self) -> int:
        """For an event loop, which is to call `arrived`."""
        return self._socket.fileno()

    def send(self, number: int, descriptors: Sequence[int], *, announced: bool = True) -> None:
        """Send copies of descriptors. Raises `OSError`."""
        socket.send_fds(self._socket, [_TAG.pack(number, announced)], descriptors)

    def receive(self, number: int) -> tuple[int, ...]:
        """The descriptors sent with this number, the caller's to close; those of requests given up are closed.

        Raises:
            OSError: none came (`TimeoutError`, `BlockingIOError`), the other side is gone, or no descriptor is free.
        """
        while True:
            arrival = self._next()
            if arrival.number == number:
                if not arrival.descriptors:
                    raise none_free()
                return arrival.descriptors
            for descriptor in arrival.descriptors:
                os.close(descriptor)

    def arrived(self) -> Iterator[Arrival]:
        """What has arrived so far, in order. Raises `ConnectionResetError` where the other side is gone."""
        while True:
            try:
                yield self._next()
            except BlockingIOError:
                return

    def _next(self) -> Arrival:
        tag, descriptors, flags, _ = socket.recv_fds(self._socket, _TAG.size, _FILES, socket.MSG_CMSG_CLOEXEC)
        if not tag:
            raise ConnectionResetError("the other side of the saved state's socket is gone")
        number, announced = _TAG.unpack(tag)
        if flags & socket.MSG_CTRUNC:  # a part of a saved state is none
            while descriptors:
                os.close(descriptors.pop())
        return Arrival(number, announced, tuple(descriptors))

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
