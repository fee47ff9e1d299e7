"""A journal whose files somebody else deletes, cuts or replaces while the daemon runs, on real files."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import sqlite3
from contextlib import closing

import pytest

from journals import Recording, dull_steps
from nls_scheduler.core.model.events import MemorySampled
from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.daemon import journal as journal_module
from nls_scheduler.daemon import journal_tables, state_folder
from nls_scheduler.daemon.journal import Journal
from nls_scheduler.daemon.journal_files import JournalFiles

FILES = ("journal.db", "journal.db-wal", "journal.db-shm")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "journal.db"


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Whoever does harm has done it."""
    monkeypatch.setattr(journal_module, "HARM_ENDS_S", 0.0)


def delete(*names):
    def act(folder):
        for name in names:
            (folder / name).unlink()

    return act


def cut(*names, to=0):
    def act(folder):
        for name in names:
            os.truncate(folder / name, to)

    return act


def delete_the_folder(folder):
    shutil.rmtree(folder)


def put_another_in_its_place(folder):
    with closing(Journal(folder / "other.db")) as other:
        Recording(other)
    (folder / "other.db").replace(folder / "journal.db")


def copy_another_over_it(folder):
    with closing(Journal(folder / "other.db")) as other:
        Recording(other).play()
        for _ in range(200):
            other.record_history({"sequence": 1, "event": os.urandom(2000).hex()})
    shutil.copyfile(folder / "other.db", folder / "journal.db")


HARM = {
    "all deleted": (delete(*FILES), "deleted"),
    "deleted": (delete("journal.db"), "deleted"),
    "log deleted": (delete("journal.db-wal"), "deleted"),
    "index deleted": (delete("journal.db-shm"), "deleted"),
    "folder deleted": (delete_the_folder, "deleted"),
    "all emptied": (cut(*FILES), "cut"),
    "emptied": (cut("journal.db"), "cut"),
    "cut": (cut("journal.db", to=100), "cut"),
    "log emptied": (cut("journal.db-wal"), "cut"),
    "index emptied": (cut("journal.db-shm"), "cut"),
    "replaced": (put_another_in_its_place, "replaced"),
    "overwritten": (copy_another_over_it, "replaced"),
}


@pytest.fixture(params=HARM)
def harmed(request, path):
    """A journal with a story in it whose files are no longer what they were, its node, and what is to be said."""
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        journal.record_lease(WorkloadId("w1"), ProcessId(7, 8))
        journal.record_history({"sequence": 1, "event": "started"})
        act, said = HARM[request.param]
        act(path.parent)
        yield journal, node, said


def known_again(journal):
    """What a daemon finds that starts after this one was killed."""
    with closing(Journal(journal.path)) as next_one:
        found = next_one.recover()
        assert next_one.begun_anew is None
        return found


def test_the_next_daemon_knows_everything_although_the_journal_was_harmed(harmed, caplog):
    journal, node, said = harmed
    dull_steps(journal, node, 1)
    assert journal.trouble is None
    assert f"{said}: the journal was written anew from memory" in journal.begun_anew
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [journal.begun_anew]
    found = known_again(journal)
    assert found.state.workloads == node.state.workloads
    assert found.state.gpus == node.state.gpus
    assert found.leases == {"w1": ProcessId(7, 8)}
    assert found.history == [{"sequence": 1, "event": "started"}]
    assert found.boot_id == "boot-1"


def test_it_is_noticed_by_a_sample_that_is_not_even_kept(harmed):
    journal, node, _ = harmed
    journal.record(MemorySampled(node.state.at, {}), node.state, node.state, ())
    assert journal.begun_anew is not None
    assert known_again(journal).state.workloads == node.state.workloads


def test_so_is_it_by_an_entry_and_by_who_looks_after_a_workload(harmed):
    journal, _, _ = harmed
    journal.record_history({"sequence": 2, "event": "moved"})
    journal.record_lease(WorkloadId("w2"), ProcessId(9, 10))
    found = known_again(journal)
    assert [entry["sequence"] for entry in found.history] == [1, 2]
    assert found.leases == {"w1": ProcessId(7, 8), "w2": ProcessId(9, 10)}


def test_a_daemon_that_ends_without_having_noticed_ends_well(harmed):
    journal, _, _ = harmed
    journal.close()


def test_what_lay_there_instead_is_kept(path):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        put_another_in_its_place(path.parent)
        dull_steps(journal, node, 1)
        (aside,) = path.parent.glob("journal.db.damaged-*")
        assert str(aside) in journal.begun_anew
    with closing(Journal(aside)) as other:
        assert other.recover().boot_id == "boot-1"


