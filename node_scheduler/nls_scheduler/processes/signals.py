"""Signals that somebody else has the first word on."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.processes.proc import status_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def heeded(numbers: Iterable[signal.Signals]) -> frozenset[signal.Signals]:
    """Those of `numbers` that whoever began this process has not told it to ignore, as nohup does and `&` in a script.

    Whoever waits for a blocked signal gets it even so; ask before, and leave the rest to those who ignore it.
    """
    return frozenset(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)


@contextlib.contextmanager
def ctrl_c_waits() -> Iterator[None]:
    """A process that this thread starts meanwhile begins with SIGINT blocked.

    VS Code interrupts a kernel together with all its descendants, and so one that has just begun.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def pends(pid: int, number: signal.Signals) -> bool:
    """Whether a signal that the process blocks has come. Raises ProcessLookupError without the process."""
    try:
        return bool(int(status_of(Path(f"/proc/{pid}"))["ShdPnd"][0], 16) >> (number - 1) & 1)
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
