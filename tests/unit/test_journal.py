"""The journal on a real file: what it knows after a crash, and what it does when the disk or the file is bad."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from dataclasses import replace

import pytest

from journals import Recording, of_version_1
from nls_scheduler.cli import main
from nls_scheduler.core.model.codec import decode
from nls_scheduler.core.model.events import MemorySampled
from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.workload import Workload
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.daemon import journal as journal_module
from nls_scheduler.daemon import journal_tables
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.journal_retention import Retention
from nls_scheduler.daemon.journal_steps import read_steps
from nls_scheduler.daemon.journal_tables import ForeignJournalError, JournalError
from nls_scheduler.views.sentences import Names, sentence


def without_figures(state: NodeState) -> NodeState:
    """What recovery promises: everything but the plan, and figures as of the last written step."""
    return replace(state, plan={}, timer_at=None, policy=NodeState().policy)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


def recovered_from(path):
    with closing(Journal(path)) as journal:
        return journal.recover()


def test_a_killed_daemon_finds_its_state_again(path):
    journal = Journal(path)
    state = Recording(journal).play().state
    journal.record_lease(WorkloadId("w1"), ProcessId(7, 8))
    journal.record_history({"sequence": 1, "event": "started"})
    # Not closed: as after a SIGKILL.
    recovered = recovered_from(path)
    assert recovered is not None
    assert without_figures(recovered.state) == without_figures(state)
    assert recovered.leases == {"w1": ProcessId(7, 8)}
    assert recovered.history == [{"sequence": 1, "event": "started"}]
    assert recovered.boot_id == "boot-1"
    journal.close()


def test_of_those_who_look_after_workloads_the_last_of_each_is_known_again(path):
    journal = Journal(path)
    Recording(journal).play()
    for workload, holder in (("w1", (7, 8)), ("w2", (9, 10)), ("w3", (11, 12)), ("w1", (13, 14)), ("w2", None)):
        journal.record_lease(WorkloadId(workload), None if holder is None else ProcessId(*holder))
    recovered = recovered_from(path)
    assert recovered is not None
    assert recovered.leases == {"w1": ProcessId(13, 14), "w3": ProcessId(11, 12)}
    journal.close()


def test_replaying_the_events_decides_everything_again_as_it_was(path):
    journal = Journal(path)
    Recording(journal).play()
    journal.close()
    state, steps = None, 0
    for snapshot, event, commands, _wall in read_steps(path):
        state = snapshot or state
        assert state is not None
        state, again = step(state, event)
        assert again == commands
        steps += 1
    assert steps > 10


def test_samples_that_change_only_figures_are_not_kept(path):
    journal = Journal(path)
    recording = Recording(journal)
    node = recording.play()
    kept = len(list(read_steps(path)))
    other = SimulatedNode(state=node.state, now=node.state.at + 1)
    for _ in range(20):
        before = other.state
        other.sample()
        journal.record(other.history[-1][0], before, other.state, other.history[-1][1])
    assert len(list(read_steps(path))) <= kept + 2
    journal.close()


def test_a_new_journal_knows_nothing(path):
    journal = Journal(path)
    assert journal.recover() is None
    assert journal.trouble is None
    journal.close()


def test_a_journal_of_a_newer_version_is_refused_and_left_alone(path):
    Journal(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {journal_tables.VERSION + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(ForeignJournalError, match="newer nls"):
        Journal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, 2])
def test_a_database_of_another_program_is_refused_and_left_alone(path, version):
    with sqlite3.connect(path) as database:
        database.executescript(
            f"CREATE TABLE bookmarks (url); CREATE TABLE meta (key); PRAGMA user_version = {version}"
        )
    database.close()
    path.chmod(0o640)
    before = path.read_bytes()
    with pytest.raises(ForeignJournalError, match=r"another program, with bookmarks, meta in it: move it away"):
        Journal(path)
    assert path.read_bytes() == before
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("damage", ["garbage", "value", "truncated", "depth", "kind"])
def test_a_damaged_journal_is_set_aside_and_a_new_one_begins(path, damage):
    journal = Journal(path)
    Recording(journal).play()
    journal.close()
    if damage == "garbage":
        path.write_bytes(b"this is no database at all" * 100)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        value = {"value": '{"$": "Teleport"}', "depth": "[" * 100_000, "kind": "5"}[damage]
        with sqlite3.connect(path) as database:
            database.execute("UPDATE records SET value = ? WHERE kind = 'workload'", (value,))
        database.close()
    journal = Journal(path)
    assert journal.recover() is None
    assert journal.set_aside is not None
    assert journal.set_aside.exists()
    Recording(journal).play()
    assert journal.trouble is None
    journal.close()


def test_a_full_disk_degrades_to_memory_and_says_so(path, monkeypatch):
    journal = Journal(path)
    recording = Recording(journal)
    node = recording.play()
    database = journal._database  # the smallest real way to make SQLite report a full disk
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(200):
        journal.record_history({"sequence": number, "text": "x" * 1000})
    assert "goes on in memory" in (journal.trouble or "")
    assert journal._retry_at <= time.monotonic() + 5, "what comes until then is lost to a daemon that is killed"
    # Later there is room again: the whole state is written anew.
    monkeypatch.setattr(journal, "_retry_at", 0.0)
    before = node.state
    other = SimulatedNode(state=before, now=before.at + 1, _next_workload=9)
    workload = other.submit()
    journal.record(other.history[-1][0], before, other.state, other.history[-1][1])
    assert journal.trouble is None
    journal.close()
    found = recovered_from(path)
    assert workload in found.state.workloads
    assert [entry["sequence"] for entry in found.history[-200:]] == [*range(200)], (
        "what came meanwhile is there as well"
    )


def test_a_journal_is_written_again_although_nothing_more_happens(path, monkeypatch):
    journal = Journal(path)
    before = Recording(journal).play().state
    database = journal._database
    database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")
    for _ in range(200):
        journal.record_history({"text": "x" * 1000})
    assert journal.trouble is not None
    other = SimulatedNode(state=before, now=before.at + 1, _next_workload=9)
    workload = other.submit()
    journal.record(other.history[-1][0], before, other.state, other.history[-1][1])
    monkeypatch.setattr(journal, "_retry_at", 0.0)
    journal.record(MemorySampled(other.state.at, {}), other.state, other.state, ())
    assert journal.trouble is None
    journal.close()
    assert workload in recovered_from(path).state.workloads


def test_a_folder_that_cannot_be_written_degrades_to_memory(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    journal = Journal(blocked / "journal.db")
    assert "goes on in memory" in (journal.trouble or "")
    Recording(journal).play()
    journal.close()


def test_old_events_go_and_the_rest_can_still_be_replayed(path, monkeypatch):
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 5)
    journal = Journal(path, Retention(age_s=-1.0))
    Recording(journal).play()
    journal.close()
    events = list(read_steps(path))
    assert 0 < len(events) <= 12
    assert events[0][0] is not None


@pytest.mark.parametrize("name", ["copy#1.db", "why?.db", "100%25.db"])
def test_a_journal_is_replayed_whatever_its_file_is_called(path, name):
    journal = Journal(path)
    Recording(journal).play()
    journal.close()
    called_so = path.rename(path.with_name(name))
    assert list(read_steps(called_so))
    assert all(file.name.startswith(name) for file in path.parent.iterdir())


@pytest.mark.parametrize("content", [None, b"no database"])
def test_a_file_that_is_no_journal_cannot_be_replayed(path, content):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(JournalError, match="journal"):
        list(read_steps(path))


def with_sentences(path, state):
    """The journal as it would be had every reason been written as a sentence."""

    def written_then(value):
        if isinstance(value, list):
            return [written_then(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.get("$") == "Why":
            return sentence(decode(value), Names.of(state))
        return {name: written_then(item) for name, item in value.items()}

    columns = (("records", "value"), ("events", "event"), ("events", "commands"), ("snapshots", "state"))
    with sqlite3.connect(path) as database:
        for table, column in columns:
            texts = database.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
            pairs = [(json.dumps(written_then(json.loads(text))), text) for (text,) in texts]
            database.executemany(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", pairs)
    database.close()


@pytest.mark.parametrize("small", [True, False])
def test_a_journal_of_version_1_is_taken_up_and_goes_on_in_this_one(path, small, monkeypatch, capsys):
    if not small:
        monkeypatch.setattr(journal_tables, "_REBUILT_UP_TO_BYTES", 0)
    of_version_1(path)
    journal = Journal(path)
    recovered = journal.recover()
    assert {key: str(workload.phase) for key, workload in recovered.state.workloads.items()} == {
        "w1": "starting",
        "w2": "running",
        "w3": "queued",
    }
    assert recovered.leases == {"w1": ProcessId(7, 8)}
    assert recovered.history == [{"sequence": 1, "event": "started"}]
    journal.begin(recovered.state, "boot-1", recovered.leases)
    Recording(journal).play()
    journal.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (journal_tables.VERSION,)
        assert database.execute("PRAGMA auto_vacuum").fetchone() == (2 if small else 0,)
    assert main(["replay", str(path)]) == 0
    assert "all decided as they were then" in capsys.readouterr().out


def test_sentences_of_an_earlier_version_are_taken_up_and_replayed(path, capsys):
    of_version_1(path)
    with closing(sqlite3.connect(path)) as database:
        workloads = [decode(json.loads(row[0])) for row in database.execute("SELECT value FROM records")]
    state = decode(json.loads(last_snapshot(path)))
    as_told = {w.id: sentence(w.last_reason, Names.of(state)) for w in workloads if isinstance(w, Workload)}
    with_sentences(path, state)
    assert b'"Why"' not in path.read_bytes()
    recovered = recovered_from(path)
    assert {key: w.last_reason.text for key, w in recovered.state.workloads.items()} == as_told
    assert main(["replay", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "all decided as they were then" in shown
    assert all(text in shown for text in as_told.values())


def last_snapshot(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT state FROM snapshots ORDER BY sequence DESC LIMIT 1").fetchone()[0]


def test_what_is_decided_otherwise_today_is_said(path, capsys):
    of_version_1(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE events SET commands = replace(commands, '\"gpu-needed\"', '\"idle\"')")
        database.execute("UPDATE events SET commands = replace(commands, '\"numbers\": []', '\"numbers\": [60.0]')")
    database.close()
    assert main(["replay", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "decided otherwise today" in shown
    assert "idle for 1 min" in shown
