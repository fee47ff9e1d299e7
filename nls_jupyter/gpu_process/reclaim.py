"""How the GPU process raises `GpuReclaimed` in the running cell instead of a plain Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import held_signals
from nls_jupyter.between.errors import GpuReclaimed, show_as_sentence
from nls_jupyter.between.seams import CANCEL_ON_SIGINT

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import FrameType


class Reclaims:
    """The requests to give the GPU back, on their way into the cell that runs. Made in the main thread.

    `ask` belongs to the control channel's thread, everything else to the main thread. There is no lock, which a signal
    handler could never wait for: each step is one assignment.

    Attributes:
        running: whether a cell runs in the main thread.
        raised: what the running cell was interrupted with, the last of it.
    """

    def __init__(self) -> None:
        self.running = False
        self.raised: GpuReclaimed | None = None
        self._asked: GpuReclaimed | None = None
        self._came = False
        self._main_thread = threading.get_ident()
        signal.signal(held_signals.RECLAIM, self._on_signal)

    @contextlib.contextmanager
    def cell(self) -> Iterator[None]:
        """While a cell runs."""
        self.raised, self.running = None, True
        try:
            yield
        finally:
            self.running = False

    def ask(self, reason: str, grace_s: float) -> bool:
        """Interrupt the running cell with `GpuReclaimed`. False: none runs, or it has taken the signal for itself."""
        if not self.running or held_signals.handler_of(held_signals.RECLAIM) != self._on_signal:
            return False
        self._asked, self._came = GpuReclaimed(reason, grace_s), False
        signal.pthread_kill(self._main_thread, held_signals.RECLAIM)
        return True

    def ask_again(self) -> bool:
        """Send the signal once more, unless the cell has it or is over; then False.

        One that comes between Python's last look for signals and the system call of a `time.sleep` does not end it.
        """
        if self._asked is None or self._came or not self.running:
            return False
        signal.pthread_kill(self._main_thread, held_signals.RECLAIM)
        return True

    def forget(self) -> None:
        """What was asked for before was meant for a cell that is over."""
        self._asked = None

    def take(self) -> GpuReclaimed | None:
        """What is to be raised in the running cell, once; `None` for an ordinary Ctrl-C."""
        asked, self._asked = self._asked, None
        if asked is None or not self.running:
            return None
        self.raised = asked
        return asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Raise it, unless the cell awaits: then ipykernel's own handler cancels its task, see `_Reclaimable`."""
        del number
        self._came = True
        if self._asked is None or not self.running:
            return
        interrupt = signal.getsignal(signal.SIGINT)
        if callable(interrupt) and CANCEL_ON_SIGINT.name in getattr(interrupt, "__qualname__", ""):
            interrupt(signal.SIGINT, frame)
        elif (asked := self.take()) is not None:
            raise asked

    def reach(self, shell: Any) -> None:
        """Have IPython's `shell` end each cell with `GpuReclaimed` that was interrupted so.

        Also where ipykernel would cancel the cell's task, and where code of theirs takes the interrupt for a Ctrl-C:
        `!command` is cut off then as if it were over, `%%bash` and `input()` end with another error.
        """
        run_cell_async, run_code, show = shell.run_cell_async, shell.run_code, shell.showtraceback

        async def run_and_tell(*args: Any, **options: Any) -> Any:
            result = await run_cell_async(*args, **options)
            raised = self.raised
            if raised is not None and result.error_in_exec is not raised and _caught_by(raised) != "__main__":
                sys.stderr.write(f"{type(raised).__name__}: {raised}\n")
            return result

        @functools.wraps(run_cell_async)
        def run(*args: Any, **options: Any) -> Coroutine[Any, Any, Any]:
            return _Reclaimable(run_and_tell(*args, **options), self.take)

        @functools.wraps(run_code)
        async def run_statement(code: Any, result: Any = None, **options: Any) -> bool:
            failed: bool = await run_code(code, result, **options)
            raised = self.raised
            if result is None or raised is None or _caught_by(raised) not in _TAKE_IT_FOR_CTRL_C:
                return failed
            if not failed:
                _show(shell, raised)
            if not failed or _is_behind(raised, result.error_in_exec):
                result.error_in_exec = raised
            return True

        @functools.wraps(show)
        def show_what_is_behind(exc_tuple: Any = None, *args: Any, **options: Any) -> None:
            if exc_tuple is None and self.raised is not None and _is_behind(self.raised, sys.exception()):
                _show(shell, self.raised)
            else:
                show(exc_tuple, *args, **options)

        # ipykernel looks at it for each cell, and would have it made anew.
        run.__signature__ = inspect.signature(run_cell_async)  # type: ignore[attr-defined]
        shell.run_cell_async, shell.run_code, shell.showtraceback = run, run_statement, show_what_is_behind


_TAKE_IT_FOR_CTRL_C: Final = ("IPython", "ipykernel")


def _show(shell: Any, raised: GpuReclaimed) -> None:
    show_as_sentence(raised)
    shell.showtraceback((type(raised), raised, None))


def _is_behind(raised: GpuReclaimed, error: BaseException | None) -> bool:
    """Whether `error` is what IPython or ipykernel make of `raised`."""
    if error is raised or _caught_by(raised) not in _TAKE_IT_FOR_CTRL_C:
        return False
    while error is not None and error is not raised:
        error = error.__context__
    return error is raised


def _caught_by(raised: GpuReclaimed) -> str:
    """Whose code caught it: the package's name, `__main__` for the cell's own."""
    reached = raised.__traceback__
    name = "__main__" if reached is None else reached.tb_frame.f_globals.get("__name__")
    return str(name).partition(".")[0]


class _Reclaimable(Coroutine[Any, Any, Any]):
    """A cell that awaits: an exception can't be thrown into its task, but its coroutine takes any."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], take: Callable[[], GpuReclaimed | None]) -> None:
        self._coroutine = coroutine
        self._take = take

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, typ: Any, val: Any = None, tb: Any = None) -> Any:
        del tb
        error = val if val is not None else typ
        cancelled = error is asyncio.CancelledError or isinstance(error, asyncio.CancelledError)
        if cancelled and (asked := self._take()) is not None:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            return self._coroutine.throw(asked)
        return self._coroutine.throw(error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()
