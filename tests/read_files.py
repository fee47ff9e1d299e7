"""Of the files with tests only those are read that have some of the kind asked for.

To import them all takes each process twenty seconds: more than the tests of the oldest versions that it runs itself.
A plugin of `conftest`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HOW_MARKED: Final = {
    "long": re.compile(r"mark\.long|\bLONG\b|thinned\(|_contract import"),
    "kernel": re.compile(r"mark\.kernel"),
}
"""How a file says that tests of it have that mark."""


class ReadFiles:
    """Leaves out files by the words in them; a run that reads them all checks that none of those is left out."""

    def __init__(self, expression: str) -> None:
        kind, *more = expression.split()
        self._kind = kind if kind in _HOW_MARKED and more[:1] != ["or"] else None

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Another one than `True` leaves the choice to others."""
        if self._kind is None or not collection_path.match("test_*.py"):
            return None
        return None if _says(collection_path, self._kind) else True

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Raises `UsageError` for a mark that is put on a test in a way that is not known here."""
        for item in items:
            for kind in _HOW_MARKED:
                if item.get_closest_marker(kind) is not None and not _says(item.path, kind):
                    raise pytest.UsageError(f"{item.nodeid} would not be found by -m {kind}: see {__file__}")


@cache
def _says(path: Path, kind: str) -> bool:
    return _HOW_MARKED[kind].search(path.read_text(encoding="utf-8")) is not None
