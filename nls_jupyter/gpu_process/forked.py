"""A child that a cell forked: how it tells what fails, and its end once the cell's code is over in there too."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import warnings
from typing import Any, NoReturn, TypeGuard

from nls_jupyter.between.seams import SHOW_TRACEBACK


def tell_on_stderr(shell: Any) -> None:
    """Have children show on stderr what fails, as scripts do: an error message would be one of their parent's cell.

    Args:
        shell: IPython's, of the GPU process.
    """
    parent, show = os.getpid(), SHOW_TRACEBACK.of(shell, None)
    if show is None:
        return

    @functools.wraps(show)
    def showtraceback(kind: Any, error: Any, lines: list[str]) -> None:
        if os.getpid() == parent:
            show(kind, error, lines)
        elif not isinstance(error, SystemExit):
            print(shell.InteractiveTB.stb2text(lines), file=sys.stderr)  # noqa: T201 - the user's code failed
        else:
            warnings.filterwarnings("ignore", "To exit: use")  # IPython's next words
            if not _is_code(error.code):
                print(error.code, file=sys.stderr)  # noqa: T201

    SHOW_TRACEBACK.put(shell, showtraceback)


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
    if isinstance(error, SystemExit) and _is_code(error.code):
        return (error.code or 0) & 0xFF
    return int(error is not None)


def _is_code(told: object) -> TypeGuard[int | None]:
    return told is None or isinstance(told, int)
