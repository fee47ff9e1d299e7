"""What a debugger in this process, such as JupyterLab's, leaves alone.

pydevd, which debugpy is made of, follows what its process starts and copies until that is attached to, which nobody
does here; and where one thread comes to a breakpoint, it stops all others. Even when it has been disconnected.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import posix
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

# What tells them and what sets them; debuggers put their own in the places of these.
_TOLD: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "trace": (sys.gettrace, sys.settrace),
    "profile": (sys.getprofile, sys.setprofile),
}
_put_aside: dict[str, Any] = {}
_CALLED = (types.FunctionType, types.MethodType, functools.partial)
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


@contextlib.contextmanager
def nobody_traces() -> Iterator[None]:
    """In the main thread's block, functions of Python's that trace and profile it are put aside.

    Where a signal's handler raises while one of them runs, Python takes that function off for good, and without a word:
    a debugger would come to no breakpoint any more.
    """
    aside = {}
    for kind, (get, put) in _TOLD.items():
        if _is_called(function := get()):
            aside[kind] = function
            put(None)
    _put_aside.update(aside)
    try:
        yield
    finally:
        for kind, function in aside.items():
            get, put = _TOLD[kind]
            del _put_aside[kind]
            if get() is None:
                put(function)


def tracer() -> Any:
    """As `sys.gettrace` in the main thread, also of what is put aside."""
    return _put_aside.get("trace") or sys.gettrace()


def profiler() -> Any:
    """As `sys.getprofile` in the main thread, also of what is put aside."""
    return _put_aside.get("profile") or sys.getprofile()


def _is_called(function: Any) -> bool:
    """Whether it was set by `sys.settrace` or its like, and is code of Python's: C code meets no signal's handler."""
    kind = type(function)
    return issubclass(kind, _CALLED) or kind.__module__.startswith("_pydevd")


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
