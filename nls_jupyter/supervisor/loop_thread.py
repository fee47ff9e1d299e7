"""One thread with an event loop that lives as long as the kernel: the only place that talks to GPU processes."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from nls_scheduler.processes import debuggers
from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future

_Value = TypeVar("_Value")


class _Loop(asyncio.SelectorEventLoop):
    """Its timers fire also where a cell has replaced `time.monotonic`."""

    def time(self) -> float:
        return monotonic_s()


class LoopThread:
    """An asyncio loop in a daemon thread.

    GPU processes are started from this thread, and their death signal fires when it ends: it ends with the kernel.
    """

    def __init__(self, name: str) -> None:
        self.loop = _Loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        debuggers.not_stopped(self._thread).start()

    @property
    def alive(self) -> bool:
        """Whether it still does what it is given; a forked child has no such thread."""
        return self._thread.is_alive()

    def submit(self, work: Coroutine[Any, Any, _Value]) -> Future[_Value]:
        """Run `work` in the thread; the caller may wait for the future, or cancel it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, work: Coroutine[Any, Any, _Value], timeout_s: float | None = None) -> _Value:
        """Run `work` in the thread and wait for its result. KeyboardInterrupt cancels it."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def soon(self, work: Callable[[], object]) -> None:
        """Call `work` in the thread, without waiting."""
        self.loop.call_soon_threadsafe(work)

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the loop and its tasks. Idempotent."""
        if self._thread.is_alive() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self._cancel_all()
        finally:
            self.loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
