"""The journal: every fact and command of this node, so that a daemon killed at any moment knows everything again.

SQLite in WAL mode, one transaction per step, before any command is sent: a command that a supervisor saw is in the
journal. The state stands in tables, record by record, so that a newer version with other rules recovers it unchanged;
the events stand beside it, from a snapshot on, so that `nls replay` can show each decision again. Samples that changed
nothing but figures are not kept, only the last one before something happened: replaying gives the same states.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.codec import UnknownValueError, decode, encode
from nls_scheduler.core.model.events import MemorySampled
from nls_scheduler.core.model.gpu import Claims
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.state import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.gpu import Gpu

VERSION: Final = 1
SNAPSHOT_EVERY: Final = 1000
RETRY_S: Final = 60.0
_LOCK_TIMEOUT_S: Final = 5.0
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
log = logging.getLogger(__name__)


class JournalError(Exception):
    """The journal cannot be used; the sentence says why and what to do."""


class NewerJournalError(JournalError):
    """It was written by a newer version: this daemon must not touch it."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept for `nls history` and `nls replay`; the state itself is always kept.

    Attributes:
        age_s: events and entries older than this go.
        size_bytes: the oldest go when the file is larger than this.
    """

    age_s: float = 14 * 86400.0
    size_bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a journal knows: the state before the end, who looked after which workload, and the history."""

    state: NodeState
    leases: Mapping[WorkloadId, ProcessId]
    history: list[dict[str, Any]]
    boot_id: str


class Journal:
    """One daemon's journal. Failing to write never raises: it degrades to memory and says so in `trouble`.

    Attributes:
        trouble: why nothing is written at the moment, as a sentence for the status; `None` when all is well.
    """

    def __init__(self, path: Path, retention: Retention | None = None) -> None:
        """Open or create the journal. A damaged one is set aside, see `set_aside`.

        Raises NewerJournalError; everything else that goes wrong ends up in `trouble`.
        """
        self.path = path
        self.trouble: str | None = None
        self.set_aside: Path | None = None
        self._retention = retention or Retention()
        self._database: sqlite3.Connection | None = None
        self._sample: tuple[Event, tuple[Command, ...]] | None = None
        self._written = NodeState()
        self._leases: dict[WorkloadId, ProcessId] = {}
        self._since_snapshot = SNAPSHOT_EVERY
        self._retry_at = 0.0
        self._open()

    def recover(self) -> Recovered | None:
        """The state as it was last written; `None` for a new journal. A damaged one is set aside."""
        if self._database is None:
            return None
        try:
            return _recovered(self._database)
        except (sqlite3.DatabaseError, UnknownValueError, ValueError, KeyError) as error:
            self._set_aside(f"it is damaged: {error}")
            return None

    def begin(self, state: NodeState, boot_id: str, leases: Mapping[WorkloadId, ProcessId] | None = None) -> None:
        """A daemon starts with `state`: everything is written anew, and events follow from here."""
        self._leases = dict(leases or {})

        def write(database: sqlite3.Connection) -> None:
            database.execute("INSERT OR REPLACE INTO meta VALUES ('boot_id', ?)", (boot_id,))
            database.execute("DELETE FROM records")
            _write_changes(database, NodeState(), state)
            _write_leases(database, self._leases)
            self._snapshot(database, state)

        self._write(write, state)

    def record(self, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]) -> None:
        """One step, before its commands are sent."""
        if self._database is None and time.monotonic() < self._retry_at:
            return
        if isinstance(event, MemorySampled) and not commands and _same_but_for_figures(before, after):
            self._sample = (event, commands)
            return
        sample, self._sample = self._sample, None

        def write(database: sqlite3.Connection) -> None:
            if self._since_snapshot >= SNAPSHOT_EVERY:
                self._snapshot(database, before)
                _trim(database, self.path, self._retention)
            for kept in (sample, (event, commands)):
                if kept is not None:
                    _insert_event(database, *kept)
                    self._since_snapshot += 1
            _write_changes(database, self._written, after)

        self._write(write, after)

    def record_history(self, entry: Mapping[str, Any]) -> None:
        """One entry for people."""
        text = json.dumps(entry)
        self._write(lambda db: db.execute("INSERT INTO history (wall, entry) VALUES (?, ?)", (time.time(), text)), None)

    def record_lease(self, workload: WorkloadId, holder: ProcessId | None) -> None:
        """`holder` looks after `workload` from now on; `None`: nobody needs to."""
        self._leases.pop(workload, None)
        if holder is not None:
            self._leases[workload] = holder
        self._write(lambda database: _write_lease(database, workload, holder), None)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _open(self) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = _connected(self.path)
        except NewerJournalError:
            raise
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                self._degrade(error)
            else:
                self._set_aside(f"it is damaged: {error}")
        except OSError as error:
            self._degrade(error)

    def _set_aside(self, why: str) -> None:
        """Keep the damaged file for whoever wants to look, and begin a new one."""
        self.close()
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
        log.error("the journal %s cannot be used, %s; it is set aside as %s", self.path, why, aside)
        try:
            self.path.rename(aside)
            for extra in ("-wal", "-shm"):
                self.path.with_name(self.path.name + extra).unlink(missing_ok=True)
            self.set_aside = aside
            self._database = _connected(self.path)
        except (OSError, sqlite3.DatabaseError) as error:
            self._degrade(error)

    def _write(self, work: Any, state: NodeState | None) -> None:
        """Do `work` in one transaction; on failure go on in memory, and try again later with the whole state."""
        if self._database is None:
            self._try_again(state)
            if self._database is None:
                return
        try:
            with self._database:
                work(self._database)
            self._written = self._written if state is None else state
        except (sqlite3.Error, OSError) as error:
            self._degrade(error)

    def _try_again(self, state: NodeState | None) -> None:
        if state is None or time.monotonic() < self._retry_at:
            return
        self._retry_at = time.monotonic() + RETRY_S
        try:
            database = _connected(self.path)
            with database:
                database.execute("DELETE FROM records")
                _write_changes(database, NodeState(), state)
                _write_leases(database, self._leases)
            self._written = state
        except (OSError, sqlite3.Error, JournalError) as error:
            self._degrade(error)
            return
        self._database, self.trouble, self._since_snapshot = database, None, SNAPSHOT_EVERY
        log.warning("the journal %s is written again", self.path)

    def _degrade(self, error: Exception) -> None:
        self.close()
        self._retry_at = time.monotonic() + RETRY_S
        self.trouble = (
            f"The journal {self.path} cannot be written ({error}): the daemon goes on in memory, and a restart would "
            "forget its workloads. Free the disk or repair its permissions."
        )
        log.error("%s", self.trouble)

    def _snapshot(self, database: sqlite3.Connection, state: NodeState) -> None:
        text = json.dumps(encode(replace(state, plan={}, settled=False)))
        row = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'").fetchone()
        database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (row[0], time.time(), text))
        self._since_snapshot = 0


