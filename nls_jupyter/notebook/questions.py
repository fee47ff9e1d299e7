"""Completion, help and the debugger: requests for the GPU process that never start, resume or hold up anything."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from nls_jupyter.supervisor.launch import GpuProcessDied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_jupyter.supervisor.loop_thread import LoopThread
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.supervisor import Supervisor

_log = logging.getLogger(__name__)

# Completion and help are worth no longer wait.
_ANSWERED_WITHIN_S = 1.5
# Evaluating an expression at a breakpoint may take as long as the expression does.
_DEBUGGED_WITHIN_S = 30.0


class Questions:
    """Asks the GPU process that is there now, if one is."""

    def __init__(self, thread: LoopThread, supervisor: Supervisor) -> None:
        self._thread = thread
        self._supervisor = supervisor

    def ask(self, msg_type: str, content: Mapping[str, Any]) -> Message | None:
        """Ask its shell, from the thread that answers the frontend.

        Returns:
            The reply's content; `None` without a GPU process, while a cell runs there, and when no answer comes in
            time.
        """
        return self._thread.call(self._ask(msg_type, content))

    async def _ask(self, msg_type: str, content: Mapping[str, Any]) -> Message | None:
        keeper = self._supervisor.keeper
        process = keeper.process
        if process is None or keeper.executing or not keeper.still_usable():
            return None
        try:
            return await process.request(msg_type, content, timeout_s=_ANSWERED_WITHIN_S)
        except (GpuProcessDied, TimeoutError) as error:
            _log.debug("No answer to a %s: %s", msg_type, error or "it came too late")
            return None

    async def debug(self, request: Message) -> Message | None:
        """Have its debugger answer, in mid-cell too; from the control thread's loop.

        Returns:
            The debugger's reply, also when it says that no answer came; `None` without a GPU process.
        """
        return await asyncio.wrap_future(self._thread.submit(self._debug(request)))

    async def _debug(self, request: Message) -> Message | None:
        keeper = self._supervisor.keeper
        process = keeper.process
        if process is None or not keeper.still_usable():
            return None
        try:
            return await process.request("debug_request", request, channel="control", timeout_s=_DEBUGGED_WITHIN_S)
        except GpuProcessDied as died:
            return refusal(request, str(died))
        except TimeoutError:
            return refusal(request, f"the GPU process's debugger did not answer within {_DEBUGGED_WITHIN_S:g} s")


def refusal(request: Mapping[str, Any], why: str) -> Message:
    """An answer of the Debug Adapter Protocol that says no."""
    return {
        "type": "response",
        "seq": request["seq"],
        "request_seq": request["seq"],
        "command": request["command"],
        "success": False,
        "message": why,
        "body": {},
    }
