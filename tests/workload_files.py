"""A workload file as tests read it: checked, and as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.reading import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nls_scheduler.what_if.workload_file.rows import Extent, Row


def rows_of(path: Path, gpu_bytes: int | None = None) -> Iterator[Row]:
    return checked(numbered(path), Checker(gpu_bytes))


def extent_of(path: Path, gpu_bytes: int | None = None) -> Extent:
    checker = Checker(gpu_bytes)
    for _ in checked(numbered(path), checker):
        pass
    return checker.extent()
