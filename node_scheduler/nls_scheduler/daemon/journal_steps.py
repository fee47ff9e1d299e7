"""The steps that a journal keeps, for `nls replay`: read in parts, beside a daemon that goes on writing."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from nls_scheduler.core.model.codec import decode
from nls_scheduler.core.model.events import Event
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.daemon.journal_retention import last_step_in
from nls_scheduler.daemon.journal_tables import DAMAGE, LOCK_TIMEOUT_S, JournalError, check_version, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nls_scheduler.core.model.commands import Command

_NO_END: Final = 2**63 - 1
_LAST_YEAR_ENDS: Final = 253_402_300_800
"""Of those that a date can name."""
_Row: TypeAlias = tuple[float, str, str]


def read_steps(
    path: Path,
    since: float | None = None,
    of: str | None = None,
    told: Callable[[float], None] = lambda _part: None,
) -> Iterator[tuple[NodeState | None, Event, tuple[Command, ...] | None, float]]:
    """Each event with its commands and wall time, oldest first, with the snapshot it starts from.

    It begins at the last snapshot before the wall time `since`; the commands of steps before that are `None`. Where
    nothing tells of the workload `of` (a name or an id) between two snapshots, what is between them is left out.
    `told` hears now and then which part has been read: a number from 0 to 1.

    Raises JournalError when `path` is not a journal that this version can read. Never writes.
    """
    with _opened(path) as database:
        parts = _parts(database, since)
        for number, (start, end) in enumerate(parts):
            if number:
                told(number / len(parts))
            # Read at once: a reader that is slow, as a person is, must not keep the daemon from taking up its WAL.
            snapshot = database.execute("SELECT state FROM snapshots WHERE sequence = ?", (start,)).fetchone()
            rows = _rows(database, start, end)
            if snapshot is None:
                continue  # it has gone meanwhile, as the oldest do
            text = unpack(snapshot[0])
            if of is not None and not _tell_of(of, text, rows):
                continue
            state = _read(text, NodeState)
            for wall, event, commands in rows:
                shown = since is None or wall >= since
                if not 0 <= wall < _LAST_YEAR_ENDS:
                    raise ValueError(f"{wall:g} is no time of a step")
                yield state, _read(event, Event), _read(commands, tuple) if shown else None, wall
                state = None


def last_step_at(path: Path) -> float:
    """The wall time of a journal's last step, 0 if it has none. Raises JournalError."""
    with _opened(path) as database:
        return last_step_in(database) or 0.0


def last_snapshot_at(path: Path) -> float:
    """The wall time of a journal's last snapshot, 0 if it has none. Raises JournalError."""
    with _opened(path) as database:
        row = database.execute("SELECT wall FROM snapshots ORDER BY sequence DESC LIMIT 1").fetchone()
        return float(row[0]) if row else 0.0


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        if not path.is_file():
            raise JournalError(f"There is no journal {path}.")
    except OSError as error:  # what is above it may not be searched, or its name is too long
        raise JournalError(f"{path} cannot be read as a journal: {error.strerror}.") from error
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=LOCK_TIMEOUT_S)) as database:
            check_version(database, path)
            yield database
    except (sqlite3.DatabaseError, *DAMAGE) as error:
        raise JournalError(f"{path} cannot be read as a journal: {error}.") from error


def _read(text: str, kind: Any) -> Any:
    """The value of that kind which `text` is. Raises ValueError for another one, and what damage leads to."""
    value = decode(json.loads(text))
    if not isinstance(value, kind):
        raise ValueError(f"{type(value).__name__} stands where something else belongs")  # noqa: TRY004 - the text is wrong
    return value


def _parts(database: sqlite3.Connection, since: float | None) -> list[tuple[int, int]]:
    """The snapshots' sequences, each with that of the next one."""
    first = None
    if since is not None:
        # Before the first later one, and not the last earlier one: the wall clock may have been set back for a while.
        later = database.execute("SELECT min(sequence) FROM snapshots WHERE wall > ?", (since,)).fetchone()[0]
        end = _NO_END if later is None else later
        first = database.execute("SELECT max(sequence) FROM snapshots WHERE sequence < ?", (end,)).fetchone()[0]
    rows = database.execute("SELECT sequence FROM snapshots WHERE sequence >= ? ORDER BY sequence", (first or 0,))
    starts = [row[0] for row in rows]
    return list(zip(starts, [*starts[1:], _NO_END], strict=True)) if starts else []


def _rows(database: sqlite3.Connection, start: int, end: int) -> list[_Row]:
    query = "SELECT wall, event, commands FROM events WHERE sequence > ? AND sequence <= ? ORDER BY sequence"
    rows = database.execute(query, (start, end))
    return [(wall, unpack(event), unpack(commands)) for wall, event, commands in rows]


def _tell_of(name: str, snapshot: str, rows: list[_Row]) -> bool:
    """Whether a workload can be there: it was at the beginning, or an event has brought it."""
    written = json.dumps(name)[1:-1]
    return written in snapshot or any(written in event for _, event, _ in rows)
