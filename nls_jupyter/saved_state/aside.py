"""A copy of this process does a piece of work, while this one goes on: what a save looks at stands still for the copy.

What the copy sees is this process at the moment of `fork`, and it has one thread, so nothing changes under it. It has
everything of this process's: it must not use what others share, such as sockets and the Gpu, and it ends without any
of the steps of a Python process's end.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.watchdog import SaveStoppedError
from nls_scheduler.processes import debuggers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Libraries whose threads a copy lacks and yet waits for; RAPIDS', which copy memory of a GPU where they are pickled.
_NOT_COPIED = ("jax", "tensorflow", "grpc", "ray", "rmm")
#: How a copy ended.
DONE, FAILED, STOPPED, REFUSED = "done", "failed", "stopped", "refused"
#: Why nobody copies a process whose names show memory that a fork does not copy.
SHARED = "it shows memory that is shared with other processes"
_HERE = b"h"
_CODES = {DONE: 0, FAILED: 1, STOPPED: 2, REFUSED: 3}
# One that does not see that it is to stop is killed: what it has not committed is nobody's.
_STOPS_WITHIN_S = 2.0
# What was killed and does not end waits for a disk, or for whoever has stopped the whole machine.
_KILLS = 5
# A fork takes as long as the page tables do. What others have called after each fork may never return.
_BEGINS_WITHIN_S = 30.0
_WITHIN_S = 120.0
# Bytes that are shared with the copy: whether it is to stop; whether it can be ended, without which it does not begin.
_STOP, _KNOWN = range(2)
_THREAD = "nls-saved-state-aside"
_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_ENDS = (signal.SIGTERM, signal.SIGQUIT)
_IGNORE_ALL = ("ignore", None, Warning, None, 0)

_libc = ctypes.CDLL(None, use_errno=True)


def why_not() -> str | None:
    """What keeps this process from being copied; `None` for nothing."""
    found = [name for name in _NOT_COPIED if name in sys.modules]
    return f"{found[0]} does not work in a copy of its process" if found else None


class NotAsideError(Exception):
    """No copy of this process can do the work; the text says why."""


class Aside:
    """One copy of this process, at work.

    Args:
        work: what the copy does; gets what to call now and then, which raises SaveStoppedError where it is to stop.
        over: called in a thread of its own when the copy has ended, with how: `DONE`; `STOPPED`; `REFUSED` where the
            work raised NotAsideError; else `FAILED`.
        within_s: a copy that takes longer waits for something that it lacks, and is killed.

    Raises:
        OSError: there is no room for one more process.
    """

    def __init__(
        self, work: Callable[[Callable[[], None]], None], over: Callable[[str], None], within_s: float = _WITHIN_S
    ) -> None:
        self._shared = _shared_bytes()
        self._over = over
        self._within_s = within_s
        self._using_pidfd = threading.Lock()
        self._hears, tells = socket.socketpair()
        parent = os.pidfd_open(os.getpid())
        try:
            with _no_warnings():
                # That other threads may hold locks for ever in the copy is why `end` has a bound.
                between = debuggers.fork()
            if between == 0:
                _begin(work, self._shared, parent, tells)
            # Of what is in between, then of the copy: a pid could be another process's by the time that it is used.
            self._pidfd = _opened(between)
        except OSError:
            self._shared[_STOP] = 1
            self._hears.close()
            raise
        finally:  # of this process: the other one never comes here
            tells.close()
            os.close(parent)
        self._thread = threading.Thread(target=self._follow, args=(between,), name=_THREAD, daemon=True)
        debuggers.not_stopped(self._thread).start()

    def end(self) -> None:
        """Have it stop, unless it is done, and wait until it is gone. Raises OSError where it does not even die."""
        self._shared[_STOP] = 1
        self._thread.join(_STOPS_WITHIN_S)
        for _ in range(_KILLS):
            if not self._thread.is_alive():
                return
            self._kill()
            self._thread.join(_STOPS_WITHIN_S)
        if self._thread.is_alive():
            raise OSError("a copy of this process, which saves, does not end")

    def _kill(self) -> None:
        with self._using_pidfd:
            if self._pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _follow(self, between: int) -> None:
        how = b""
        self._wait(_BEGINS_WITHIN_S)
        with contextlib.suppress(ChildProcessError):  # a cell's `os.wait()` was told instead
            os.waitpid(between, 0)
        with self._hears:
            self._hears.settimeout(0)  # what was sent is there: whoever sends it is gone
            copy = self._introduced()
            self._know(copy)
            if copy is not None:  # without, it does not begin, and all that it could tell is that it stopped
                self._wait(self._within_s)
                with contextlib.suppress(BlockingIOError):
                    how = self._hears.recv(1)
        self._know(None)
        self._over(next((name for name, code in _CODES.items() if how == bytes([code])), FAILED))

    def _wait(self, within_s: float) -> None:
        """Until the process of the pidfd has ended, which is killed after so long."""
        if self._pidfd is not None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if not poll.poll(within_s * 1000):
                self._kill()
                poll.poll()

    def _introduced(self) -> int | None:
        with contextlib.suppress(BlockingIOError):
            _, sent, _, _ = socket.recv_fds(self._hears, 1, 1)
            return sent[0] if sent else None
        return None

    def _know(self, pidfd: int | None) -> None:
        with self._using_pidfd:
            if self._pidfd is not None:
                os.close(self._pidfd)
            self._pidfd = pidfd


@contextlib.contextmanager
def _no_warnings() -> Iterator[None]:
    """As `warnings.catch_warnings`, which makes Python forget of what it has warned once already."""
    filters: Any = warnings.filters
    filters.insert(0, _IGNORE_ALL)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # somebody else has cleared them
            filters.remove(_IGNORE_ALL)


def _opened(pid: int) -> int | None:
    """Of a child that was forked this moment; `None` where it has ended and nobody has to wait for it."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _shared_bytes() -> mmap.mmap:
    """Shared with the copy; by their name this package's own (`shared_memory.py`)."""
    descriptor = os.memfd_create("nls-aside", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _KNOWN + 1)
        return mmap.mmap(descriptor, _KNOWN + 1)
    finally:
        os.close(descriptor)


