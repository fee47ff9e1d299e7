"""What runs on beside the cells that started it, and ends with its process: threads and tasks that have no name."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
import types
import weakref
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import THREAD_TARGET
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.origins import is_the_users_module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Running:
    """That of a shell's cells; never kept, only named. What has a name of the user's is named by that."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._started: weakref.WeakValueDictionary[int, threading.Thread] = weakref.WeakValueDictionary()

    def follow(self) -> None:
        """Note from now on who starts a thread: one that runs a library's function tells nobody. Called once."""
        start = threading.Thread.start

        @functools.wraps(start)
        def noted(thread: threading.Thread) -> None:
            if is_the_users_module(sys._getframe(1).f_globals.get("__name__")):
                self._started[id(thread)] = thread
            start(thread)

        threading.Thread.start = noted  # type: ignore[assignment, method-assign]

    def aspects(self) -> tuple[Aspect, ...]:
        """Plain values, none of which is ever there."""
        return (
            Aspect("running threads", lambda: _refuse(self._threads(), self._shell), _nothing),
            Aspect("running tasks", lambda: _refuse(_tasks(self._shell), self._shell), _nothing),
        )

    def _threads(self) -> Iterable[tuple[str, threading.Thread]]:
        for thread in threading.enumerate():
            # A timer's function has a name of its own.
            does = getattr(thread, "function", None) or THREAD_TARGET.of(thread, None)
            started = self._started.get(id(thread)) is thread
            if started or is_the_users_module(type(thread).__module__) or _is_the_users(does):
                yield thread.name, thread


def _refuse(running: Iterable[tuple[str, Any]], shell: Any) -> None:
    held = set(map(id, shell.user_ns.values()))
    if lost := [label for label, thing in running if id(thing) not in held]:
        verb = "ends with its process; start it again" if len(lost) == 1 else "end with their process; start them again"
        raise NotImplementedError(f"{', '.join(sorted(lost))} {verb}")


def _nothing(_: object) -> None:
    pass


def _is_the_users(does: Callable[..., Any] | None) -> bool:
    if isinstance(does, functools.partial):
        return _is_the_users(does.func)
    if isinstance(does, types.MethodType):
        return is_the_users_module(type(does.__self__).__module__)
    return isinstance(does, types.FunctionType) and is_the_users_module(does.__module__)


def _tasks(shell: Any) -> Iterable[tuple[str, asyncio.Task[Any]]]:
    loop = getattr(getattr(getattr(shell, "kernel", None), "io_loop", None), "asyncio_loop", None)
    for task in asyncio.all_tasks(loop) if loop is not None else ():
        coroutine: Any = task.get_coro()
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and frame.f_globals is shell.user_ns:
            yield f"{task.get_name()} ({coroutine.__qualname__})", task
