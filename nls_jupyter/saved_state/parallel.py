"""One piece of work on many parts, on the processors that this process may use; for calls that release the GIL."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Part = TypeVar("Part")

#: Another number of threads.
SWITCH: Final = "NLS_SAVE_THREADS"
#: Above these numbers it was no faster: of the memory of hosts, and on an H100 from its memory and back to it.
HOST_THREADS, FROM_DEVICE_THREADS, TO_DEVICE_THREADS = 4, 8, 12


def wanted_threads() -> int | None:
    """How many the user wants; `None`: that is not said. Raises ValueError with one sentence."""
    text = os.environ.get(SWITCH)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"{SWITCH} is {text!r}, and not a whole number from 1 on.")
    return int(text)


def for_each(
    parts: Sequence[Part], work: Callable[[Part], None], progress: Callable[[], None], most: int = HOST_THREADS
) -> None:
    """Do `work` on each part, several at a time; over when all are. Raises what one that failed raised.

    Args:
        parts: in any order.
        work: called in this thread and in others: who only waited for them would take time from them at each part.
        progress: called in this thread after each part that it did; what it raises keeps the parts that have not begun
            from it.
        most: threads, where the user has not set it.
    """
    threads = min(wanted_threads() or most, len(os.sched_getaffinity(0)), len(parts))
    left = deque(parts)

    def share(progress: Callable[[], None]) -> None:
        while True:
            try:
                part = left.popleft()
            except IndexError:
                return
            try:
                work(part)
                progress()
            except BaseException:
                left.clear()
                raise

    if threads < 2:
        share(progress)
        return
    with ThreadPoolExecutor(threads - 1, "nls-saved-state") as pool:
        others = [pool.submit(share, _nothing) for _ in range(threads - 1)]
        share(progress)
        for other in others:
            other.result()


def _nothing() -> None:
    """Only one thread tells of progress."""