def _begin(work: Callable[[Callable[[], None]], None], shared: mmap.mmap, parent: int, tells: socket.socket) -> None:
    """In between: the copy is nobody's child whom a cell of the process's could wait for. Never returns."""
    try:
        debuggers.trace_nothing()
        between = os.getpid()
        copy = debuggers.fork()
        if copy == 0:
            _work(work, shared, parent, between, tells)
        socket.send_fds(tells, [_HERE], [os.pidfd_open(copy)])
        shared[_KNOWN] = 1
    finally:
        os._exit(0)


def _work(
    work: Callable[[Callable[[], None]], None],
    shared: mmap.mmap,
    parent: int,
    between: int,
    tells: socket.socket,
) -> None:
    """All that the copy does; it never returns."""
    how = FAILED
    try:
        _leave_all_alone(between)
        work(_going_on(shared, parent))
        how = DONE
    except SaveStoppedError:
        how = STOPPED
    except NotAsideError:
        how = REFUSED
    finally:
        tells.send(bytes([_CODES[how]]))
        os._exit(0)


def _going_on(shared: mmap.mmap, process: int) -> Callable[[], None]:
    """What raises SaveStoppedError where the copy is to stop, has not been made known, or the process is gone.

    `process` is a pidfd. A guardian of that process ends the copy, too.
    """
    gone = select.poll()
    gone.register(process, select.POLLIN)

    def check() -> None:
        if shared[_STOP] or not shared[_KNOWN]:
            raise SaveStoppedError("the process saves otherwise now")
        if gone.poll(0):
            raise SaveStoppedError("the process is gone")

    check()
    return check


def _leave_all_alone(between: int) -> None:
    """Whatever of this process's reaches others is not for the copy."""
    gc.disable()  # no finalizer runs twice
    while os.getppid() == between:
        time.sleep(0.0005)  # until it is the guardian's, with which it ends
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    for number in _ENDS:
        signal.signal(number, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # they stay the objects that names may hold
            stream.write = stream.flush = _unheard  # type: ignore[method-assign]
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # the threads that it had are not in the copy


def _unheard(*_: Any) -> int:
    return 0
