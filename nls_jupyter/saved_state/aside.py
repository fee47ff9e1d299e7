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
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.watchdog import SaveStoppedError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Libraries whose threads a copy lacks and yet waits for.
_NOT_COPIED = ("jax", "tensorflow", "grpc", "ray")
#: How a copy ended.
DONE, FAILED, STOPPED, REFUSED = "done", "failed", "stopped", "refused"
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
        self._stop = mmap.mmap(-1, 1)  # shared with the copy
        self._over = over
        self._within_s = within_s
        parent = os.getpid()
        with warnings.catch_warnings():
            # That other threads may hold locks for ever in the copy is why `end` has a bound.
            warnings.simplefilter("ignore")
            self._pid = os.fork()
        if self._pid == 0:
            _work(work, self._check, parent)
        self._thread = threading.Thread(target=self._wait, name=_THREAD, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Have it stop, unless it is done, and wait until it is gone."""
        self._stop[0] = 1
        self._thread.join(_STOPS_WITHIN_S)
        if self._thread.is_alive():
            self._kill()
            self._thread.join()

    def _check(self) -> None:
        if self._stop[0]:
            raise SaveStoppedError("the process saves otherwise now")

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def _wait(self) -> None:
        timer = threading.Timer(self._within_s, self._kill)
        timer.name = f"{_THREAD}-timer"
        timer.daemon = True
        timer.start()
        try:
            _, status = os.waitpid(self._pid, 0)
        except ChildProcessError:  # a cell's `os.wait()` was told instead
            status = _CODES[FAILED] << 8
        finally:
            timer.cancel()
        code = os.waitstatus_to_exitcode(status)
        self._over(next((how for how, known in _CODES.items() if known == code), FAILED))


def _work(work: Callable[[Callable[[], None]], None], check: Callable[[], None], parent: int) -> None:
    """All that the copy does; it never returns."""
    how = FAILED
    try:
        _leave_all_alone(parent)
        work(check)
        how = DONE
    except SaveStoppedError:
        how = STOPPED
    except NotAsideError:
        how = REFUSED
    finally:
        os._exit(_CODES[how])


def _leave_all_alone(parent: int) -> None:
    """Whatever of this process's reaches others is not for the copy."""
    gc.disable()  # no finalizer runs twice
    _libc.prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_CODES[FAILED])
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
