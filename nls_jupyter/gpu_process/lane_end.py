"""The GPU process's end of the lane: its requests reach the kernel's shell as those of the shell channel do."""

from __future__ import annotations

import contextvars
import os
import select
from typing import TYPE_CHECKING, Any, NamedTuple

from jupyter_client.session import Session

from nls_jupyter.between import held_signals, lane_messages
from nls_jupyter.between.lane import MARK, OPEN, Lane
from nls_jupyter.between.seams import SHELL_MAIN

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator, Sequence


class LaneEnd:
    """Where the main thread reads requests, and a stream, for `Session.send`, for their answers.

    ipykernel before 7 has no shell thread of its own and knows another way: there the lane stays closed.
    """

    def __init__(self, lane: Lane, kernel: Any) -> None:
        self._lane = lane
        self._kernel = kernel
        self._pid = os.getpid()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Tell the notebook's kernel that requests can come this way, and read them in the main thread's loop."""
        if SHELL_MAIN.of(self._kernel, None) is None or getattr(self._kernel, "shell_channel_thread", None) is None:
            return
        # One context for all of them, as ipykernel has it: what a cell sets is there in the next one.
        self._context = contextvars.copy_context()
        self._kernel.io_loop.add_handler(self._lane.fileno(), self._read, self._kernel.io_loop.READ)
        self._kernel.observe(self._leave_the_main_loop, "eventloop")
        self.send([OPEN])

    @property
    def waits(self) -> bool:
        """Whether a request has come that nobody has read."""
        return self._lane.wait_for(select.POLLIN, 0.0)

    def answering(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """A handler of ipykernel's signature whose answers go back the way that their requests came."""

        def handle(stream: Any, ident: Any, parent: dict[str, Any]) -> Any:
            return handler(self if ident and MARK in ident else stream, ident, parent)

        return handle

    @held_signals.held()
    def send(self, frames: Sequence[bytes | memoryview]) -> None:
        """Send all of it, however long that takes. A forked child has nothing to say."""
        if os.getpid() != self._pid:
            return
        try:
            sent = self._lane.send(frames)
            while not sent:
                self._lane.wait_for(select.POLLOUT)
                sent = self._lane.send_rest()
        except ConnectionError:
            pass  # the kernel is gone, and its guardian ends this process

    @held_signals.held()
    def _read(self, *_: object) -> None:
        if os.getpid() != self._pid:
            return  # a forked child that goes on in this loop takes nothing away from its parent
        loop = self._kernel.io_loop.asyncio_loop
        for request in self._received(self._kernel.io_loop):
            work = SHELL_MAIN.of(self._kernel)(None, request)
            task = loop.create_task(work, context=self._context)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _received(self, io_loop: Any) -> Iterator[_Request]:
        try:
            for identity, *frames in self._lane.arrived():
                yield _Request([identity, MARK], lane_messages.unpack(frames))
        except ConnectionError:
            io_loop.remove_handler(self._lane.fileno())

    def _leave_the_main_loop(self, change: Any) -> None:
        """A GUI's event loop lets no other run, and looks at ipykernel's own sockets: hand over through these."""
        if change["new"] is None or os.getpid() != self._pid:
            return
        thread = self._kernel.shell_channel_thread
        self._kernel.unobserve(self._leave_the_main_loop, "eventloop")
        self._kernel.io_loop.remove_handler(self._lane.fileno())
        thread.io_loop.add_callback(thread.io_loop.add_handler, self._lane.fileno(), self._hand_on, thread.io_loop.READ)

    def _hand_on(self, *_: object) -> None:
        """In ipykernel's shell thread."""
        thread = self._kernel.shell_channel_thread
        if os.getpid() == self._pid:
            for request in self._received(thread.io_loop):
                frames = self._kernel.session.serialize(request.message, request.identities)
                to_main = thread.manager.get_shell_channel_to_subshell_socket(None)
                to_main.send_multipart([*frames, *request.message["buffers"]])


class _Request(NamedTuple):
    """Stands where ipykernel has the frames of a message."""

    identities: list[bytes]
    message: dict[str, Any]


class LaneSession(Session):
    """Knows the lane's requests, which are read already, and answers them there; for all others a session as any."""

    def feed_identities(self, msg_list: Any, copy: bool = True) -> Any:  # noqa: FBT001, FBT002 - its signature
        """See `Session`."""
        if isinstance(msg_list, _Request):
            return msg_list.identities, msg_list
        return super().feed_identities(msg_list, copy)

    def deserialize(self, msg_list: Any, *args: Any, **options: Any) -> dict[str, Any]:
        """See `Session`."""
        if isinstance(msg_list, _Request):
            return msg_list.message
        return super().deserialize(msg_list, *args, **options)

    def send(self, stream: Any, *args: Any, **options: Any) -> dict[str, Any] | None:
        """See `Session`."""
        if isinstance(stream, LaneEnd):
            return self._answer(stream, *args, **options)
        return super().send(stream, *args, **options)

    def _answer(
        self,
        stream: LaneEnd,
        msg_type: str,
        content: Any = None,
        parent: Any = None,
        ident: Any = None,  # noqa: ARG002 - there is one that asks
        buffers: Any = None,
        *,
        metadata: Any = None,
    ) -> dict[str, Any]:
        message = self.msg(msg_type, content, parent, metadata=metadata)
        stream.send(lane_messages.pack(message, buffers or ()))
        return message
