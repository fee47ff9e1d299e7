"""A Ctrl-C that comes when a cell has ended is too late, and nobody's.

ipykernel flushes outputs and sends the reply after the cell with SIGINT still raising KeyboardInterrupt (versions 6 and
7, `Kernel.execute_request`): one that comes in these milliseconds costs the cell its reply, and the frontend waits for
ever. Between requests it ignores SIGINT (`IPKernelApp.init_signal`); here that begins with the end of the cell.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


class LateInterrupts:
    """Callbacks of one shell's events. Cells that run in cells end nothing."""

    def __init__(self) -> None:
        self._running = 0

    def follow(self, shell: Any) -> None:
        """In a kernel; elsewhere nobody makes Ctrl-C work again for the next cell."""
        if getattr(shell, "kernel", None) is not None:
            shell.events.register("pre_run_cell", self.begin)
            shell.events.register("post_run_cell", self.end)

    def begin(self, *_: Any) -> None:
        """A cell begins."""
        self._running += 1

    def end(self, *_: Any) -> None:
        """It has ended. The kernel sets its handler again before the next request."""
        self._running = max(0, self._running - 1)
        if not self._running and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
