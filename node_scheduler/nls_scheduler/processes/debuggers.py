"""What a debugger in this process, such as JupyterLab's, leaves alone.

pydevd, which debugpy is made of, follows what its process starts and copies until that is attached to, which nobody
does here; and where one thread comes to a breakpoint, it stops all others. Even when it has been disconnected.
"""

from __future__ import annotations

import contextlib
import ctypes
import posix
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading
    from contextlib import AbstractContextManager

_TOOLS = range(6)
_EVENTS = tuple(1 << number for number in range(19))


def fork() -> int:
    """As `os.fork`, in whose place debuggers, tracers and event loops put their own."""
    return posix.fork()


def not_followed() -> AbstractContextManager[object]:
    """A Python process that this thread starts meanwhile is started as it is."""
    skip = getattr(sys.modules.get("pydevd"), "skip_subprocess_arg_patch", None)
    return contextlib.nullcontext() if skip is None else skip()


def not_stopped(thread: threading.Thread) -> threading.Thread:
    """Mark a thread, before it starts, as one that goes on while others stand at a breakpoint. Returns it."""
    thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
    thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
    return thread


def trace_nothing() -> None:
    """In a forked child, which lacks a debugger's other threads: nothing here is its own to follow or to stop."""
    ctypes.pythonapi.PyEval_SetTrace(None, None)  # a debugger has its own function in the place of `sys.settrace`
    monitoring = getattr(sys, "monitoring", None)  # from Python 3.12 on
    if monitoring is None:
        return
    for tool in _TOOLS:
        if monitoring.get_tool(tool) is not None:
            for event in _EVENTS:
                with contextlib.suppress(ValueError):  # not every version has all of them
                    monitoring.register_callback(tool, event, None)
