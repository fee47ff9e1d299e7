"""What a journal keeps of the past: by what is in use, steps and history each within a share of their own."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing

import pytest

from journals import Recording, counts, dull_steps, of_version_1
from left_out import thinned
from nls_scheduler.cli import main
from nls_scheduler.daemon import journal as journal_module
from nls_scheduler.daemon import journal_retention, journal_tables
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.journal_retention import Retention, used_bytes
from nls_scheduler.daemon.journal_tables import connected

KIB = 1024


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.db"


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """As a long time with few steps: snapshots more often, pages given back sooner."""
    monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 50)
    monkeypatch.setattr(journal_retention, "_PAGES_KEPT_FREE", 8)


def in_use(path):
    with closing(sqlite3.connect(path)) as database:
        return used_bytes(database)


def test_what_was_larger_once_does_not_cost_the_history_its_days(path):
    with closing(Journal(path, Retention(size_bytes=4096 * KIB))) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 1000, entry_bytes=1500)
    larger = path.stat().st_size
    # From here on its bound is lower than the file has ever been.
    with closing(Journal(path, Retention(size_bytes=2048 * KIB))) as journal:
        journal.begin(node.state, "boot-1")
        for _ in range(4):
            dull_steps(journal, node, 250, entry_bytes=500)
            assert counts(path)["history"] >= 350, "a quarter of 2 MiB has room for more"
    assert in_use(path) <= 2200 * KIB
    assert path.stat().st_size < larger


def test_many_entries_of_the_history_cost_no_step_and_many_steps_no_entry(path):
    with closing(Journal(path, Retention(size_bytes=512 * KIB))) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 400, entry_bytes=2000)
        before = counts(path)
        assert before["events"] >= 400, "none of them has gone"
        assert before["history"] < 200
        dull_steps(journal, node, 5000)
        after = counts(path)
        assert after["events"] < 5000
        assert after["history"] >= before["history"] - 100, "only what was over its share at the last look"


def test_a_page_that_comes_free_goes_back_to_the_disk(path):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 500, entry_bytes=2000)
    large = path.stat().st_size
    with closing(Journal(path, Retention(size_bytes=128 * KIB))) as journal:
        journal.begin(node.state, "boot-1")
        dull_steps(journal, node, 101)
    assert path.stat().st_size < large / 2


def test_a_large_journal_of_version_1_keeps_its_size_and_its_days(path, monkeypatch):
    monkeypatch.setattr(journal_tables, "_REBUILT_UP_TO_BYTES", 0)
    of_version_1(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE gone AS SELECT randomblob(2000000)")
        database.execute("DROP TABLE gone")
    size = path.stat().st_size
    with closing(Journal(path, Retention(age_s=1e12, size_bytes=1024 * KIB))) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 300, entry_bytes=100)
    assert path.stat().st_size == size
    assert counts(path)["events"] > 300
    assert counts(path)["history"] == 301


def test_what_is_trimmed_at_once_is_bounded_and_the_rest_can_be_replayed_at_any_time(path, monkeypatch, capsys):
    monkeypatch.setattr(journal_retention, "_ROWS_AT_ONCE", 120)
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 600, entry_bytes=10)
    kept = counts(path)
    with closing(connected(path)) as database:
        for _ in range(8):
            with database:
                journal_retention.trim(database, Retention(age_s=-1.0), time.time())
            before, kept = kept, counts(path)
            assert before["events"] - kept["events"] <= 120
            assert before["history"] - kept["history"] <= 120
            assert main(["replay", str(path)]) == 0
            assert "all decided as they were then" in capsys.readouterr().out
    assert kept["events"] <= 50
    assert kept["history"] == 0


def damaged_again_and_again(path, times, monkeypatch, size_bytes=2**20):
    """So many daemons each find a damaged journal; the copies, the newest last."""
    for number in range(times):
        monkeypatch.setattr("time.strftime", lambda _, number=number: f"20260314T09265{number}")
        path.write_bytes(b"this is no database at all" * 4000)
        Journal(path, Retention(size_bytes=size_bytes)).close()
    return sorted(copy.name for copy in path.parent.glob("journal.db.damaged-*"))


def test_of_damaged_copies_the_newest_three_stay(path, monkeypatch):
    names = [f"journal.db.damaged-20260314T09265{number}" for number in (3, 4, 5)]
    assert damaged_again_and_again(path, 6, monkeypatch) == names


def test_damaged_copies_take_no_more_than_a_journal_but_the_newest_always_stays(path, monkeypatch):
    assert len(damaged_again_and_again(path, 4, monkeypatch, 250_000)) == 2
    assert damaged_again_and_again(path, 4, monkeypatch, 1) == ["journal.db.damaged-20260314T092653"]


DAY_S = 86400
A_YEAR_S = 366 * DAY_S


def test_a_damaged_copy_that_is_said_to_be_kept_is_whatever_the_clock_says(path, monkeypatch):
    damaged_again_and_again(path, 3, monkeypatch)
    monkeypatch.setattr("time.strftime", lambda _: "20260313T092654")  # set back by a day
    Journal(path).close()
    path.write_bytes(b"not a journal")
    with closing(Journal(path)) as journal:
        assert str(journal.set_aside) in journal.begun_anew
        assert journal.set_aside.exists()


@pytest.fixture
def clock(monkeypatch):
    """How far the wall clock is set wrong: in a daemon's life, and from its beginning."""
    real, offset = time.time, [0.0]
    monkeypatch.setattr("time.time", lambda: real() + offset[0])
    return offset


@pytest.mark.parametrize(
    "jump_s",
    thinned([A_YEAR_S, DAY_S, -A_YEAR_S, -DAY_S, 200 * A_YEAR_S, 15 * DAY_S, -1.7e9], 2, "jumps of the wall clock"),
)
@pytest.mark.parametrize("restarted", [False, True])
def test_a_wall_clock_that_jumps_forth_and_back_costs_no_history_and_no_step(path, clock, capsys, jump_s, restarted):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 120, entry_bytes=10)
        if not restarted:
            for offset_s in (jump_s, 0.0):
                clock[0] = offset_s
                dull_steps(journal, node, 120, entry_bytes=10)
    for offset_s in (jump_s, 0.0) if restarted else (0.0,):
        clock[0] = offset_s
        with closing(Journal(path)) as journal:
            journal.recover()
            journal.begin(node.state, "boot-1")
            dull_steps(journal, node, 120, entry_bytes=10)
    kept = counts(path)
    all_of_them = 360 if restarted else 480
    assert kept["history"] == all_of_them
    assert kept["events"] > all_of_them
    assert main(["replay", str(path)]) == 0
    assert "all decided as they were then" in capsys.readouterr().out
    assert main(["replay", str(path), "--since", "1h"]) == 0
    shown = re.search(r"(\d+) steps", capsys.readouterr().out)
    assert shown is not None
    assert int(shown[1]) >= 240, "what the clock showed an hour ago at most, on both sides of the jump"


def test_what_is_older_than_its_age_goes_when_no_clock_jumps(path, monkeypatch, clock):
    with closing(Journal(path)) as journal:
        clock[0] = -20.0 * DAY_S
        node = Recording(journal).play()
        dull_steps(journal, node, 120, entry_bytes=10)
        clock[0] = 0.0
        dull_steps(journal, node, 60, entry_bytes=10)
    with closing(Journal(path)) as journal:
        journal.begin(node.state, "boot-1")
    assert counts(path)["history"] == 60
    assert counts(path)["events"] < 120
