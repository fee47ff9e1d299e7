"""Memory for the next save, allocated while nobody waits: what a stopped save did not come to, and a suspend will need.

New memory costs several times what copying into it does.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from nls_scheduler.processes import debuggers
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.saved_state.window import Window

# What somebody who needs the arena now waits for at most: some milliseconds.
_STEP_BYTES = 1 << 24


class Ahead:
    """Allocates a part of a memory file in a thread of its own, in page tables too, until `stop` or nothing is left.

    Args:
        fd: the file.
        window: reaches to the end of the part already.
        part: a huge page may begin where it begins, and where it ends.
        left_bytes: what memory has left for this. Raises OSError.
    """

    def __init__(self, fd: int, window: Window, part: range, left_bytes: Callable[[], int]) -> None:
        self._fd = fd
        self._window = window
        self._end = part.stop
        self._done = part.start
        self._left_bytes = left_bytes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nls-saved-state-ahead", daemon=True)
        debuggers.not_stopped(self._thread).start()

    def stop(self) -> int:
        """Where what was allocated ends. Waits for the step that is under way."""
        self._stopped.set()
        self._thread.join()
        return self._done

    def _run(self) -> None:
        while self._done < self._end and not self._stopped.is_set():
            size_bytes = min(_STEP_BYTES, self._end - self._done)
            if not self._has_room(size_bytes):
                return
            if not self._window.allocate_huge(self._done, size_bytes):
                began = monotonic_s()
                try:
                    os.posix_fallocate(self._fd, self._done, size_bytes)
                except OSError:
                    return  # the save that needs it meets the same, and names what has no room
                self._window.populate(self._done, size_bytes)
                self._window.small_pages_took(monotonic_s() - began, size_bytes)
            self._done += size_bytes

    def _has_room(self, size_bytes: int) -> bool:
        """Somebody may have taken it meanwhile."""
        try:
            return self._left_bytes() >= size_bytes
        except OSError:
            return False
