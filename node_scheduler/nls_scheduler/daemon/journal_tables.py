"""What stands in a journal's tables, and how: the schema and its versions, records, leases, events, history."""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.core.model.gpu import Claims, Gpu
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.daemon.journal_retention import used_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event

VERSION: Final = 8
"""Of all that is written: a newer one's journal is refused, where what nobody knows would look like damage.

1: every text is plain. 2: longer ones of events, snapshots and the history are packed, see `pack`. 3: Gpus that the
daemon was started without, and who stays on a Gpu that takes nobody. 4: whether an interrupt has reached its cell.
5: that variables were not saved in time. 6: for whom an order was given, and how a workload has left its Gpus.
7: that one waits as it would have to leave again, or as the daemon has just started.
`tests/unit/journal_format.json` has every field.
"""
LOCK_TIMEOUT_S: Final = 5.0
HISTORY_KEPT: Final = 2000
"""As many entries of the history are written again where the journal is begun anew."""
HISTORY_READ: Final = 5 * HISTORY_KEPT
"""As many are read after a restart: of users with many the history keeps fewer."""
DAMAGE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a text leads to that nobody has written so."""
JSON: Final = json.JSONEncoder(separators=(",", ":"))
_KINDS: Final = {"gpu": Gpu, "workload": Workload}
_PACKED_FROM_BYTES: Final = 200
_REBUILT_UP_TO_BYTES: Final = 32 * 2**20
_WAL_KEPT_BYTES: Final = 8 * 2**20
_SCHEMA: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE records (kind TEXT NOT NULL, id TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE TABLE leases (workload TEXT PRIMARY KEY, pid INTEGER NOT NULL, start_time INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE events (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, wall REAL NOT NULL, event TEXT NOT NULL, commands TEXT NOT NULL
);
CREATE TABLE snapshots (sequence INTEGER PRIMARY KEY, wall REAL NOT NULL, state TEXT NOT NULL);
CREATE TABLE history (sequence INTEGER PRIMARY KEY, wall REAL NOT NULL, entry TEXT NOT NULL);
"""


class JournalError(Exception):
    """The journal cannot be used; the sentence says why and what to do."""


class ForeignJournalError(JournalError):
    """A newer version, or another program, has written it: this daemon must not touch it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal knows: the state before the end, who looked after which workload, and the history."""

    state: NodeState
    leases: Mapping[WorkloadId, ProcessId]
    history: list[dict[str, Any]]
    boot_id: str


def connected(path: Path) -> sqlite3.Connection:
    """Open the journal at `path`, make one where none is, bring an older one up to date. Raises SQLite's, OSError."""
    with suppress(FileExistsError):  # who opens it before it is closed to others reads on
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level="IMMEDIATE")
    try:
        version = check_version(database, path)
        path.chmod(0o600)
        if database.execute("PRAGMA page_count").fetchone()[0] == 0:
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
        # Durable against the daemon's own death; after a power cut no process lives that it could forget.
        database.execute("PRAGMA synchronous = NORMAL")
        if version == 0:
            with database:
                database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version < VERSION:
            _migrate(database)
    except BaseException:
        database.close()
        raise
    return database


def check_version(database: sqlite3.Connection, path: Path) -> int:
    """Of which version it is, 0 if it is new. Raises ForeignJournalError."""
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and (version == 0 or tables.isdisjoint({"records", "leases", "snapshots"})):
        raise ForeignJournalError(
            f"{path} is a database of another program, with {', '.join(sorted(tables)[:3])} in it: move it away, or "
            "give nls another directory for its state (--state-dir)."
        )
    if version > VERSION:
        raise ForeignJournalError(
            f"The journal {path} was written by a newer nls (format {version}, this one knows {VERSION}): "
            "upgrade nls-jupyter, or move the journal away to begin a new one."
        )
    return version


def recovered(database: sqlite3.Connection) -> Recovered | None:
    """All but the events; `None` if no daemon has begun with it. Raises what damage leads to."""
    with suppress(sqlite3.OperationalError):
        check = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if check != "ok":
            raise sqlite3.DatabaseError(check)
    meta = dict(database.execute("SELECT key, value FROM meta"))
    if "boot_id" not in meta:
        return None
    records: dict[str, dict[str, Any]] = {"gpu": {}, "workload": {}, "node": {}}
    for kind, key, value in database.execute("SELECT kind, id, value FROM records"):
        records[kind][key] = found = decode(json.loads(value))
        if not isinstance(found, _KINDS.get(kind, object)):
            raise ValueError(f"the {kind} {key} is none")  # noqa: TRY004 - the text is wrong
    node = records["node"]
    state = NodeState(
        gpus={GpuUuid(key): gpu for key, gpu in records["gpu"].items()},
        workloads={WorkloadId(key): workload for key, workload in records["workload"].items()},
        at=node["at"],
        next_command=CommandId(node["next_command"]),
        claims=node.get("claims", Claims()),
    )
    leases = {WorkloadId(w): ProcessId(pid, start) for w, pid, start in database.execute("SELECT * FROM leases")}
    rows = database.execute("SELECT entry FROM history ORDER BY sequence DESC LIMIT ?", (HISTORY_READ,)).fetchall()
    return Recovered(state, leases, [json.loads(unpack(row[0])) for row in reversed(rows)], meta["boot_id"])


