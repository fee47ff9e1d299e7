"""What cells have written to files, and Python still holds: it is to reach them before the process ends."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import stat

_BUFFERED = (io.BufferedIOBase, io.TextIOBase)


def flush() -> None:
    """Whoever has opened them. Pipes and terminals are left alone, as nobody may read them."""
    for each in gc.get_objects():
        if issubclass(type(each), _BUFFERED):
            with contextlib.suppress(Exception):  # it is closed, no file at all, or its disk is full
                if each.writable() and stat.S_ISREG(os.fstat(each.fileno()).st_mode):
                    each.flush()
