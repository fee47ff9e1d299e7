"""Bounds on what other people's code may take while objects are saved and made again."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from nls_jupyter.saved_state import arena, blobs, extents, parallel, window
from nls_scheduler.processes import debuggers
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# Code that makes no progress is looked at so often, and interrupted again when it swallows an interruption.
_LOOK_S = 0.5
_NEVER = float("-inf")
_CALLBACKS = frozenset({weakref.__file__, sys.modules[weakref.WeakSet.__module__].__file__})
#: The file name of the code that imports.
IMPORTING = ModuleSpec.__init__.__code__.co_filename
# Cut off between two of its steps, what is written would not be what is known of it.
_WRITERS = frozenset({arena.__file__, blobs.__file__, extents.__file__, parallel.__file__, window.__file__})
_OWN_CODE = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH118, PTH120 - compared with file names of code


class SaveEndsError(BaseException):
    """A save ends here and now. Whatever else is raised while other people's code runs is that code's own failure."""


class OverBudgetError(SaveEndsError):
    """The save has cost what it may; no `except Exception` of somebody's reducer stops this."""


class SaveStoppedError(SaveEndsError):
    """Somebody wants the process for something else; no `except Exception` of somebody's reducer stops this."""


class StuckError(BaseException):
    """An object's own code made no progress for too long."""


class Watchdog:
    """Interrupts the main thread with SIGALRM when `progress` was not called for `patience_s`, or `look` says so.

    A thread of its own could not: only a signal ends Python code that waits or runs for ever. In other threads it
    does nothing. Code in C that does not return is beyond it; the kernel gives up such a save. One that has returned
    was progress however long it took, such as CUDA's initialization, and so is importing: a cold disk, a first
    compilation.
    """

    def __init__(self, patience_s: float | None, look: Callable[[], None] | None = None) -> None:
        """`look` is called while there is no progress; what it raises interrupts."""
        self._patience_s = patience_s
        self._look = look or _nothing
        self._watching = False
        self._armed_at = self._looked_at = _NEVER

    def progress(self) -> None:
        """Something was done; wait anew."""
        if not self._watching or self._patience_s is None:
            return
        now = monotonic_s()
        if now - self._armed_at > self._patience_s / 20:  # this is called often, and the system's timer costs
            self._armed_at = self._looked_at = now
            signal.setitimer(signal.ITIMER_REAL, min(self._patience_s, _LOOK_S), _LOOK_S)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the block, with the user's own alarm put aside, and what traces. Raises StuckError in it."""
        if self._patience_s is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        with debuggers.nobody_traces(), self._with_an_alarm():
            yield

    @contextmanager
    def _with_an_alarm(self) -> Iterator[None]:
        began = monotonic_s()
        theirs = signal.setitimer(signal.ITIMER_REAL, 0)
        before = signal.signal(signal.SIGALRM, self._bark)
        self._watching, self._armed_at = True, _NEVER
        self.progress()
        try:
            yield
        finally:
            self._watching = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if theirs[0]:
                left_s = max(theirs[0] - (monotonic_s() - began), 1e-3)
                signal.setitimer(signal.ITIMER_REAL, left_s, theirs[1])

    @contextmanager
    def patient(self, patience_s: float) -> Iterator[None]:
        """In the block, wait that long instead."""
        usual = self._patience_s
        self._patience_s = None if usual is None else patience_s
        try:
            yield
        finally:
            self._patience_s, self._armed_at = usual, _NEVER
            self.progress()

    def _bark(self, _: int, frame: FrameType | None) -> None:
        now = monotonic_s()
        # The alarm comes late by what C code did not let through.
        self._armed_at += max(0.0, now - self._looked_at - _LOOK_S)
        self._looked_at = now
        if frame is not None and (frame.f_code.co_filename in _CALLBACKS or _writes(frame)):
            return  # an error would be lost in its callbacks, or would do harm; the alarm comes again
        if self._watching and self._patience_s is not None:
            self._look()
            if _is_importing(frame):
                self._armed_at = now
            if now - self._armed_at < self._patience_s:
                return
            self._armed_at = _NEVER  # the next progress is one, however soon it comes
            raise StuckError(f"its own code did nothing for {self._patience_s:g} s")


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == IMPORTING:
            return True
        frame = frame.f_back
    return False


def _writes(frame: FrameType | None) -> bool:
    """Whether it is ourselves who write, for whomever; other people's code is interrupted."""
    while frame is not None and not frame.f_code.co_filename.startswith(_OWN_CODE):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename in _WRITERS


def deadline(budget_s: float | None) -> Callable[[], None]:
    """What raises OverBudgetError once `budget_s` has passed since now; `None` for no bound."""
    if budget_s is None:
        return _nothing
    until = monotonic_s() + budget_s

    def check() -> None:
        if monotonic_s() > until:
            raise OverBudgetError(f"the save would take longer than {budget_s:g} s")

    return check


def _nothing() -> None:
    """No bound."""