def test_a_link_in_its_place_leads_nowhere_and_no_copy_is_open_to_others(path):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        shutil.copyfile(path, path.with_name("elsewhere"))
        path.unlink()
        path.symlink_to("elsewhere")
        dull_steps(journal, node, 1)
        assert path.is_file()
        assert not path.is_symlink()
        path.chmod(0o666)
    path.write_bytes(b"this is no database at all" * 100)
    with closing(Journal(path)) as journal:
        assert journal.set_aside.stat().st_mode & 0o777 == 0o600
    state_folder.check(path.parent)


def a_fifo(place):
    os.mkfifo(place)


def a_socket(place):
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(place))


def a_directory(place):
    place.mkdir()


@pytest.mark.parametrize("made", [a_fifo, a_socket, a_directory])
def test_what_is_no_file_is_not_kept_and_the_next_daemon_starts(path, made):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        path.unlink()
        made(path)
        dull_steps(journal, node, 1)
        assert journal.begun_anew.endswith("was replaced: the journal was written anew from memory.")
        assert journal.trouble is None
        state_folder.check(path.parent)
        assert known_again(journal).state.workloads == node.state.workloads


@pytest.mark.parametrize("name", FILES)
def test_a_journal_that_cannot_be_written_anew_is_not_said_to_be(path, name, caplog):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        (path.parent / name).unlink()
        (path.parent / name / "somebody's").mkdir(parents=True)
        dull_steps(journal, node, 1)
        assert journal.begun_anew is None
        assert "cannot be written ([Errno" in journal.trouble
        assert f"{path.parent / name} was replaced" in caplog.text
        assert "anew" not in caplog.text
        shutil.rmtree(path.parent / name)
        journal._retry_at = 0.0
        dull_steps(journal, node, 1)
        assert journal.trouble is None
        assert known_again(journal).state.workloads == node.state.workloads


def test_a_folder_that_takes_no_new_journal_is_told_of_as_it_is(path, caplog, monkeypatch):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        path.unlink()
        with monkeypatch.context() as full:

            def no_room(place):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            full.setattr(journal_module.tables, "connected", no_room)
            dull_steps(journal, node, 1)
        assert journal.begun_anew is None
        assert "No space left" in journal.trouble
        assert "was deleted" in caplog.text
        assert "anew" not in caplog.text


def test_who_deletes_it_again_and_again_has_the_daemon_go_on_in_memory_for_a_while(path, monkeypatch):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        for _ in range(2):
            path.unlink()
            dull_steps(journal, node, 1)
        assert "deleted again" in journal.trouble
        assert not path.exists()
        monkeypatch.setattr(journal, "_retry_at", 0.0)
        dull_steps(journal, node, 1)
        assert journal.trouble is None
        assert known_again(journal).state.workloads == node.state.workloads


def test_nothing_is_written_while_somebody_is_still_at_the_files(path, monkeypatch):
    monkeypatch.setattr(journal_module, "HARM_ENDS_S", 3600.0)
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        path.unlink()
        journal.record_lease(WorkloadId("w1"), ProcessId(7, 8))
        cut("journal.db-wal", "journal.db-shm")(path.parent)
        dull_steps(journal, node, 1)
        assert not path.exists()
        monkeypatch.setattr(journal, "_harmed", ("it was deleted", 0.0))
        dull_steps(journal, node, 1)
        assert journal.trouble is None
        found = known_again(journal)
        assert found.state.workloads == node.state.workloads
        assert found.leases == {"w1": ProcessId(7, 8)}


def test_its_own_checkpoints_and_its_own_shrinking_are_no_harm(path):
    with closing(Journal(path)) as journal:
        node = Recording(journal).play()
        dull_steps(journal, node, 1500, entry_bytes=2000)
        assert journal.begun_anew is None


def test_nobody_else_can_open_a_new_journal_not_even_for_a_moment(path, monkeypatch):
    modes, connect = [], sqlite3.connect

    def looked_at(name, **options):
        modes.append(name.stat().st_mode & 0o777)
        return connect(name, **options)

    monkeypatch.setattr(journal_tables.sqlite3, "connect", looked_at)
    before = os.umask(0o022)
    try:
        with closing(Journal(path)) as journal:
            Recording(journal).play()
            modes += [(path.parent / name).stat().st_mode & 0o777 for name in FILES]
    finally:
        os.umask(before)
    assert modes == [0o600] * 4


@pytest.mark.parametrize("harm", [delete(*FILES), delete("journal.db-wal"), put_another_in_its_place])
def test_harm_between_a_write_and_the_look_after_it_is_found_with_the_next(tmp_path, harm):
    files = JournalFiles(tmp_path / "journal.db")
    for name in FILES:
        (tmp_path / name).write_bytes(b"content")
    files.remember()
    harm(tmp_path)
    files.remember()
    assert files.harm() is not None


def test_a_journal_that_is_deleted_before_it_was_seen_is_missed(tmp_path):
    files = JournalFiles(tmp_path / "journal.db")
    files.remember()
    assert files.harm() == f"{tmp_path / 'journal.db'} was deleted"
