"""Bounded waits on conditions, for tests: never a sleep of a guessed length."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")
PAUSE_S = 0.01
# Nobody waits so long where all is well; a machine may be busy with far more than its cores can do.
PATIENCE_S = 45.0


def wait_until(condition: Callable[[], T], timeout_s: float = PATIENCE_S) -> T:
    """What `condition` returns once it is true; fails after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (outcome := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} was not true within {timeout_s} s: {outcome!r}")
        time.sleep(PAUSE_S)
    return outcome


def has_ended(pid: int) -> bool:
    """Whether there is no such process any more, or only what its parent has not asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in b"ZX"
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or after
        return True


async def eventually(condition: Callable[[], Awaitable[T]], timeout_s: float = PATIENCE_S) -> T:
    """`wait_until` in a loop."""
    deadline = time.monotonic() + timeout_s
    while not (outcome := await condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{condition} was not true within {timeout_s} s: {outcome!r}")
        await asyncio.sleep(PAUSE_S)
    return outcome
