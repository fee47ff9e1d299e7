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

if TYPE_CHECKING:
    from collections.abc import Callable

#: Libraries whose threads a copy lacks and yet waits for.
_NOT_COPIED = ("jax", "tensorflow", "grpc", "ray")
#: How a copy ended.
DONE, FAILED, STOPPED, REFUSED = "done", "failed", "stopped", "refused"
#: Why nobody copies a process whose names show memory that a fork does not copy.
SHARED = "it shows memory that is shared with other processes"
_HERE = b"h"
_CODES = {DONE: 0, FAILED: 1, STOPPED: 2, REFUSED: 3}
# One that does not see that it is to stop is killed: what it has not committed is nobody's.
_STOPS_WITHIN_S = 2.0
_WITHIN_S = 120.0
_THREAD = "nls-saved-state-aside"
_SET_PDEATHSIG = 1
_IGNORED = (signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_ENDS = (signal.SIGTERM, signal.SIGQUIT)

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
        self._stop = _shared_byte()
        self._over = over
        self._within_s = within_s
        # The copy itself sends it: a pid could be another process's by the time that it is used.
        self._pidfd: int | None = None
        self._using_pidfd = threading.Lock()
        self._hears, tells = socket.socketpair()
        parent = os.pidfd_open(os.getpid())
        try:
            with warnings.catch_warnings():
                # That other threads may hold locks for ever in the copy is why `end` has a bound.
                warnings.simplefilter("ignore")
                between = os.fork()
        except OSError:
            self._hears.close()
            raise
        else:
            if between == 0:
                _begin(work, self._check, parent, tells)
        finally:  # of this process: the other one never comes here
            tells.close()
            os.close(parent)
        self._thread = threading.Thread(target=self._follow, args=(between,), name=_THREAD, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Have it stop, unless it is done, and wait until it is gone."""
        self._stop[0] = 1
        self._thread.join(_STOPS_WITHIN_S)
        while self._thread.is_alive():  # it may have yet to say who it is
            self._kill()
            self._thread.join(_STOPS_WITHIN_S)

    def _check(self) -> None:
        if self._stop[0]:
            raise SaveStoppedError("the process saves otherwise now")

    def _kill(self) -> None:
        with self._using_pidfd:
            if self._pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _follow(self, between: int) -> None:
        timer = threading.Timer(self._within_s, self._kill)
        timer.name, timer.daemon = f"{_THREAD}-timer", True
        with contextlib.suppress(ChildProcessError):  # a cell's `os.wait()` was told instead
            os.waitpid(between, 0)
        how = b""
        with self._hears:
            _, sent, _, _ = socket.recv_fds(self._hears, 1, 1)
            if sent:  # nothing of one that was gone before
                [self._pidfd] = sent
                timer.start()
                # Nothing comes when the copy is gone, however it ended; what has told how it ended does nothing more.
                how = self._hears.recv(1)
        timer.cancel()
        with self._using_pidfd:
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None
        self._over(next((name for name, code in _CODES.items() if how == bytes([code])), FAILED))


def _shared_byte() -> mmap.mmap:
    """Shared with the copy; by its name this package's own (`shared_memory.py`)."""
    descriptor = os.memfd_create("nls-aside", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, 1)
        return mmap.mmap(descriptor, 1)
    finally:
        os.close(descriptor)


def _begin(
    work: Callable[[Callable[[], None]], None], check: Callable[[], None], parent: int, tells: socket.socket
) -> None:
    """In between: the copy is nobody's child whom a cell of the process's could wait for. Never returns."""
    between = os.getpid()
    try:
        if os.fork() == 0:
            _work(work, check, parent, between, tells)
    finally:
        os._exit(0)


def _work(
    work: Callable[[Callable[[], None]], None],
    check: Callable[[], None],
    parent: int,
    between: int,
    tells: socket.socket,
) -> None:
    """All that the copy does; it never returns."""
    how = FAILED
    try:
        socket.send_fds(tells, [_HERE], [os.pidfd_open(os.getpid())])
        _leave_all_alone(between)
        lives = _liveness(parent)

        def go_on() -> None:
            check()
            lives()

        work(go_on)
        how = DONE
    except SaveStoppedError:
        how = STOPPED
    except NotAsideError:
        how = REFUSED
    finally:
        tells.send(bytes([_CODES[how]]))
        os._exit(0)


def _liveness(process: int) -> Callable[[], None]:
    """What raises SaveStoppedError once the process of a pidfd is gone. A guardian of it ends the copy, too."""
    gone = select.poll()
    gone.register(process, select.POLLIN)

    def check() -> None:
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
