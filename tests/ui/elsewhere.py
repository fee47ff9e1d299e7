"""Lets an object that brings an event loop of its own live beside Playwright, which brings one too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from notebooks import Book, RunningCell

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class Elsewhere:
    """Every method of `target` runs in one thread, one after another; so do those of the notebooks that it opens."""

    def __init__(self, target: Any, pool: ThreadPoolExecutor) -> None:
        self._target = target
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            result = self._pool.submit(value, *arguments, **named).result()
            return Elsewhere(result, self._pool) if isinstance(result, Book | RunningCell) else result

        return call
