"""How the GPU process raises `GpuReclaimed` in the running cell instead of a plain Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import signal
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import held_signals
from nls_jupyter.between.errors import GpuReclaimed
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
        told: whether the running cell was interrupted so.
    """

    def __init__(self) -> None:
        self.running = False
        self.told = False
        self._asked: GpuReclaimed | None = None
        self._came = False
        self._main_thread = threading.get_ident()
        signal.signal(held_signals.RECLAIM, self._on_signal)

    @contextlib.contextmanager
    def cell(self) -> Iterator[None]:
        """While a cell runs."""
        self.told, self.running = False, True
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
        self.told = True
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

    def wrap(self, run_cell_async: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
        """IPython's `run_cell_async`, whose cells get `GpuReclaimed` where ipykernel would cancel their task."""

        @functools.wraps(run_cell_async)
        def run(*args: Any, **options: Any) -> Coroutine[Any, Any, Any]:
            return _Reclaimable(run_cell_async(*args, **options), self.take)

        # ipykernel looks at it for each cell, and would have it made anew.
        run.__signature__ = inspect.signature(run_cell_async)  # type: ignore[attr-defined]
        return run


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
