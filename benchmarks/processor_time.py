"""Processor time of a Jupyter Server that a benchmark has started."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percent_of_a_core(pid: int, seconds: float, meanwhile: Callable[[], object]) -> float:
    """What a process takes while this one does something again and again."""
    before, began = cpu_s(pid), time.monotonic()
    while time.monotonic() < began + seconds:
        meanwhile()
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def server_pid(directory: Path) -> int:
    """Of the Jupyter Server below `directory`, by the file that it writes."""
    (written,) = (directory / "runtime").glob("jpserver-*.json")
    return int(written.stem.partition("-")[2])
