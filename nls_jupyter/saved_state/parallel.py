"""One piece of work on many parts, on the processors that this process may use; for calls that release the GIL."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Part = TypeVar("Part")

#: Another number of threads.
SWITCH: Final = "NLS_SAVE_THREADS"
#: Above these numbers the memory of hosts was no faster; to and from a GPU's (an H100) four threads made 0.6 of what
#: eight do.
HOST_THREADS, DEVICE_THREADS = 4, 8


def for_each(
    parts: Sequence[Part], work: Callable[[Part], None], progress: Callable[[], None], most: int = HOST_THREADS
) -> None:
    """Do `work` on each part, several at a time; over when all are. Raises what the first that failed raised.

    Args:
        parts: in any order.
        work: called in threads of its own.
        progress: called in this thread after each part; what it raises keeps the parts that have not begun from it.
        most: threads, where the user has not set it.
    """
    threads = min(int(os.environ.get(SWITCH, most)), len(os.sched_getaffinity(0)), len(parts))
    if threads < 2:
        for part in parts:
            work(part)
            progress()
        return
    with ThreadPoolExecutor(threads, "nls-saved-state") as pool:
        try:
            for _ in pool.map(work, parts):
                progress()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
