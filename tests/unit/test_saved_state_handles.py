"""Locks that are free, what is made of them, files that are read, and the streams that every process has."""

from __future__ import annotations

import gzip
import io
import queue
import sys
import threading

import pytest

from saved_state_roundtrip import Roundtrip, restore, saved, taken


def test_free_locks_and_what_is_made_of_them_come_back_and_work():
    lock = threading.Lock()
    before = {
        "lock": lock,
        "same": [lock],
        "again": threading.RLock(),
        "event": threading.Event(),
        "condition": threading.Condition(lock),
        "places": threading.BoundedSemaphore(3),
        "barrier": threading.Barrier(2),
    }
    before["event"].set()
    before["places"].acquire()
    result = Roundtrip(before)
    assert not result.unsaved
    assert not result.report.missing
    assert result["lock"] is result["same"][0]
    assert result["event"].is_set()
    with result["condition"]:
        assert result["lock"].locked()
    with result["again"], result["again"]:
        pass
    assert [result["places"].acquire(blocking=False) for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("make", [queue.Queue, queue.LifoQueue, queue.PriorityQueue, queue.SimpleQueue])
def test_queues_come_back_with_what_is_in_them_and_their_objects_stay_shared(make):
    before = make()
    item = (2, [5])
    for put in (item, (1, [4])):
        before.put(put)
    result = Roundtrip({"line": before, "item": item})
    assert not result.unsaved
    assert before.qsize() == result["line"].qsize() == 2
    taken_out = [result["line"].get(timeout=5) for _ in range(2)]
    assert taken_out == [before.get() for _ in range(2)]
    assert any(one is result["item"] for one in taken_out)
    with pytest.raises(queue.Empty):
        result["line"].get_nowait()


def test_what_cells_see_of_thread_local_data_comes_back_and_stays_shared():
    before = threading.local()
    before.mine, before.itself = [1], before
    other = threading.Thread(target=setattr, args=(before, "theirs", 2))
    other.start()
    other.join()
    result = Roundtrip({"values": before, "mine": before.mine, "empty": threading.local()})
    assert not result.unsaved
    values = result["values"]
    assert vars(values) == {"mine": [1], "itself": values}
    assert values.mine is result["mine"]
    assert not vars(result["empty"])


def test_who_waits_for_a_queue_or_has_a_lock_is_named_and_not_waited_for():
    released = threading.Event()
    lock = threading.RLock()
    held = threading.Event()

    def hold():
        with lock:
            held.set()
            released.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(30)
        assert Roundtrip({"lock": lock}).unsaved == {"lock": "a lock that is taken cannot be saved"}
    finally:
        released.set()
        thread.join()
    assert not Roundtrip({"lock": lock}).unsaved
    assert Roundtrip({"lock": taken(threading.RLock())}).unsaved


@pytest.mark.parametrize("mode", ["r", "rb"])
def test_a_file_that_is_read_goes_on_where_it_was(tmp_path, monkeypatch, mode):
    monkeypatch.chdir(tmp_path)
    name = "lines"
    path = tmp_path / name
    path.write_text("first\nsécond\nthird\n", encoding="utf-8")
    with open(name, mode, **({} if "b" in mode else {"encoding": "utf-8", "errors": "replace"})) as file:  # noqa: PTH123
        file.readline()
        result = Roundtrip({"file": file, "same": file})
        assert not result.unsaved
        with result["file"] as again:
            assert again is result["same"]
            assert (again.name, again.mode, type(again)) == (name, mode, type(file))
            assert getattr(again, "errors", None) == getattr(file, "errors", None)
            assert again.tell() == file.tell()
            assert again.read() == file.read()


def test_a_file_that_has_changed_is_named(tmp_path):
    path = tmp_path / "lines"
    path.write_text("first\n")
    with path.open() as file, saved({"file": file, "other": 1}) as (descriptors, _):
        path.write_text("first\nsecond\n")
        report = restore(descriptors, {})
    assert report.restored == ("other",)
    assert [(lost.name, "has changed since it was opened" in lost.reason) for lost in report.missing] == [
        ("file", True)
    ]


@pytest.mark.parametrize("content", ["a\r\nb\n", None])
def test_a_file_is_named_whose_lines_or_place_nobody_knows(tmp_path, content):
    path = tmp_path / "lines"
    path.write_bytes((content or "a\nb\n").encode())
    with path.open(newline="") as file:
        if content is None:
            path.unlink()
        assert "an open file" in Roundtrip({"file": file}).unsaved["file"]


@pytest.mark.parametrize("mode", ["r", "w", "a", "r+", "rb", "wb", "ab", "rb+", "x", "xb"])
def test_a_file_that_is_closed_comes_back_closed(tmp_path, mode):
    """As `with open(path) as file:` leaves it under its name."""
    path = tmp_path / "lines"
    if "x" not in mode:
        path.write_text("a\n")
    with open(path, mode, **({} if "b" in mode else {"encoding": "latin-1"})) as file:  # noqa: PTH123 - as users do
        pass
    path.write_text("what others have written since\n")
    result = Roundtrip({"file": file, "same": file})
    assert not result.unsaved
    again = result["file"]
    assert again is result["same"]
    assert again.closed
    assert (again.name, again.mode, type(again)) == (file.name, file.mode, type(file))
    assert getattr(again, "encoding", None) == getattr(file, "encoding", None)
    with pytest.raises(ValueError, match="closed file"):
        again.fileno()
    assert path.read_text() == "what others have written since\n"


@pytest.mark.parametrize("mode", ["rb", "wb"])
def test_a_file_without_a_buffer_that_is_closed_comes_back_so(tmp_path, mode):
    (tmp_path / "lines").touch()
    with open(tmp_path / "lines", mode, buffering=0) as file:  # noqa: PTH123 - as users do
        pass
    again = Roundtrip({"file": file})["file"]
    assert (again.closed, again.name, again.mode, type(again)) == (True, file.name, file.mode, io.FileIO)


def test_standard_streams_are_those_of_the_process():
    result = Roundtrip({"out": sys.stdout, "held": [sys.stderr], "log": io.StringIO("x")})
    assert not result.unsaved
    assert result["out"] is sys.stdout
    assert result["held"][0] is sys.stderr


def test_a_file_that_is_unpacked_while_it_is_read_is_named(tmp_path):
    with gzip.open(tmp_path / "lines.gz", "wt") as file:
        file.write("a\n")
    with gzip.open(tmp_path / "lines.gz") as file:
        assert Roundtrip({"file": file}).unsaved == {"file": "it holds an open file"}
        lines, memory = io.TextIOWrapper(file), io.TextIOWrapper(io.BytesIO(b"a"))
        assert Roundtrip({"lines": lines, "memory": memory}).unsaved == dict.fromkeys(
            ("lines", "memory"), "an open file cannot be saved"
        )
