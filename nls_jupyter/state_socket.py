"""Saved state changes hands between the kernel and its GPU process as a numbered file descriptor."""

from __future__ import annotations

import os
import socket

# Names the end that the GPU process inherits.
VARIABLE = "NLS_STATE_SOCKET_FD"
_NUMBER_BYTES = 8
_ARRIVES_WITHIN_S = 10.0


class StateSocket:
    """One end of the socket pair. A sender puts the descriptor in before it sends the message that names its number."""

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

    def send(self, number: int, descriptor: int) -> None:
        """Send a copy of `descriptor`. Raises `OSError`."""
        socket.send_fds(self._socket, [number.to_bytes(_NUMBER_BYTES, "big")], [descriptor])

    def receive(self, number: int) -> int:
        """The descriptor sent with this number, the caller's to close; those of requests given up are closed.

        Raises:
            OSError: none came (`TimeoutError`, `BlockingIOError`), or the other side is gone.
        """
        while True:
            tag, descriptors, _, _ = socket.recv_fds(self._socket, _NUMBER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
            if not tag:
                raise ConnectionResetError("the other side of the saved state's socket is gone")
            if int.from_bytes(tag, "big") == number and descriptors:
                return descriptors[0]
            for descriptor in descriptors:
                os.close(descriptor)

    def close(self) -> None:
        """Idempotent."""
        self._socket.close()
