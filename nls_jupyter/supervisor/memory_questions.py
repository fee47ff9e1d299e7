"""Carries what an allocation in the GPU process lacks to the daemon, and the answer back into the running cell."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.pending import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.pending import Message

_UNREACHABLE = "the node's daemon does not answer, so nobody can make room"


class MemoryQuestions:
    """The questions of one workload that have not been answered. Everything runs in the loop's thread."""

    def __init__(self, tell: Callable[..., Awaitable[None]], connected: Callable[[], bool]) -> None:
        """`tell(event, **fields)` tells the daemon; `connected`: whether it would hear of it now."""
        self._tell = tell
        self._connected = connected
        self._asked: dict[int, GpuProcess] = {}

    async def ask(self, process: GpuProcess, question: Message) -> None:
        """An allocation of `process` has failed: `number, gpu, bytes, held_bytes`."""
        number: int = question["number"]
        if not self._connected():
            await _give(process, {"number": number, "granted": False, "reason": _UNREACHABLE})
            return
        # A cell waits for one answer at a time; what was asked before was given up.
        self._asked = {number: process}
        await self._tell("memory_wanted", **question)

    async def answer(self, answer: Mapping[str, Any] | None) -> None:
        """What the newest status entry says; most have nothing new."""
        process = None if answer is None else self._asked.pop(answer["number"], None)
        if process is not None and answer is not None:
            await _give(process, answer)


async def _give(process: GpuProcess, answer: Mapping[str, Any]) -> None:
    # A process that ended, or that stopped waiting, needs none.
    with contextlib.suppress(GpuProcessDied, RequestFailed, TimeoutError):
        await process.answer_memory(answer)
