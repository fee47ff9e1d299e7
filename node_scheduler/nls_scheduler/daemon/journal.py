"""The journal: every fact and command of this node, so that a daemon killed at any moment knows everything again.

SQLite in WAL mode, one transaction per step, before any command is sent: a command that a supervisor saw is in the
journal. The state stands in tables, record by record, so that a newer version with other rules recovers it unchanged;
the events stand beside it, from a snapshot on, so that `nls replay` can show each decision again. Samples that changed
nothing but figures are not kept, only the last one before something happened: replaying gives the same states.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model.codec import UnknownValueError
from nls_scheduler.core.model.events import MemorySampled
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.daemon import journal_tables as tables
from nls_scheduler.daemon.journal_files import JournalFiles
from nls_scheduler.daemon.journal_retention import AgeClock, Retention, last_step_in, trim
from nls_scheduler.daemon.journal_slowness import Slowness
from nls_scheduler.daemon.journal_tables import DAMAGE, ForeignJournalError, JournalError, Recovered
from nls_scheduler.processes.whose_files import make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import ProcessId, WorkloadId

SNAPSHOT_EVERY: Final = 1000
RETRY_S: Final = 5.0
"""After an error, such as a full disk: what comes meanwhile is lost to a daemon that is killed."""
HARM_RETRY_S: Final = 60.0
"""After somebody has taken the file away, and again."""
HARM_ENDS_S: Final = 1.0
"""Who deletes or cuts several files is given as long; a file that SQLite still looks at must not be cut meanwhile."""
log = logging.getLogger(__name__)


class Journal:
    """One daemon's journal. Failing to write never raises: it degrades to memory and says so in `trouble`.

    Attributes:
        trouble: why nothing is written at the moment, as a sentence for the status; `None` when all is well.
        begun_anew: why there is less in it than there was, as a sentence for the status; `None` when all is there.
        set_aside: the copy of a journal that this daemon could not go on with.
        slowness: how long its writes take.
    """

    def __init__(self, path: Path, retention: Retention | None = None) -> None:
        """Open or create the journal. A damaged one is set aside, see `set_aside`.

        Raises ForeignJournalError; everything else that goes wrong ends up in `trouble`.
        """
        self.path = path
        self.trouble: str | None = None
        self.begun_anew: str | None = None
        self.set_aside: Path | None = None
        self.slowness = Slowness(path)
        self._retention = retention or Retention()
        self._files = JournalFiles(path)
        self._database: sqlite3.Connection | None = None
        self._sample: tuple[Event, tuple[Command, ...]] | None = None
        # What a new file is written from, should this one be lost.
        self._written = NodeState()
        self._leases: dict[WorkloadId, ProcessId] = {}
        self._history: deque[tuple[float, str]] = deque(maxlen=tables.HISTORY_KEPT)
        self._unwritten: deque[tuple[float, str]] = deque(maxlen=tables.HISTORY_KEPT)
        self._boot_id = ""
        self._since_snapshot = SNAPSHOT_EVERY
        self._retry_at = 0.0
        self._harmed: tuple[str, float] | None = None
        self._age = AgeClock(None)
        self._open()

    def recover(self) -> Recovered | None:
        """The state as it was last written; `None` for a new journal. A damaged one is set aside."""
        if self._database is None:
            return None
        try:
            found = tables.recovered(self._database)
        except (sqlite3.DatabaseError, UnknownValueError, *DAMAGE) as error:
            self._set_aside(f"it is damaged: {error}")
            return None
        if found is not None:
            self._history.extend((time.time(), tables.JSON.encode(entry)) for entry in found.history)
        return found

    def begin(self, state: NodeState, boot_id: str, leases: Mapping[WorkloadId, ProcessId] | None = None) -> None:
        """A daemon starts with `state`: everything is written anew, and events follow from here."""
        self._leases, self._boot_id = dict(leases or {}), boot_id
        self._age = AgeClock(self._last_step())

        def write(database: sqlite3.Connection) -> None:
            tables.write_whole(database, state, self._leases, boot_id)
            self._snapshot(database, state)

        self._write(write, state)

    def record(self, event: Event, before: NodeState, after: NodeState, commands: tuple[Command, ...]) -> None:
        """One step, before its commands are sent."""
        if self._database is None and time.monotonic() < self._retry_at:
            return
        # Where nothing was written for a while, what happened then is not known to the next daemon yet.
        is_written = self._database is not None
        if is_written and isinstance(event, MemorySampled) and not commands and _same_but_for_figures(before, after):
            self._sample = (event, commands)
            self._look_after_files()
            return
        sample, self._sample = self._sample, None

        def write(database: sqlite3.Connection) -> None:
            if self._since_snapshot >= SNAPSHOT_EVERY:
                self._snapshot(database, before)
            for kept in (sample, (event, commands)):
                if kept is not None:
                    tables.write_event(database, *kept)
                    self._since_snapshot += 1
            tables.write_changes(database, self._written, after)

        self._write(write, after)

    def record_history(self, entry: Mapping[str, Any]) -> None:
        """One entry for people."""
        row = (time.time(), tables.JSON.encode(entry))
        if self._write(lambda database: tables.write_history(database, [*self._unwritten, row]), None):
            self._unwritten.clear()
        else:
            self._unwritten.append(row)
        self._history.append(row)

    def record_lease(self, workload: WorkloadId, holder: ProcessId | None) -> None:
        """`holder` looks after `workload` from now on; `None`: nobody needs to."""
        self._leases.pop(workload, None)
        if holder is not None:
            self._leases[workload] = holder
        self._write(lambda database: tables.write_lease(database, workload, holder), None)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._database is not None:
            self._files.prepare_to_close()
            self._database.close()
            self._database = None

    def _open(self) -> None:
        try:
            self._connect()
        except ForeignJournalError:
            raise
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                self._degrade(error)
            else:
                self._set_aside(f"it is damaged: {error}")
        except OSError as error:
            self._degrade(error)

    def _connect(self) -> sqlite3.Connection:
        make_private(self.path.parent)
        self._database = tables.connected(self.path)
        self._files.remember()
        return self._database

    def _set_aside(self, why: str) -> None:
        """Keep the damaged file for whoever wants to look, and begin a new one."""
        self.close()
        try:
            aside = self.set_aside = self._files.set_aside(self._retention.size_bytes)
            log.error("the journal %s cannot be used, %s; it is set aside as %s", self.path, why, aside)
            self._connect()
            self.begun_anew = f"The journal was damaged and begins anew; the old one is kept as {aside}."
        except (OSError, sqlite3.DatabaseError) as error:
            self._degrade(error)

    def _write(self, work: Callable[[sqlite3.Connection], None], state: NodeState | None) -> bool:
        """Do `work` in one transaction; on failure go on in memory, and try again later with the whole state.

        Whether it is done.
        """
        began = time.monotonic()
        try:
            return self._try_to_write(work, state)
        finally:
            self.slowness.wrote(time.monotonic() - began)

    def _try_to_write(self, work: Callable[[sqlite3.Connection], None], state: NodeState | None) -> bool:
        self._look_after_files()
        if self._harmed is not None:
            self._written = self._written if state is None else state
            return False
        if self._database is None and state is not None and time.monotonic() >= self._retry_at:
            self._write_anew(state)
        if self._database is None:
            return False
        try:
            with self._database:
                work(self._database)
            self._written = self._written if state is None else state
            self._files.remember()
            return True
        except (sqlite3.Error, OSError) as error:
            if type(error) is sqlite3.DatabaseError:  # what SQLite calls malformed, or no database
                self._begin_anew(f"was damaged ({error})", self._written if state is None else state)
            else:
                self._degrade(error)
        return False

    def _look_after_files(self) -> None:
        if self._harmed is None:
            harm = None if self._database is None else self._files.harm()
            if harm is None:
                return
            self._harmed = (harm, time.monotonic() + HARM_ENDS_S)
        harm, over_at = self._harmed
        if time.monotonic() >= over_at:
            self._harmed = None
            self._begin_anew(harm, self._written)

    def _begin_anew(self, harm: str, state: NodeState) -> None:
        """Somebody has taken the file from under this daemon: all that memory knows goes into a new one, at once.

        Who does so again and again only has it go on in memory for a while.
        """
        again = time.monotonic() < self._retry_at
        self.close()
        kept = ""
        try:
            if (aside := self._files.set_aside(self._retention.size_bytes)) is not None:
                kept = f"; what lay there is kept as {aside}"
        except OSError as error:
            self._degrade(error)
        else:
            if again:
                self._degrade(OSError(f"{harm} again"), HARM_RETRY_S)
            else:
                self._write_anew(state)
        if self.trouble is None:
            self.begun_anew = f"While the daemon ran, {harm}: the journal was written anew from memory{kept}."
            log.error("%s", self.begun_anew)
        else:
            log.error("while the daemon ran, %s%s", harm, kept)

    def _write_anew(self, state: NodeState) -> None:
        """All that the next daemon must know, and the history: of what was not written meanwhile memory alone knows."""
        self._retry_at = time.monotonic() + HARM_RETRY_S
        try:
            with self._connect() as database:
                tables.write_whole(database, state, self._leases, self._boot_id)
                gone = database.execute("SELECT max(sequence) FROM history").fetchone()[0] is None
                tables.write_history(database, self._history if gone else self._unwritten)
            self._unwritten.clear()
            self._files.remember()
        except (OSError, sqlite3.Error, JournalError) as error:
            self._degrade(error)
            return
        self._written, self.trouble, self._since_snapshot = state, None, SNAPSHOT_EVERY
        log.warning("the journal %s is written again", self.path)

    def _degrade(self, error: Exception, retry_s: float = RETRY_S) -> None:
        self.close()
        self._retry_at = time.monotonic() + retry_s
        told = (
            f"The journal {self.path} cannot be written ({error}): the daemon goes on in memory, and a restart would "
            f"forget its workloads. Free the disk or repair its permissions; it is tried again after {retry_s:g} s."
        )
        if told != self.trouble:
            log.error("%s", told)
        self.trouble = told

    def _last_step(self) -> float | None:
        try:
            return None if self._database is None else last_step_in(self._database)
        except (sqlite3.Error, *DAMAGE):
            return None  # whoever writes to it finds that out, and tells

    def _snapshot(self, database: sqlite3.Connection, state: NodeState) -> None:
        tables.write_snapshot(database, replace(state, plan={}, settled=False))
        trim(database, self._retention, self._age.now())
        self._since_snapshot = 0


def boot_id() -> str:
    """Changes with every boot: after one, no process of the journal lives."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _same_but_for_figures(before: NodeState, after: NodeState) -> bool:
    """Whether only measured figures differ: the next sample overwrites them, so leaving this one out loses nothing."""
    if before.gpus.keys() != after.gpus.keys() or before.workloads.keys() != after.workloads.keys():
        return False
    gpus = tables.others(before.gpus, after.gpus)
    workloads = tables.others(before.workloads, after.workloads)
    return all(_without_figures(was) == _without_figures(now) for _, was, now in gpus) and all(
        replace(was, memory_used={}) == replace(now, memory_used={}) for _, was, now in workloads
    )


def _without_figures(gpu: Gpu) -> Gpu:
    return replace(gpu, memory_used_bytes=None if gpu.memory_used_bytes is None else 0, utilisation=None)
