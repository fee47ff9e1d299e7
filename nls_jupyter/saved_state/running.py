"""What runs on beside the cells that started it, and ends with its process: threads, tasks and programs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import THREAD_TARGET
from nls_jupyter.saved_state.aspect import Aspect, only_named
from nls_jupyter.saved_state.kinds import is_of
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_scheduler.processes.guardian import is_guardian
from nls_scheduler.processes.proc import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: In the command lines of what libraries start for themselves, and start again when they need it.
_OF_LIBRARIES: Final = (b"multiprocessing", b"loky", b"torch_shm_manager", b"compile_worker", b"debugpy", b"wandb-")


class Running:
    """That of a shell's cells; never kept, only named. What has a name of the user's is named by that."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._started: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def follow(self) -> None:
        """Note from now on who starts what: one that runs a library's code does not tell. Called once in a process."""
        start, create_task = threading.Thread.start, asyncio.BaseEventLoop.create_task

        @functools.wraps(start)
        def noted_start(thread: threading.Thread) -> None:
            self._note(thread, sys._getframe(1))
            start(thread)

        @functools.wraps(create_task)
        def noted_task(loop: asyncio.BaseEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
            task = create_task(loop, coro, **options)
            self._note(task, sys._getframe(1))
            return task

        for owner, name, noted in (
            (threading.Thread, start.__name__, noted_start),
            (asyncio.BaseEventLoop, create_task.__name__, noted_task),
        ):
            setattr(owner, name, noted)

    def _note(self, thing: Any, frame: types.FrameType | None) -> None:
        """Note it if code of the user's asks for it, be it by way of asyncio's."""
        while frame is not None and (name := str(frame.f_globals.get("__name__", ""))).startswith("asyncio."):
            frame = frame.f_back
        if frame is not None and is_the_users_module(name or None):
            with contextlib.suppress(TypeError):  # somebody's own kind of task, which nothing can refer to weakly
                self._started[id(thing)] = thing

    def aspects(self) -> tuple[Aspect, ...]:
        """Plain values, none of which is ever there."""
        return (
            only_named("running threads", lambda: self._without_name(self._threads()), "start"),
            only_named("running tasks", lambda: self._without_name(self._tasks()), "start"),
            only_named("running programs", self._programs, "start"),
        )

    def _threads(self) -> Iterable[tuple[str, threading.Thread]]:
        for thread in threading.enumerate():
            # A timer's function has a name of its own.
            does = getattr(thread, "function", None) or THREAD_TARGET.of(thread, None)
            if self._is_noted(thread) or is_the_users_module(type(thread).__module__) or _is_the_users(does):
                yield thread.name, thread

    def _tasks(self) -> Iterable[tuple[str, asyncio.Task[Any]]]:
        loop = getattr(getattr(getattr(self._shell, "kernel", None), "io_loop", None), "asyncio_loop", None)
        for task in asyncio.all_tasks(loop) if loop is not None else ():
            coroutine: Any = task.get_coro()
            frame = getattr(coroutine, "cr_frame", None)
            if self._is_noted(task) or (frame is not None and frame.f_globals is self._shell.user_ns):
                yield f"{task.get_name()} ({coroutine.__qualname__})", task

    def _without_name(self, running: Iterable[tuple[str, Any]]) -> Iterable[str]:
        held = set(map(id, self._shell.user_ns.values()))
        return (label for label, thing in running if id(thing) not in held)

    def _programs(self) -> Iterable[str]:
        """Those of libraries, and what Python's own workers run, are left out."""
        found = {pid: words_of(pid) for pid in _started_by_this()}
        if not found:
            return
        own, values = words_of(os.getpid()), list(self._shell.user_ns.values())
        named = {value.pid for value in values if is_of(value, subprocess.Popen)}
        for pid, words in found.items():
            of_library = words == own or any(mark in word for word in words for mark in _OF_LIBRARIES)
            if words[0] and not of_library and pid not in named:  # one that has ended has no words
                yield f"{os.fsdecode(words[0]).rpartition('/')[2]} (process {pid})"

    def _is_noted(self, thing: Any) -> bool:
        return self._started.get(id(thing)) is thing


def _is_the_users(does: Callable[..., Any] | None) -> bool:
    if isinstance(does, functools.partial):
        return _is_the_users(does.func)
    if isinstance(does, types.MethodType):
        return is_the_users_module(type(does.__self__).__module__)
    return isinstance(does, types.FunctionType) and is_the_users_module(does.__module__)


def _started_by_this() -> Iterator[int]:
    """The processes that this one has started, and what these have; also where those that did have ended."""
    this, guardian = os.getpid(), os.getppid()
    found = _children_of(this) if _has_children() else []
    if is_guardian(guardian):  # which takes in what programs leave behind
        found += _children_of(guardian)
    while found:
        if (pid := found.pop()) != this:
            found += _children_of(pid)
            yield pid


def _has_children() -> bool:
    """Whether this process has any that nobody has waited for: mostly there is none, which is told at once."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has just ended; or Linux was built without these
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - at each save
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    return found