def read_events(path: Path) -> Iterator[tuple[NodeState | None, Event, tuple[Command, ...], float]]:
    """For `nls replay`: each event with its commands and wall time, oldest first, with the snapshot it starts from.

    Raises JournalError when `path` is not a journal that this version can read. Never writes.
    """
    if not path.is_file():
        raise JournalError(f"There is no journal {path}.")
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=_LOCK_TIMEOUT_S)) as database:
            _check_version(database, path)
            snapshots = dict(database.execute("SELECT sequence, state FROM snapshots"))
            rows = database.execute("SELECT sequence, wall, event, commands FROM events ORDER BY sequence")
            known = False
            for sequence, wall, event, commands in rows:
                start = snapshots.get(sequence - 1)
                known = known or start is not None
                if known:
                    state = decode(json.loads(start)) if start is not None else None
                    yield state, decode(json.loads(event)), decode(json.loads(commands)), wall
    except (sqlite3.DatabaseError, ValueError) as error:
        raise JournalError(f"{path} cannot be read as a journal: {error}.") from error


def boot_id() -> str:
    """Changes with every boot: after one, no process of the journal lives."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level="IMMEDIATE")
    try:
        path.chmod(0o600)
        database.execute("PRAGMA journal_mode = WAL")
        # Durable against the daemon's own death; after a power cut no process lives that it could forget.
        database.execute("PRAGMA synchronous = NORMAL")
        if database.execute("PRAGMA user_version").fetchone()[0] == 0:
            with database:
                database.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        _check_version(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _check_version(database: sqlite3.Connection, path: Path) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise NewerJournalError(
            f"The journal {path} was written by a newer nls (format {version}, this one knows {VERSION}): "
            "upgrade nls-jupyter, or move the journal away to begin a new one."
        )


def _recovered(database: sqlite3.Connection) -> Recovered | None:
    with suppress(sqlite3.OperationalError):
        check = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if check != "ok":
            raise sqlite3.DatabaseError(check)
    meta = dict(database.execute("SELECT key, value FROM meta"))
    if "boot_id" not in meta:
        return None
    records: dict[str, dict[str, Any]] = {"gpu": {}, "workload": {}, "node": {}}
    for kind, key, value in database.execute("SELECT kind, id, value FROM records"):
        records[kind][key] = decode(json.loads(value))
    node = records["node"]
    state = NodeState(
        gpus={GpuUuid(key): gpu for key, gpu in records["gpu"].items()},
        workloads={WorkloadId(key): workload for key, workload in records["workload"].items()},
        at=node["at"],
        next_command=CommandId(node["next_command"]),
        claims=node.get("claims", Claims()),
    )
    leases = {WorkloadId(w): ProcessId(pid, start) for w, pid, start in database.execute("SELECT * FROM leases")}
    rows = database.execute(
        "SELECT entry FROM (SELECT * FROM history ORDER BY sequence DESC LIMIT 2000) ORDER BY sequence"
    )
    return Recovered(state, leases, [json.loads(row[0]) for row in rows], meta["boot_id"])


def _write_changes(database: sqlite3.Connection, before: NodeState, after: NodeState) -> None:
    """Only the records that changed: most steps change one workload."""
    kinds: tuple[tuple[str, Mapping[Any, Any], Mapping[Any, Any]], ...] = (
        ("gpu", before.gpus, after.gpus),
        ("workload", before.workloads, after.workloads),
    )
    for kind, old, new in kinds:
        gone = [(kind, key) for key in old if key not in new]
        changed = [(kind, key, json.dumps(encode(now))) for key, was, now in _others(old, new) if was != now]
        database.executemany("DELETE FROM records WHERE kind = ? AND id = ?", gone)
        database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", changed)
    node = [("node", "at", json.dumps(after.at)), ("node", "next_command", json.dumps(after.next_command))]
    if before.claims != after.claims:
        node.append(("node", "claims", json.dumps(encode(after.claims))))
    database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", node)


def _write_leases(database: sqlite3.Connection, leases: Mapping[WorkloadId, ProcessId]) -> None:
    database.execute("DELETE FROM leases")
    for workload, holder in leases.items():
        _write_lease(database, workload, holder)


def _write_lease(database: sqlite3.Connection, workload: WorkloadId, holder: ProcessId | None) -> None:
    if holder is None:
        database.execute("DELETE FROM leases WHERE workload = ?", (workload,))
    else:
        row = (workload, holder.pid, holder.start_time)
        database.execute("INSERT OR REPLACE INTO leases VALUES (?, ?, ?)", row)


def _insert_event(database: sqlite3.Connection, event: Event, commands: tuple[Command, ...]) -> None:
    row = (time.time(), json.dumps(encode(event)), json.dumps(encode(commands)))
    database.execute("INSERT INTO events (wall, event, commands) VALUES (?, ?, ?)", row)


def _same_but_for_figures(before: NodeState, after: NodeState) -> bool:
    """Whether only measured figures differ: the next sample overwrites them, so leaving this one out loses nothing."""
    if before.gpus.keys() != after.gpus.keys() or before.workloads.keys() != after.workloads.keys():
        return False
    gpus = _others(before.gpus, after.gpus)
    workloads = _others(before.workloads, after.workloads)
    return all(_without_figures(was) == _without_figures(now) for _, was, now in gpus) and all(
        replace(was, memory_used={}) == replace(now, memory_used={}) for _, was, now in workloads
    )


def _others(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Those that are other objects than before, which most are not: the key, what was there, what is there now."""
    return ((key, was, now) for key, now in after.items() if (was := before.get(key)) is not now)


def _without_figures(gpu: Gpu) -> Gpu:
    return replace(gpu, memory_used_bytes=None if gpu.memory_used_bytes is None else 0, utilisation=None)


def _trim(database: sqlite3.Connection, path: Path, retention: Retention) -> None:
    """Drop what is too old or too much; events only up to a snapshot, from which the rest can be replayed."""
    oldest = time.time() - retention.age_s
    with suppress(FileNotFoundError):
        if path.stat().st_size > retention.size_bytes:
            middle = database.execute("SELECT avg(wall) FROM events").fetchone()[0]
            oldest = max(oldest, middle or oldest)
    database.execute("DELETE FROM history WHERE wall < ?", (oldest,))
    start = database.execute("SELECT max(sequence) FROM snapshots WHERE wall <= ?", (oldest,)).fetchone()[0]
    if start is not None:
        database.execute("DELETE FROM events WHERE sequence <= ?", (start,))
        database.execute("DELETE FROM snapshots WHERE sequence < ?", (start,))
