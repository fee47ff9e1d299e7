"""Work that goes on in the event loop while nobody awaits it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Tasks:
    """Keeps its tasks alive until they are over; `failed` gets the error of each that ends with one."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin `work` in the running loop."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def cancel(self) -> None:
        """End all of them."""
        for task in list(self._tasks):
            task.cancel()

    async def until_over(self) -> None:
        """Until the tasks of now have ended, however they did."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
