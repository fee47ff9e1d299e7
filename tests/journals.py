"""Journals for tests: a short story that is recorded, long dull ones, one of an earlier version."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from nls_scheduler.core.model.events import TimerFired
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.core.step import step

if TYPE_CHECKING:
    from nls_scheduler.daemon.journal import Journal


class Recording:
    """A simulated node whose steps are journalled as the daemon does it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.node = SimulatedNode()
        journal.begin(self.node.state, "boot-1")

    def play(self) -> SimulatedNode:
        """Two notebooks, a third workload, a move."""
        other = SimulatedNode.of()
        first, second = other.submit(), other.submit()
        other.settle()
        other.hold(second, 3 * GIB)
        other.hold(first, 2 * GIB)
        other.submit(kind=Kind.COMMAND, request_bytes=16 * GIB)
        other.complete(other.pending[0])
        for event, commands in other.history:
            before = self.node.state
            self.node.state, again = step(before, event)
            assert again == commands
            self.journal.record(event, before, self.node.state, commands)
        return self.node


def dull_steps(journal: Journal, node: SimulatedNode, steps: int, entry_bytes: int = 0) -> None:
    """As many steps in which hardly anything happens, each with an entry as long of the history, which packs badly."""
    drawn = Random(steps)
    for number in range(steps):
        event, before = TimerFired(node.state.at), node.state
        node.state, commands = step(before, event)
        journal.record(event, before, node.state, commands)
        if entry_bytes:
            journal.record_history({"sequence": number, "event": drawn.randbytes(entry_bytes // 2).hex()})


def counts(path: Path) -> dict[str, int]:
    """How many rows each table of a journal has."""
    with closing(sqlite3.connect(path)) as database:
        tables = ("events", "history", "snapshots")
        return {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def of_version_1(path: Path) -> None:
    """A journal that was written before its longer texts were packed."""
    with closing(sqlite3.connect(path)) as database:
        database.executescript((Path(__file__).parent / "unit" / "journal_of_version_1.sql").read_text())
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (0,)
