"""A saved state survives whatever ends or disturbs a save; what is damaged is refused, and said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nls_jupyter import saved_state
from nls_jupyter.saved_state import SavedStateDamagedError, Saver, arena, blobs, graph, other_threads, store
from nls_jupyter.saved_state.window import Window
from saved_state_roundtrip import WITHIN_S, Roundtrip, restore
from waiting import wait_until

MIB = 1 << 20


def noise(size_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


class KilledError(BaseException):
    """In the place of SIGKILL: nothing more is written after it."""


class DyingAfter:
    """Lets so many changes of the files through, the last one by half, and then none."""

    def __init__(self, monkeypatch, steps):
        self.left = steps
        for owner, name in (
            (arena, "_pwrite"),
            (Window, "write"),
            (Window, "allocate_huge"),
            (arena.Arena, "_punch"),
            (arena.os, "ftruncate"),
        ):
            monkeypatch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, change):
        def maybe(*args):
            self.left -= 1
            if self.left > 0:
                return change(*args)
            if self.left == 0:
                change(*(arg[: arg.nbytes // 2] if isinstance(arg, memoryview) else arg for arg in args))
            raise KilledError

        return maybe


def states():
    """A namespace before and after some cell."""
    shared = [1, 2]
    before = {"a": noise(3 * MIB), "b": noise(100, 1), "shared": shared, "holder": {"s": shared}}
    after = {"a": before["a"].copy(), "b": noise(5 * MIB, 2), "shared": [3], "new": "text" * 2000}
    after["a"][MIB + 5] ^= 1
    after["view"] = after["a"][2:]
    return before, after


def same(one, other):
    return one.keys() == other.keys() and all(
        np.array_equal(value, other[name]) if isinstance(value, np.ndarray) else value == other[name]
        for name, value in one.items()
    )


def test_a_save_that_is_killed_at_any_step_leaves_the_state_before_or_the_new_one_whole(monkeypatch):
    before, after = states()
    outcomes = []
    for steps in range(1, 100):
        saver = Saver()
        if steps % 2:  # with memory that is there to be overwritten, and without
            saver.save({**before, "a": noise(4 * MIB, 3)}, cell="long before")
        saver.save(before, cell="before")
        copies = [os.dup(fd) for fd in saver.descriptors()]
        killed = False
        with monkeypatch.context() as patch:
            DyingAfter(patch, steps)
            try:
                saver.save(after, cell="after")
            except KilledError:
                killed = True
        saver.close()
        namespace = {}
        report = restore(copies, namespace)
        assert not report.missing
        cell = saved_state.read_manifest(copies).cell
        assert same(namespace, before if cell == "before" else after), steps
        # What the killed process left is given back, and the next save works.
        with contextlib.closing(Saver()) as second:
            second.restore(copies, {})
            second.save(after, cell="again")
            assert os.fstat(copies[0]).st_blocks * 512 < 11 * MIB + (3 * MIB)
        outcomes.append(cell)
        for copy in copies:
            os.close(copy)
        if not killed:
            break
    assert outcomes[0] == "before"
    assert outcomes[-1] == "after"
    assert not killed
    assert len(outcomes) > 8


def test_a_restore_that_is_killed_at_any_step_can_be_tried_again(monkeypatch):
    before, after = states()
    with contextlib.closing(Saver()) as saver:
        saver.save(before, cell=None)
        saver.save(after, cell=None)
        for steps in range(1, 20):
            with monkeypatch.context() as patch, contextlib.closing(Saver()) as dying:
                DyingAfter(patch, steps)
                with contextlib.suppress(KilledError):
                    dying.restore(saver.descriptors(), {})
            namespace = {}
            assert not restore(saver.descriptors(), namespace).missing
            assert same(namespace, after)


_SAVES_FOR_EVER = """
import sys, numpy as np
from nls_jupyter.saved_state import Saver
import nls_jupyter.saved_state.arena as arena
arena.os.memfd_create = lambda *_: int(sys.argv[1])
saver = Saver()
for number in range(10**9):
    saver.save({"number": number, "array": np.full(1 << 20, number, np.int64)}, cell=str(number))
    print(number, flush=True)
