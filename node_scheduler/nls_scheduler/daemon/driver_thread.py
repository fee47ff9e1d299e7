"""The one thread that calls the driver, one call after another: no end of the process waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class DriverThread(Executor):
    """Python's own waits at its end for what it has begun, and a call of a driver that hangs never returns."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name="driver", daemon=True).start()

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """As Python's."""
        done: Future[T] = Future()
        self._calls.put(lambda: _do(partial(call, *arguments, **named), done))
        return done

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - Python's
        """End the thread behind what was submitted; nobody waits for that."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _do(call: Callable[[], T], done: Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(call())
    except BaseException as error:  # noqa: BLE001 - who waits for it is told
        done.set_exception(error)
