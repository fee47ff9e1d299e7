"""The end of a child that a cell forked, once the cell's code is over in there too."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import NoReturn


def leave(error: BaseException | None) -> NoReturn:
    """End this forked child as a script of the cell's code would end: after its threads, with the code of its error.

    In a plain kernel it stays, a second kernel on its parent's sockets, and who waits for it does so for ever. Of the
    parent's nothing is cleaned up here.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(_exit_code(error))


def _exit_code(error: BaseException | None) -> int:
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    return int(error is not None)