"""


def test_a_process_killed_in_earnest_leaves_one_moment_whole():
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for round_number in range(3):
        fd = os.memfd_create("test")
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVES_FOR_EVER, str(fd)], pass_fds=[fd], env=environment, stdout=subprocess.PIPE
        )
        try:
            for _ in range(3 + round_number):
                assert process.stdout.readline()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(WITHIN_S)
            process.stdout.close()
        namespace = {}
        assert not restore([fd], namespace).missing
        assert namespace["number"] >= 2 + round_number
        assert (namespace["array"] == namespace["number"]).all()
        os.close(fd)


class TestDamage:
    def flip(self, fd, needle):
        content = bytearray(os.fstat(fd).st_size)
        os.preadv(fd, [content], 0)
        position = content.find(needle)
        assert position > 0
        os.pwrite(fd, bytes([content[position] ^ 1]), position)

    def saved(self):
        names = {
            "large": noise(3 * MIB),
            "small": np.frombuffer(b"a small array's content", np.uint8).copy(),
            "text": ["text that is found"],
            "other": [1],
        }
        # Large enough for a stream of its own.
        names["many"] = [{"n": f"found in many {n}"} for n in range(2000)]
        names["view"] = names["large"][5:]
        saver = Saver()
        saver.save(names, cell=None)
        return names, saver

    def test_a_damaged_array_takes_only_what_shows_it(self):
        names, saver = self.saved()
        with contextlib.closing(saver):
            self.flip(saver.descriptors()[0], names["large"][2 * MIB : 2 * MIB + 40].tobytes())
            namespace = {}
            report = restore(saver.descriptors(), namespace)
        assert set(namespace) == {"small", "text", "other", "many"}
        assert {missing.name: missing.reason for missing in report.missing} == dict.fromkeys(
            ("large", "view"), "its part of the saved state is damaged"
        )

    def test_damaged_small_arrays_and_pickles_are_named_too(self):
        _, saver = self.saved()
        with contextlib.closing(saver):
            self.flip(saver.descriptors()[0], b"a small array's")
            self.flip(saver.descriptors()[0], b"found in many 1999")
            namespace = {}
            report = restore(saver.descriptors(), namespace)
        assert set(namespace) == {"large", "view", "text", "other"}
        assert {missing.name for missing in report.missing} == {"small", "many"}
        assert all("damaged" in missing.reason for missing in report.missing)

    def test_a_damaged_index_is_refused(self):
        _, saver = self.saved()
        with contextlib.closing(saver):
            self.flip(saver.descriptors()[0], b'"manifest"')
            with pytest.raises(SavedStateDamagedError, match="index is damaged"):
                restore(saver.descriptors(), {})
            with pytest.raises(SavedStateDamagedError):
                saved_state.read_manifest(saver.descriptors())

    def test_one_that_was_cut_off_is_refused_or_named(self):
        _, saver = self.saved()
        with contextlib.closing(saver):
            whole = os.fstat(saver.descriptors()[0]).st_size
            for size in (0, 10, 5000, whole // 2, whole - 1):
                copy = os.memfd_create("cut off")
                os.sendfile(copy, saver.descriptors()[0], 0, whole)
                os.ftruncate(copy, size)
                with pytest.raises(SavedStateDamagedError):
                    restore([copy], {})
                os.close(copy)

    def test_a_spill_file_that_is_not_there_is_named(self, tmp_path):
        room = saved_state.MachineRoom(tmp_path, memory_limit_bytes=MIB)
        with contextlib.closing(Saver(room)) as saver:
            saver.save({"large": noise(8 * MIB), "small": [1]}, cell=None)
            namespace = {}
            report = restore(saver.descriptors()[:1], namespace)
        assert {missing.name for missing in report.missing} >= {"large"}
        assert "large" not in namespace
        assert all("spill file is not there" in missing.reason for missing in report.missing)


class TestOthersCode:
    def test_code_that_changes_what_is_being_saved_is_saved_as_one_of_its_states(self):
        class Restless:
            def __init__(self):
                self.value = 0

            def __getstate__(self):
                self.value += 1
                names["list"].append(self.value)
                return vars(self).copy()

        names = {"restless": Restless(), "list": [0]}
        result = Roundtrip(names)
        assert result["restless"].value >= 1
        assert result["list"] == list(range(len(result["list"])))

    def test_code_that_runs_when_objects_are_made_cannot_stop_the_others(self):
        class Exits:
            def __reduce__(self):
                return sys.exit, (3,)

        class Interrupts:
            def __reduce__(self):
                return exec, ("raise SystemError('mine')",)

        result = Roundtrip({"a": [1], "exits": Exits(), "interrupts": Interrupts(), "b": [2]})
        assert result.namespace == {"a": [1], "b": [2]}
        assert {missing.name for missing in result.report.missing} == {"exits", "interrupts"}

    def test_objects_that_lie_about_themselves_are_taken_by_what_they_pickle(self):
        class Liar:
            def __init__(self):
                self.content = [1, 2]

            def __len__(self):
                return 1 << 60

            def __sizeof__(self):
                return -1

            def __eq__(self, other):
                raise RuntimeError("not comparable")

            def __hash__(self):
                raise RuntimeError("not hashable")

            def __bool__(self):
                raise RuntimeError("no truth in me")

            def __getattr__(self, name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return Liar()

        result = Roundtrip({"liar": Liar(), "list": [Liar()], "x": 1})
        assert not result.unsaved
        assert result["liar"].content == [1, 2]

    def test_memory_that_another_thread_changes_meanwhile_is_named(self, monkeypatch):
        array = noise(4 * MIB)
        go, done, stop = threading.Event(), threading.Event(), threading.Event()

        def change():
            go.wait(WITHIN_S)
            array[:] += 1
            done.set()
            stop.wait(WITHIN_S)

        thread = threading.Thread(target=change)
        thread.start()
        put = blobs.BlobWriter.put_chunks

        def put_and_change(self, content):
            chunk = put(self, content)
            if content.nbytes == MIB and not go.is_set():
                go.set()
                done.wait(WITHIN_S)
            return chunk

        monkeypatch.setattr(blobs.BlobWriter, "put_chunks", put_and_change)
        try:
            result = Roundtrip({"array": array, "calm": noise(MIB, 1)})
        finally:
            stop.set()
            thread.join()
        assert [changed.name for changed in result.manifest.changed] == ["array"]
        assert "another thread changed it" in result.manifest.changed[0].change
        assert not result.report.missing
        assert np.array_equal(result["array"][:MIB] + 1, array[:MIB])

    def test_objects_that_another_thread_changes_meanwhile_are_named(self, monkeypatch):
        names = {"busy": {"step": 1, "deep": [{"loss": 0.5}]}, "calm": {"step": 1}}
        go, done, stop = threading.Event(), threading.Event(), threading.Event()

        def change():
            go.wait(WITHIN_S)
            names["busy"]["deep"][0]["loss"] = 0.25
            done.set()
            stop.wait(WITHIN_S)

        thread = threading.Thread(target=change)
        thread.start()
        put = blobs.BlobWriter.put

        def put_and_change(self, pieces, tick):
            go.set()
            done.wait(WITHIN_S)
            return put(self, pieces, tick)

        monkeypatch.setattr(blobs.BlobWriter, "put", put_and_change)
        try:
            result = Roundtrip(names)
        finally:
            stop.set()
            thread.join()
        assert [changed.name for changed in result.manifest.changed] == ["busy"]
        assert result["busy"]["deep"][0]["loss"] == 0.5
        assert result["calm"] == {"step": 1}

    def test_a_thread_that_sleeps_all_the_while_costs_no_second_look(self, monkeypatch):
        stop, walks = threading.Event(), []
        add = graph.Graph.add

        def counting(self, name, value):
            walks.append(name)
            add(self, name, value)

        monkeypatch.setattr(graph.Graph, "add", counting)
        thread = threading.Thread(target=stop.wait, args=(WITHIN_S,))
        thread.start()
        try:
            wait_until(lambda: sleeps(thread))
            Roundtrip({"x": [1]})
            assert walks == ["x"]
        finally:
            stop.set()
            thread.join()

    def test_a_container_that_another_thread_changes_meanwhile_does_not_end_the_save(self):
        busy = {}
        stop = threading.Event()

        def change():
            number = 0
            while not stop.is_set():
                number += 1
                busy[number] = [number]
                busy.pop(number - 500, None)

        thread = threading.Thread(target=change)
        thread.start()
        try:
            wait_until(lambda: len(busy) > 400)
            for _ in range(30):
                result = Roundtrip({"busy": busy, "calm": [1]})
                assert result["calm"] == [1]
                assert ("busy" in result.namespace) != ("busy" in result.unsaved)
        finally:
            stop.set()
            thread.join()


def sleeps(thread):
    """Whether a thread waits for something in the kernel, and not for its turn with the interpreter."""
    before = other_threads.run_times_ns()
    time.sleep(0.01)  # whoever waits for a turn has one now
    state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "S" and thread.native_id in before and other_threads.run_times_ns() == before


def test_a_large_array_of_which_a_part_is_damaged_is_named_though_many_threads_read_it():
    names = {"large": noise(40 * MIB), "other": [1]}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        TestDamage().flip(saver.descriptors()[0], names["large"][33 * MIB : 33 * MIB + 40].tobytes())
        namespace = {}
        report = restore(saver.descriptors(), namespace)
    assert namespace == {"other": [1]}
    assert report.missing[0].reason == "its part of the saved state is damaged"


def test_the_layout_of_regions_has_no_gaps_that_are_not_checked():
    """Each byte that a restore reads is under a digest."""
    assert {name for name in vars(store.Reader) if not name.startswith("__")} == {
        "stream",
        "size_bytes",
        "read_into",
        "read_each",
        "_packed",
    }
