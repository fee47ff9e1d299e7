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

from nls_jupyter.between.seams import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# Asked many times for each cell, which is not to pay for making numbers members of enumerations.
_signal = SIGNALS.of(signal, signal)
#: Of our own, for `gpu_process.reclaim`: so that what a cell sees of SIGINT, and its traceback of a Ctrl-C, is as in
#: any kernel.
RECLAIM = signal.SIGRTMIN + 7
# Those that people write handlers for: to ask for all of them would cost a tenth of a small save. Ctrl-C first: with it
# held, nothing raises while the others follow, and it is the last that is let go.
_SIGNALS = (
    *map(int, (signal.SIGINT, RECLAIM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2)),
    *map(int, (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)),
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
            handler = _signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Held):
                later = _Held(number, handler)
                mine.append(later)
                _signal.signal(number, later)
        yield
    finally:
        for later in reversed(mine):
            now: object = _signal.getsignal(later.number)
            if now is later:
                _signal.signal(later.number, later.handler)
        _handle([later for later in mine if later.came])


class CtrlC:
    """Ctrl-C reaches a cell, and nothing of what is done for it before and after.

    What it raises elsewhere would cost the cell its reply, without which the notebook waits for ever.
    """

    def __init__(self) -> None:
        self._later: _Held | None = None

    @property
    def waits(self) -> bool:
        """Whether one has come that the cell has yet to get."""
        return self._later is not None and self._later.came

    @contextmanager
    def held(self) -> Iterator[None]:
        """Around the whole request: one that comes before `let_through` waits for it, one after is too late."""
        handler = _signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            yield
            return
        self._later = later = _Held(signal.SIGINT, handler)
        _signal.signal(signal.SIGINT, later)
        try:
            yield
        finally:
            self._later = None
            _signal.signal(signal.SIGINT, later.handler)

    @contextmanager
    def let_through(self) -> Iterator[None]:
        """Around the cell itself. Raises what the handler raises for one that came before."""
        later = self._later
        if later is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        try:
            _signal.signal(signal.SIGINT, later.handler)
            if later.came:
                later.came = False
                later.handler(signal.SIGINT, sys._getframe())
            yield
        finally:
            handler = _signal.getsignal(signal.SIGINT)
            _signal.signal(signal.SIGINT, later)
            later.handler = handler if callable(handler) else signal.default_int_handler


def handler_of(number: int) -> Any:
    """As `signal.getsignal`, also while the signal is held."""
    handler = signal.getsignal(number)
    return handler.handler if isinstance(handler, _Held) else handler


def waits(number: int) -> bool:
    """Whether this signal has come and is held."""
    handler = _signal.getsignal(number)
    return isinstance(handler, _Held) and handler.came


def _handle(came: list[_Held]) -> None:
    """Not by raising the signals again: those who follow them by a wake-up descriptor know of them already."""
    while came:
        later = came.pop()
        try:
            later.handler(later.number, sys._getframe())
        finally:
            _handle(came)