def write_whole(
    database: sqlite3.Connection, state: NodeState, leases: Mapping[WorkloadId, ProcessId], boot_id: str
) -> None:
    """Everything that the next daemon must know, in place of what stands there."""
    database.execute("INSERT OR REPLACE INTO meta VALUES ('boot_id', ?)", (boot_id,))
    database.execute("DELETE FROM records")
    write_changes(database, NodeState(), state)
    database.execute("DELETE FROM leases")
    for workload, holder in leases.items():
        write_lease(database, workload, holder)


def write_changes(database: sqlite3.Connection, before: NodeState, after: NodeState) -> None:
    """Only the records that changed: most steps change one workload."""
    kinds: tuple[tuple[str, Mapping[Any, Any], Mapping[Any, Any]], ...] = (
        ("gpu", before.gpus, after.gpus),
        ("workload", before.workloads, after.workloads),
    )
    for kind, old, new in kinds:
        gone = [(kind, key) for key in old if key not in new]
        changed = [(kind, key, as_text(now)) for key, was, now in others(old, new) if was != now]
        database.executemany("DELETE FROM records WHERE kind = ? AND id = ?", gone)
        database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", changed)
    node = [("node", "at", as_text(after.at)), ("node", "next_command", as_text(after.next_command))]
    if before.claims != after.claims:
        node.append(("node", "claims", as_text(after.claims)))
    database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", node)


def write_lease(database: sqlite3.Connection, workload: WorkloadId, holder: ProcessId | None) -> None:
    """`holder` looks after `workload`; `None`: nobody does."""
    if holder is None:
        database.execute("DELETE FROM leases WHERE workload = ?", (workload,))
    else:
        row = (workload, holder.pid, holder.start_time)
        database.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", row)


def write_event(
    database: sqlite3.Connection, event: Event, commands: tuple[Command, ...], wall: float | None = None
) -> None:
    """One step, as `nls replay` reads it; `wall`: when, unless it is now."""
    row = (time.time() if wall is None else wall, pack(as_text(event)), pack(as_text(commands)))
    database.execute("INSERT INTO events (wall, event, commands) VALUES (?, ?, ?)", row)


def write_snapshot(database: sqlite3.Connection, state: NodeState, wall: float | None = None) -> None:
    """The state before the next event; `wall`: when, unless it is now."""
    row = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'").fetchone()
    snapshot = (row[0], time.time() if wall is None else wall, pack(as_text(state)))
    database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshot)


def write_history(database: sqlite3.Connection, entries: Iterable[tuple[float, str]]) -> None:
    """Entries as JSON, each with its wall time."""
    rows = ((wall, pack(text)) for wall, text in entries)
    database.executemany("INSERT INTO history (wall, entry) VALUES (?, ?)", rows)


def others(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Those that are other objects than before, which most are not: the key, what was there, what is there now."""
    return ((key, was, now) for key, now in after.items() if (was := before.get(key)) is not now)


def as_text(value: Any) -> str:
    """A value of the core as JSON without blanks."""
    return JSON.encode(encode(value))


def pack(text: str) -> str | bytes:
    """What is long is compressed: a sample of a full node takes a third."""
    return text if len(text) < _PACKED_FROM_BYTES else zlib.compress(text.encode(), 1)


def unpack(packed: str | bytes) -> str:
    """The inverse of `pack`. Raises ValueError for what is damaged."""
    if isinstance(packed, str):
        return packed
    try:
        return zlib.decompress(packed).decode()
    except zlib.error as error:
        raise ValueError(f"a packed text is damaged: {error}") from error


def _migrate(database: sqlite3.Connection) -> None:
    """What an earlier version wrote stays as it is, as plain texts are read as well; a small journal learns to shrink.

    A large one keeps the size that it has, and the pages that come free in it are used again.
    """
    with database:
        database.execute(f"PRAGMA user_version = {VERSION}")
    if used_bytes(database) <= _REBUILT_UP_TO_BYTES:
        with suppress(sqlite3.OperationalError):  # no room for a second one, or somebody reads it
            database.execute("PRAGMA auto_vacuum = INCREMENTAL")
            database.execute("VACUUM")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
