"""What is known of a request to the GPU process while its answer is on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.lane import OUTPUTS
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

Message = dict[str, Any]


# Of these what is said says it all.
_SENTENCES = frozenset({"DroppedError", "NoRoomError"})


class RequestFailed(Exception):  # noqa: N818 - says what happened
    """The GPU process answered a request with an error; `ename`, `evalue` and `traceback` are its exception's."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.ename: str = content.get("ename", "")
        self.evalue: str = content.get("evalue", "")
        self.traceback: list[str] = content.get("traceback", [])
        text = self.evalue if self.ename in _SENTENCES else f"{self.ename}: {self.evalue}"
        super().__init__(text if self.ename else f"answered {content.get('status')!r}")


class Expected:
    """A request on its way: its answer is complete with the reply and, where outputs matter, the last of them.

    That is the one that the reply names, else iopub's idle. What has no reply, a widget's message, is answered by
    iopub's idle alone.

    Attributes:
        runs_code: whether it is a cell, or what a widget calls.
    """

    def __init__(
        self,
        *,
        with_idle: bool,
        on_stdin: Callable[[Message], Awaitable[None] | None] | None,
        with_reply: bool = True,
    ) -> None:
        self.answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.on_stdin = on_stdin
        self.runs_code = with_idle
        self._reply: Message | None = None if with_reply else {}
        self._idle = not with_idle
        self._last_output: int | None = None

    def replied(self, reply: Message, heard: int = 0) -> None:
        """The reply has come, after so many outputs of the process were heard."""
        self._reply = reply
        self._last_output = reply.get("metadata", {}).get(OUTPUTS)
        self.heard(heard)

    def heard(self, number: int) -> None:
        """The output of this number has come, and all before it."""
        if self._last_output is not None and number >= self._last_output:
            self._idle = True
        self._complete()

    def idle(self) -> None:
        """Its last output has come."""
        self._idle = True
        self._complete()

    def _complete(self) -> None:
        if self._reply is not None and self._idle and not self.answer.done():
            self.answer.set_result(self._reply)

    def fail(self, status: ExitStatus) -> None:
        """Nothing will come any more."""
        if not self.answer.done():
            self.answer.set_exception(GpuProcessDied(status))


def accepted(content: Message) -> Message:
    """The content of a reply, unless it reports a failure. Raises `RequestFailed`."""
    if content.get("status") != "ok":
        raise RequestFailed(content)
    return content
