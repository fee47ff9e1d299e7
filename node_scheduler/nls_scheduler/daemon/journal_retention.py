"""How much of the past a journal keeps: steps and history have a share each, and damaged copies one of their own."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from nls_scheduler.units.clock import boottime_s

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

_HISTORY_SHARE: Final = 0.25
_PROBES: Final = 200
_ROWS_AT_ONCE: Final = 20_000
_PAGES_AT_ONCE: Final = 500
_PAGES_KEPT_FREE: Final = 256
_COPIES_KEPT: Final = 3


class _Table(NamedTuple):
    """Questions about a table that take no longer where it is larger."""

    ends: str
    average_length: str


_EVENTS: Final = _Table(
    "SELECT (SELECT min(sequence) FROM events), (SELECT max(sequence) FROM events)",
    "SELECT avg(length(event) + length(commands)) FROM events WHERE sequence IN (SELECT value FROM json_each(?))",
)
_HISTORY: Final = _Table(
    "SELECT (SELECT min(sequence) FROM history), (SELECT max(sequence) FROM history)",
    "SELECT avg(length(entry)) FROM history WHERE sequence IN (SELECT value FROM json_each(?))",
)


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept for `nls history` and `nls replay`; the state itself is always kept.

    Attributes:
        age_s: events and entries older than this go.
        size_bytes: what they may take together, a quarter of it the entries; of what has more than that the oldest go.
    """

    age_s: float = 14 * 86400.0
    size_bytes: int = 256 * 2**20


class AgeClock:
    """The time by which the past is old: that of the journal's last step, and what CLOCK_BOOTTIME has counted since.

    A wall clock that is set, or was wrong when the machine came up, makes nothing old; nor does time without a daemon.
    """

    def __init__(self, last: float | None) -> None:
        """`last`: the wall time of the last step; `None` if there is none."""
        now = time.time()
        self._began = (now if last is None else min(now, last)) - boottime_s()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._began + boottime_s()


def last_step_in(database: sqlite3.Connection) -> float | None:
    """When the last one was written; `None` for an empty journal."""
    row = database.execute("SELECT wall FROM events ORDER BY sequence DESC LIMIT 1").fetchone()
    return None if row is None else float(row[0])


def trim(database: sqlite3.Connection, retention: Retention, now: float) -> None:
    """Drop what is too old or too much; events only up to a snapshot, from which the rest can be replayed.

    `now` is that of an `AgeClock`. A bounded part of it at a time: the daemon waits for this. Pages that come free go
    back to the disk, but for a few that the next events take.
    """
    oldest = now - retention.age_s
    history = _bytes_of(database, _HISTORY)
    steps = _bytes_of(database, _EVENTS)
    steps += database.execute("SELECT coalesce(sum(length(state)), 0) FROM snapshots").fetchone()[0]
    # What is in use, indexes and half empty pages too, is theirs in proportion.
    in_use = used_bytes(database) / max(1, history + steps)
    history_share = retention.size_bytes * _HISTORY_SHARE
    steps_share = retention.size_bytes - history_share
    _trim_history(database, oldest, history_share / max(1.0, history * in_use))
    _trim_steps(database, oldest, steps_share / max(1.0, steps * in_use))
    free = database.execute("PRAGMA freelist_count").fetchone()[0]
    for _ in range(min(_PAGES_AT_ONCE, free - _PAGES_KEPT_FREE)):
        database.execute("PRAGMA incremental_vacuum(1)")  # for more than one sqlite3 stops after the first as well


def used_bytes(database: sqlite3.Connection) -> int:
    """What the pages that are in use take: a file whose free pages nobody took back is larger."""
    pages, free, size = (
        database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def drop_damaged_copies(journal: Path, size_bytes: int, newest: Path) -> None:
    """Of the copies that were set aside a few stay: the `newest` whatever its size, then the last by their names.

    The time in a name is that of a wall clock, which may have been set back since.
    """
    found = journal.parent.glob(f"{journal.name}.damaged-*")
    copies = sorted(found, key=lambda copy: (copy == newest, copy.name), reverse=True)
    kept_bytes = 0
    for number, copy in enumerate(copies):
        with suppress(OSError):
            kept_bytes += copy.stat().st_size
            if number >= _COPIES_KEPT or (number and kept_bytes > size_bytes):
                copy.unlink()


def _bytes_of(database: sqlite3.Connection, table: _Table) -> int:
    """About what a table's rows hold: its sequence has no gaps, and some rows tell of all."""
    first, count = _first_and_count(database, table)
    probes = list(range(first, first + count, max(1, count // _PROBES)))
    average = database.execute(table.average_length, (json.dumps(probes),)).fetchone()[0]
    return int(count * (average or 0))


def _first_and_count(database: sqlite3.Connection, table: _Table) -> tuple[int, int]:
    first, last = database.execute(table.ends).fetchone()
    return (0, 0) if first is None else (first, last - first + 1)


def _trim_history(database: sqlite3.Connection, oldest: float, fits: float) -> None:
    """`fits`: the part of it that its share has room for, 1 or more if all has."""
    first, count = _first_and_count(database, _HISTORY)
    young = database.execute("SELECT sequence FROM history WHERE wall >= ? ORDER BY sequence LIMIT 1", (oldest,))
    start = (young.fetchone() or (first + count,))[0]
    start = max(start, first + count - int(count * fits))
    database.execute("DELETE FROM history WHERE sequence < ?", (min(start, first + _ROWS_AT_ONCE),))


def _trim_steps(database: sqlite3.Connection, oldest: float, fits: float) -> None:
    first, count = _first_and_count(database, _EVENTS)
    too_much = first + count - 1 - int(count * fits)
    # The first young one, and not the last old one: the wall clock may have been set back for a while.
    young = database.execute("SELECT min(sequence) FROM snapshots WHERE wall > ?", (oldest,)).fetchone()[0]
    start = database.execute(
        "SELECT max(sequence) FROM snapshots WHERE (sequence < ? OR sequence <= ?) AND sequence < ?",
        (first + count if young is None else young, too_much, first + _ROWS_AT_ONCE),
    ).fetchone()[0]
    if start is not None:
        database.execute("DELETE FROM events WHERE sequence <= ?", (start,))
        database.execute("DELETE FROM snapshots WHERE sequence < ?", (start,))
