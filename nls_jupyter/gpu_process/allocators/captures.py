"""CUDA graphs that are being captured: memory that is given back to the driver meanwhile ends the capture.

CUDA refuses such calls of every thread (`cudaStreamCaptureModeGlobal`), and a thread can ask about its own stream only.
So whoever captures is followed from its begin to its end.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Captures:
    """What is being captured in this process.

    Args:
        lock: held by whoever gives memory back; no capture begins meanwhile.
        over: called after the end of the last one, in its thread, if somebody was told to wait.
    """

    def __init__(self, lock: AbstractContextManager[object], over: Callable[[], object]) -> None:
        self._lock = lock
        self._over = over
        self._under_way: set[int] = set()
        self._waits = False

    def follow(self, kind: Any, begin: str, end: str) -> None:
        """Follow the captures that methods of a class begin and end, `None` or another version's as far as it can."""
        if all(callable(getattr(kind, name, None)) for name in (begin, end)):
            setattr(kind, begin, self._beginning(getattr(kind, begin)))
            setattr(kind, end, self._ending(getattr(kind, end)))

    def under_way(self) -> bool:
        """Whether memory is better given back later: then that is asked for, by `over`. Called with the lock."""
        self._waits = bool(self._under_way)
        return self._waits

    def _beginning(self, begin: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(begin)
        def begins(capturing: Any, *args: Any, **options: Any) -> Any:
            with self._lock:
                self._under_way.add(id(capturing))
            try:
                return begin(capturing, *args, **options)
            except BaseException:
                self._ended(capturing)
                raise

        return begins

    def _ending(self, end: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(end)
        def ends(capturing: Any, *args: Any, **options: Any) -> Any:
            try:
                return end(capturing, *args, **options)
            finally:
                self._ended(capturing)

        return ends

    def _ended(self, capturing: Any) -> None:
        with self._lock:
            self._under_way.discard(id(capturing))
            if self._waits and not self._under_way:
                self._waits = False
                self._over()
