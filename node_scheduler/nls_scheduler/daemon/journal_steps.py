"""The steps that a journal keeps, for `nls replay`: read in parts, beside a daemon that goes on writing."""

from __future__ import annotations

import json
import sqlite3
import stat
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
_Row: TypeAlias = tuple[int, float, str, str]


def read_steps(
    path: Path,
    since: float | None = None,
    of: str | None = None,
    told: Callable[[float], None] = lambda _part: None,
    *,
    whole: bool = False,
) -> Iterator[tuple[NodeState | None, Event, tuple[Command, ...] | None, float]]:
    """Each event with its commands and wall time, oldest first, with the snapshot it starts from.

    With `since`, a wall time, it is about the first step that is no earlier and all after that one: the clock may have
    been set back meanwhile. It begins at the snapshot before; the commands of steps that only lead there are `None`,
    unless they are wanted as well (`whole`). Where nothing tells of the workload `of` (a name or an id) between two
    snapshots, what is between them is left out.
    `told` hears now and then which part has been read: a number from 0 to 1.

    Raises JournalError when `path` is not a journal that this version can read. Never writes.
    """
    with _opened(path) as database:
        first = 0 if since is None else _first_since(database, since)
        parts = _parts(database, first)
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
            for sequence, wall, event, commands in rows:
                shown = whole or sequence >= first
                if not 0 <= wall < _LAST_YEAR_ENDS:
                    raise ValueError(f"{wall:g} is no time of a step")
                yield state, _read(event, Event), _read(commands, tuple) if shown else None, wall
                state = None


def last_step_at(path: Path) -> float:
    """The wall time of a journal's last step, 0 if it has none. Raises JournalError."""
    with _opened(path) as database:
        return last_step_in(database) or 0.0


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        is_file = stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_file = False
    except OSError as error:  # what is above it may not be searched, or its name is too long
        raise JournalError(f"{path} cannot be read as a journal: {error.strerror}.") from error
    if not is_file:
        raise JournalError(f"There is no journal {path}.")
    try:
        read_only = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(read_only, uri=True, timeout=LOCK_TIMEOUT_S)) as database:
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


def _first_since(database: sqlite3.Connection, since: float) -> int:
    found = database.execute("SELECT min(sequence) FROM events WHERE wall >= ?", (since,)).fetchone()[0]
    return _NO_END if found is None else int(found)


def _parts(database: sqlite3.Connection, first: int) -> list[tuple[int, int]]:
    """The sequences of the last snapshot before the step `first` and of those after it, each with that of the next."""
    start = database.execute("SELECT max(sequence) FROM snapshots WHERE sequence < ?", (first,)).fetchone()[0]
    rows = database.execute("SELECT sequence FROM snapshots WHERE sequence >= ? ORDER BY sequence", (start or 0,))
    starts = [row[0] for row in rows]
    return list(zip(starts, [*starts[1:], _NO_END], strict=True)) if starts else []


def _rows(database: sqlite3.Connection, start: int, end: int) -> list[_Row]:
    query = "SELECT sequence, wall, event, commands FROM events WHERE sequence > ? AND sequence <= ? ORDER BY sequence"
    rows = database.execute(query, (start, end))
    return [(sequence, wall, unpack(event), unpack(commands)) for sequence, wall, event, commands in rows]


def _tell_of(name: str, snapshot: str, rows: list[_Row]) -> bool:
    """Whether a workload can be there: it was at the beginning, or an event has brought it."""
    written = json.dumps(name)[1:-1]
    return written in snapshot or any(written in event for _, _, event, _ in rows)
