"""`nls replay` of a part: what is not shown is neither read nor decided again."""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest

from journals import Recording, dull_steps
from nls_scheduler.bundle.contents import Parts
from nls_scheduler.cli import exit_codes, main
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.daemon import journal as journal_module
from nls_scheduler.daemon import journal_tables
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.journal_retention import Retention
from nls_scheduler.daemon.journal_steps import read_steps

MIDNIGHT = 1_773_446_400  # 2026-03-14


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A journal of some hours, a step in each minute: dull ones, a story with three workloads, dull ones again."""
    clock = itertools.count(MIDNIGHT, 20)  # it is looked at for steps, snapshots and entries
    monkeypatch.setattr(journal_tables, "time", SimpleNamespace(time=lambda: float(next(clock))))
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 20)
    path = tmp_path / "journal.db"
    with closing(Journal(path, Retention(age_s=1e12))) as journal:
        empty = SimulatedNode()
        journal.begin(empty.state, "boot-1")
        dull_steps(journal, empty, 100)
        node = Recording(journal).play()
        for workload in tuple(node.state.workloads):
            other = SimulatedNode(state=node.state)
            other.release(workload)
            event, before = other.history[-1][0], node.state
            node.state, commands = step(before, event)
            journal.record(event, before, node.state, commands)
        journal.begin(empty.state, "boot-1")
        dull_steps(journal, empty, 100)
    return path


def change(path, statement):
    with closing(sqlite3.connect(path)) as database, database:
        assert database.execute(statement).rowcount > 0


def replayed(capsys, *arguments):
    """The lines that it prints, without the last, and that one."""
    assert main(["replay", *map(str, arguments)]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    return lines, last


def shown_times(lines):
    return [line[:19] for line in lines if line.startswith("2026")]


@pytest.mark.parametrize("since", ["10min", "2026-03-14T01:05", "2026-03-14T02:05:00+01:00"])
def test_only_the_steps_since_then_are_shown_and_nothing_before_their_snapshot_is_read(path, capsys, since):
    everything, _ = replayed(capsys, path)
    change(path, "UPDATE events SET event = 'damaged' WHERE sequence <= 100")
    some, last = replayed(capsys, path, "--since", since)
    assert 0 < len(shown_times(some)) < len(shown_times(everything)) / 2
    assert everything[-len(some) :] == some
    assert last == f"{len(shown_times(some))} steps, all decided as they were then."


def test_a_journal_that_is_simulated_tells_how_much_of_it_has_been_read(path, capsys):
    main(["simulate", "--from-journal", str(path), "--node", "N"])  # in which nothing is that could be played
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("nls: reading the journal: ")]
    parts = [int(line.split()[4]) for line in told]
    assert parts == sorted(set(parts))
    assert 5 <= len(parts) <= 10
    assert 0 < parts[0] < 25
    assert 75 < parts[-1] < 100


def test_what_is_before_all_that_is_kept_leaves_everything(path, capsys):
    assert replayed(capsys, path, "--since", "2020-01-01") == replayed(capsys, path)


def test_of_a_workload_only_the_parts_are_read_that_can_tell_of_it(path, capsys):
    before, _ = replayed(capsys, path, "--workload", "w1")
    change(path, "UPDATE events SET event = 'damaged' WHERE sequence <= 80")
    after, last = replayed(capsys, path, "--workload", "w1")
    assert before == after
    assert len(shown_times(after)) >= 3
    assert "all decided as they were then" in last


@pytest.mark.parametrize("name", ["nobody", "w"])
def test_of_one_that_was_never_there_that_is_said(path, capsys, name):
    """`w` is in names of others, and in words of the journal."""
    assert main(["replay", str(path), "--workload", name]) == exit_codes.USAGE
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"nls: No step of {path} changed a workload {name!r}.\n"


def test_a_path_that_nobody_can_look_up_is_told_in_one_sentence(capsys):
    assert main(["replay", "x" * 300]) == exit_codes.USAGE
    assert capsys.readouterr().err.endswith("cannot be read as a journal: File name too long.\n")


@pytest.mark.parametrize(
    "set_back", [(120, 125), (95, 150), (60, 199)], ids=["a moment", "across snapshots", "till the end"]
)
def test_where_the_clock_was_set_back_all_is_shown_from_the_first_step_since_then(path, capsys, set_back):
    first, last = set_back
    change(path, f"UPDATE events SET wall = wall - 86400 WHERE sequence BETWEEN {first} AND {last}")
    change(path, f"UPDATE snapshots SET wall = wall - 86400 WHERE sequence BETWEEN {first} AND {last}")
    since_then = shown_times(replayed(capsys, path)[0])[50:]
    some, told = replayed(capsys, path, "--since", since_then[0])
    assert shown_times(some) == since_then
    assert told == f"{len(since_then)} steps, all decided as they were then."


@pytest.mark.parametrize("set_back", [(1, 190), (150, 999), (190, 195)], ids=["the first", "the last", "a moment"])
def test_a_bundle_has_no_hole_where_the_clock_was_set_back(path, set_back):
    change(path, f"UPDATE events SET wall = wall - 86400 WHERE sequence BETWEEN {set_back[0]} AND {set_back[1]}")
    walls = [wall for *_, wall in read_steps(path)]
    snapshot, *others = steps = Parts(path.with_name("nls.sock"), None, {}, ())._steps()
    assert isinstance(snapshot[0], NodeState)
    assert [wall for *_, wall in steps] == walls[-len(steps) :]
    assert all(commands is not None for *_, commands, _ in others)
    assert walls[-1] - 3600 <= max(wall for *_, wall in steps[:21])


def test_what_is_no_time_is_refused_with_an_example(path, capsys):
    with pytest.raises(SystemExit) as refused:
        main(["replay", str(path), "--since", "yesterday"])
    assert refused.value.code == exit_codes.USAGE
    assert "2026-03-14T09:26" in capsys.readouterr().err


def test_who_reads_slowly_does_not_keep_the_daemon_from_emptying_its_log(path):
    with closing(Journal(path, Retention(age_s=1e12))) as journal:
        node = SimulatedNode()
        journal.begin(node.state, "boot-2")
        steps = read_steps(path)
        next(steps)
        dull_steps(journal, node, 30)
        with closing(sqlite3.connect(path)) as database:
            busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not busy
        assert sum(1 for _ in steps) > 100


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshots SET state = '[]'",
        "UPDATE snapshots SET state = 5",
        "UPDATE events SET wall = 1e308",
        "UPDATE events SET wall = 'then'",
        "UPDATE events SET event = '" + "[" * 100_000 + "'",
        "UPDATE events SET event = '{}'",
        "UPDATE events SET commands = '5'",
    ],
    ids=lambda damage: damage[:40],
)
def test_a_journal_that_is_damaged_is_told_in_one_sentence(path, capsys, damage):
    change(path, damage)
    for arguments in ((), ("--json",)):
        assert main(["replay", str(path), *arguments]) == exit_codes.USAGE
        assert "cannot be read as a journal" in capsys.readouterr().err
