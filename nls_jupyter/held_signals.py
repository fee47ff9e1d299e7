"""Signals wait while state is written or read, and are handled right after it.

A handler of Python's runs between any two steps of the main thread, and what it raises there, as Ctrl-C does, would
leave the arena half changed. To block signals is no help: the system hands them to another thread, and the handler runs
in the main one all the same.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

#: Of our own, for `reclaim`: so that what a cell sees of SIGINT, and its traceback of a Ctrl-C, is as in any kernel.
RECLAIM = signal.SIGRTMIN + 7
# Those that people write handlers for: to ask for all of them would cost a tenth of a small save. Ctrl-C first: with it
# held, nothing raises while the others follow, and it is the last that is let go.
_SIGNALS = (
    *(signal.SIGINT, RECLAIM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
)


class _Held:
    """In the place of a handler, which gets the signal later."""

    def __init__(self, number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.number = number
        self.handler = handler
        self.came = False

    def __call__(self, *_: object) -> None:
        self.came = True


@contextmanager
def held() -> Iterator[None]:
    """Have signals wait that Python handles, in the main thread; elsewhere none is handled anyway.

    Those that come more than once are handled once, as the system does with signals that wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine: list[_Held] = []
    try:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Held):
                later = _Held(number, handler)
                mine.append(later)
                signal.signal(number, later)
        yield
    finally:
        for later in reversed(mine):
            now: object = signal.getsignal(later.number)
            if now is later:
                signal.signal(later.number, later.handler)
        _handle([later for later in mine if later.came])


def handler_of(number: int) -> Any:
    """As `signal.getsignal`, also while the signal is held."""
    handler = signal.getsignal(number)
    return handler.handler if isinstance(handler, _Held) else handler


def waits(number: int) -> bool:
    """Whether this signal has come and is held."""
    handler = signal.getsignal(number)
    return isinstance(handler, _Held) and handler.came


def _handle(came: list[_Held]) -> None:
    """Not by raising the signals again: those who follow them by a wake-up descriptor know of them already."""
    while came:
        later = came.pop()
        try:
            later.handler(later.number, sys._getframe())
        finally:
            _handle(came)
