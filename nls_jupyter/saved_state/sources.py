"""The sources of cells, by the file names that their code has: for tracebacks, `inspect.getsource` and `%psource`.

A function of a cell keeps the file name that the process gave its cell in which it was defined.
"""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import CELL_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping


class Sources:
    """Of one shell's cells; `compiler` is what compiles these, and tells their numbers."""

    def __init__(self, compiler: Any) -> None:
        self._numbers: dict[str, int] = CELL_NUMBERS.of(compiler, {})
        self._texts: dict[str, str] = {}

    def capture(self) -> dict[str, tuple[int, str]]:
        """Number and text of each cell, by its file name."""
        for name in self._numbers.keys() - self._texts.keys():
            if (entry := linecache.cache.get(name)) is not None and len(entry) > 1:
                self._texts[name] = "".join(entry[2])
        return {name: (self._numbers[name], text) for name, text in self._texts.items()}

    def apply(self, cells: Mapping[str, tuple[int, str]]) -> None:
        """The inverse."""
        for name, (number, text) in cells.items():
            self._numbers.setdefault(name, number)
            # Without a time of change: no check of a file that is not there drops it.
            linecache.cache.setdefault(name, (len(text), None, text.splitlines(keepends=True), name))
