"""What saved state may take: memory, a spill folder, and what is said about what fits in neither."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from nls_jupyter import saved_state
from nls_jupyter.saved_state import (
    MachineRoom,
    OverBudgetError,
    Saver,
    arena,
    budget,
    graph,
    one_save,
    watchdog,
    window,
)
from nls_jupyter.saved_state.parallel import SWITCH
from nls_jupyter.saved_state.room import container_room, memory_left_bytes, own_bytes
from nls_jupyter.saved_state.saver import DroppedError
from open_files import no_more_files
from saved_state_roundtrip import restore
from waiting import wait_until

MIB = 1 << 20


def noise(size_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


@contextlib.contextmanager
def files_of_at_most(size_bytes):
    """As `ulimit -f` has it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_this_process_has_memory_of_its_own():
    assert 1 << 20 < own_bytes(os.getpid()) < memory_left_bytes() + (64 << 30)
    assert own_bytes(2**22 + 1) == 0, "there is no such process"


@pytest.mark.parametrize("name", ["x kB", "\x0bx y kB", "\x0cRssShmem: 9 kB", "\rx y kB"])
def test_what_a_process_calls_itself_is_no_memory_of_it(name, tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_bytes(f"Name:\t{name}\nRssAnon:\t3 kB\n".encode())
    assert own_bytes(7, tmp_path) == 3 << 10


class TestMachine:
    def system(self, root, cgroup, **files):
        (root / "proc/self").mkdir(parents=True)
        (root / "proc/meminfo").write_text("MemTotal: 2000 kB\nMemFree: 1 kB\nMemAvailable:   1000 kB\n")
        (root / "proc/self/cgroup").write_text(cgroup)
        for path, content in files.items():
            file = root / "sys/fs/cgroup" / path.replace("__", "/").replace("_DOT_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return root

    def test_without_a_limit_it_is_what_the_machine_has_left(self, tmp_path):
        root = self.system(tmp_path, "0::/user\n", user__memory_DOT_max="max\n", user__memory_DOT_current="5\n")
        assert memory_left_bytes(root) == 1000 * 1024
        assert container_room(root) is None

    def test_the_nearest_limit_of_a_version_2_cgroup_and_those_above_it_counts(self, tmp_path):
        files = {
            "a__memory_DOT_max": "100000",
            "a__memory_DOT_current": "80000",
            "a__memory_DOT_stat": "anon 1\ninactive_file 5000\n",
            "a__b__memory_DOT_max": "900000",
            "a__b__memory_DOT_current": "10",
        }
        root = self.system(tmp_path, "0::/a/b\n", **files)
        assert memory_left_bytes(root) == 25_000
        assert container_room(root) == (25_000, 100_000)

    def test_a_version_1_cgroup_counts_and_its_huge_number_is_no_limit(self, tmp_path):
        cgroup = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"
        files = {
            "memory__memory_DOT_limit_in_bytes": "50000",
            "memory__memory_DOT_usage_in_bytes": "20000",
            "memory__docker__x__memory_DOT_limit_in_bytes": "9223372036854771712",
            "memory__docker__x__memory_DOT_usage_in_bytes": "20000",
        }
        assert memory_left_bytes(self.system(tmp_path, cgroup, **files)) == 30_000

    def test_a_container_whose_path_is_the_hosts_finds_its_limit_at_the_mount(self, tmp_path):
        files = {"memory_DOT_max": "3000", "memory_DOT_current": "1000"}
        assert memory_left_bytes(self.system(tmp_path, "0::/../../kubepods/pod1\n", **files)) == 2000

    @pytest.mark.parametrize("name", ["m\x0be", "m\u2028e", "m\re"])
    def test_a_cgroup_may_have_any_name(self, tmp_path, name):
        files = {f"{name}__memory_DOT_max": "3000", f"{name}__memory_DOT_current": "1000"}
        assert memory_left_bytes(self.system(tmp_path, f"0::/{name}\n", **files)) == 2000

    def test_more_in_use_than_allowed_leaves_nothing(self, tmp_path):
        files = {"memory_DOT_max": "3000", "memory_DOT_current": "4000"}
        assert memory_left_bytes(self.system(tmp_path, "0::/\n", **files)) == 0

    @pytest.mark.parametrize(("balloon", "left"), [(1, 400), (0, 1000), (None, 1000)])
    def test_a_machine_whose_balloon_is_filled_has_no_more_than_it_has_not_promised(self, tmp_path, balloon, left):
        root = self.system(tmp_path, "0::/user\n")
        with (root / "proc/meminfo").open("a") as meminfo:
            meminfo.write("Committed_AS: 1600 kB\n" + ("" if balloon is None else f"Balloon: {balloon} kB\n"))
        assert memory_left_bytes(root) == left * 1024

    def test_more_promised_than_there_is_leaves_nothing(self, tmp_path):
        root = self.system(tmp_path, "0::/user\n")
        with (root / "proc/meminfo").open("a") as meminfo:
            meminfo.write("Committed_AS: 2600 kB\nBalloon: 9 kB\n")
        assert memory_left_bytes(root) == 0

    def test_a_process_that_can_open_no_more_files_says_so_and_not_that_nothing_is_left(self, tmp_path):
        files = {"a__memory_DOT_max": "100000", "a__memory_DOT_current": "80000"}
        root = self.system(tmp_path, "0::/a\n", **files)
        room = MachineRoom(system=root)
        with no_more_files(), pytest.raises(OSError, match="Too many open files"):
            room.memory_bytes()
        assert room.memory_bytes() == 12_000  # its cgroup's limit is not forgotten
        with no_more_files(), pytest.raises(OSError, match="Too many open files"):
            room.memory_bytes()

    @pytest.mark.parametrize(("used", "room"), [(10_000, 81_000), (80_000, 12_000), (92_000, 0), (99_000, 0)])
    def test_what_the_guard_of_a_limit_keeps_is_no_room_for_saved_state(self, tmp_path, used, room):
        files = {"a__memory_DOT_max": "100000", "a__memory_DOT_current": str(used)}
        assert MachineRoom(system=self.system(tmp_path, "0::/a\n", **files)).memory_bytes() == room

    def test_this_machine_has_something_left(self):
        assert MachineRoom().memory_bytes() > MIB


class TestRoom:
    def test_an_array_without_room_is_named_with_both_sizes_and_takes_its_views_along(self):
        names = {"large": noise(30 * MIB), "small": noise(2 * MIB, 1), "text": "kept"}
        names["view"] = names["large"][5:]
        names["holder"] = [names["view"]]
        with contextlib.closing(Saver(MachineRoom(memory_limit_bytes=8 * MIB))) as saver:
            manifest = saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert set(namespace) == {"small", "text"}
        assert np.array_equal(namespace["small"], names["small"])
        reasons = {missing.name: missing.reason for missing in manifest.missing}
        assert reasons["large"] == (
            "its 30 MiB are more than the 6 MiB that are left for saved state (no spill folder is set)"
        )
        assert reasons["holder"].startswith("it holds an array whose 30 MiB are more than")
        assert set(reasons) == {"large", "view", "holder"}

    def test_a_pickle_without_room_is_named(self):
        names = {"text": ["x" * 100 + str(n) for n in range(100_000)], "small": [1]}
        with contextlib.closing(Saver(MachineRoom(memory_limit_bytes=2 * MIB))) as saver:
            manifest = saver.save(names, cell=None)
        assert [saved.name for saved in manifest.saved] == ["small"]
        assert "does not fit in what is left for saved state" in manifest.missing[0].reason

    def test_what_does_not_fit_in_memory_goes_to_a_file_that_nobody_else_sees(self, tmp_path):
        names = {"large": noise(30 * MIB), "small": noise(2 * MIB, 1)}
        room = MachineRoom(tmp_path, memory_limit_bytes=8 * MIB)
        with contextlib.closing(Saver(room)) as saver:
            assert not saver.save(names, cell=None).missing
            assert len(saver.descriptors()) == 2
            assert os.fstat(saver.descriptors()[1]).st_size > 20 * MIB
            assert list(tmp_path.iterdir()) == []
            with contextlib.closing(Saver()) as second:
                namespace = {}
                second.restore(saver.descriptors(), namespace)
                assert np.array_equal(namespace["large"], names["large"])
                second.save(namespace, cell=None)
                assert second._committed.blobs.written_bytes == 0
            names["large"] += 1
            del names["small"]
            saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
            assert np.array_equal(namespace["large"], names["large"])

    @pytest.mark.parametrize(("folder", "why"), [("missing", "No such file"), ("file", "Not a directory")])
    def test_a_spill_folder_that_cannot_be_used_is_named(self, tmp_path, folder, why):
        (tmp_path / "file").write_text("")
        with contextlib.closing(Saver(MachineRoom(tmp_path / folder, memory_limit_bytes=MIB))) as saver:
            manifest = saver.save({"large": noise(5 * MIB)}, cell=None)
        assert why in manifest.missing[0].reason

    def test_a_disk_without_room_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setattr(MachineRoom, "spill_bytes", lambda _, fd: max(0, 2 * MIB - os.fstat(fd).st_size))
        with contextlib.closing(Saver(MachineRoom(tmp_path, memory_limit_bytes=MIB))) as saver:
            manifest = saver.save({"large": noise(5 * MIB), "small": 1}, cell=None)
        assert [saved.name for saved in manifest.saved] == ["small"]

    def test_a_disk_that_fills_up_meanwhile_is_named(self, tmp_path, monkeypatch):
        write = arena._pwrite
        with contextlib.closing(Saver(MachineRoom(tmp_path, memory_limit_bytes=2 * MIB))) as saver:

            def full(fd, content, position):
                if fd != saver.descriptors()[0]:
                    raise OSError(errno.ENOSPC, "No space left on device")
                write(fd, content, position)

            monkeypatch.setattr(arena, "_pwrite", full)
            manifest = saver.save({"large": noise(5 * MIB), "small": 1}, cell=None)
        assert [saved.name for saved in manifest.saved] == ["small"]
        assert "No space left on device" in manifest.missing[0].reason

    @pytest.mark.parametrize("spills", [False, True])
    def test_what_a_limit_of_files_leaves_no_room_for_is_named_with_it(self, tmp_path, spills):
        room = MachineRoom(tmp_path if spills else None)
        names = {"large": noise(46 * MIB), "many": ["x" * 100 + str(n) for n in range(400_000)], "small": 5}
        with contextlib.closing(Saver(room)) as saver, files_of_at_most(20 * MIB):
            manifest = saver.save(names, cell="1")
            namespace = {}
            restore(saver.descriptors(), namespace)
            assert namespace == {"small": 5}
            reasons = {missing.name: missing.reason for missing in manifest.missing}
            assert reasons.keys() == {"large", "many"}
            for reason in reasons.values():
                assert "a file of this process may have 20 MiB at most, see `ulimit -f`" in reason
            names["medium"] = noise(8 * MIB, 1)
            for number in range(12):
                names["medium"][:] = noise(8 * MIB, 2 + number)
                manifest = saver.save(names, cell="2")
                assert [missing.name for missing in manifest.missing] == ["large", "many"]
            namespace = {}
            restore(saver.descriptors(), namespace)
            assert np.array_equal(namespace["medium"], names["medium"])

    def test_a_file_whose_length_has_a_limit_lasts_for_any_number_of_saves(self):
        names = {"text": "x" * 300_000}
        with contextlib.closing(Saver()) as saver, files_of_at_most(4 * MIB):
            for number in range(60):
                names["text"] = str(number) + names["text"]
                assert not saver.save(names, cell=str(number)).missing
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert namespace == names

    def test_an_index_that_a_limit_of_files_leaves_no_room_for_is_an_error_that_names_it(self):
        with contextlib.closing(Saver()) as saver:
            saver.save({"x": 1}, cell="1")
            with files_of_at_most(8192), pytest.raises(OSError, match="may have 8 KiB at most, see `ulimit -f`"):
                saver.save({"x": 2}, cell="2")
            assert saved_state.read_manifest(saver.descriptors()).cell == "1"

    def test_memory_that_the_system_refuses_after_all_leaves_the_state_before(self, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        names = {"a": noise(2 * MIB)}
        with contextlib.closing(Saver()) as saver:
            saver.save(names, cell="1")
            names["b"] = noise(20 * MIB, 1)
            with monkeypatch.context() as patch:
                patch.setattr(arena, "_pwrite", full)
                patch.setattr(os, "posix_fallocate", full)
                with pytest.raises(OSError, match="No space"):
                    saver.save(names, cell="2")
                saver._committed.arena.prepare(20 * MIB)
                saver._committed.arena.begin()
            assert saved_state.read_manifest(saver.descriptors()).cell == "1"
            saver.save(names, cell="2")
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert all(np.array_equal(namespace[name], array) for name, array in names.items())

    def test_a_spill_folder_that_is_read_only_is_named(self, tmp_path, monkeypatch):
        def read_only(*_):
            raise OSError(errno.EROFS, "Read-only file system")

        saver = Saver(MachineRoom(tmp_path, memory_limit_bytes=2 * MIB))
        with contextlib.closing(saver), monkeypatch.context() as patch:
            patch.setattr(os, "open", read_only)
            manifest = saver.save({"large": noise(5 * MIB), "small": 1}, cell=None)
        assert [saved.name for saved in manifest.saved] == ["small"]
        assert "cannot be used: Read-only file system" in manifest.missing[0].reason

    def test_an_array_that_grew_too_large_leaves_the_others_as_they_are_now(self):
        names = {"a": noise(2 * MIB), "b": noise(2 * MIB, 1)}
        with contextlib.closing(Saver(MachineRoom(memory_limit_bytes=6 * MIB))) as saver:
            saver.save(names, cell=None)
            names["a"], names["b"][0] = noise(20 * MIB), 7
            manifest = saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert list(namespace) == ["b"]
        assert namespace["b"][0] == 7
        assert [missing.name for missing in manifest.missing] == ["a"]


class TestCost:
    def test_a_save_over_its_budget_leaves_the_one_before_and_is_finished_later(self):
        names = {"a": noise(64 * MIB), "x": 1}
        with contextlib.closing(Saver()) as saver:
            saver.save({"x": 0}, cell="1")
            with pytest.raises(OverBudgetError):
                saver.save(names, cell="2", budget_s=0)
            assert saved_state.read_manifest(saver.descriptors()).cell == "1"
            namespace = {}
            restore(saver.descriptors(), namespace)
            assert namespace == {"x": 0}
            saver.save(names, cell="2", budget_s=None)
            assert saved_state.read_manifest(saver.descriptors()).cell == "2"

    def test_what_a_stopped_save_has_copied_is_not_copied_again(self, monkeypatch):
        names = {"a": noise(64 * MIB)}
        with contextlib.closing(Saver()) as saver:
            saver.save({}, cell=None)
            monkeypatch.setenv(SWITCH, "1")  # of several threads, which does how much is the machine's choice
            steps = iter(range(10))
            saver_module = saved_state.saver
            monkeypatch.setattr(saver_module, "deadline", lambda _: lambda: stop_after(steps))
            with pytest.raises(OverBudgetError):
                saver.save(names, cell=None)
            monkeypatch.undo()
            copied = saver._committed.blobs.written_bytes
            assert copied >= 2 * MIB
            saver.save(names, cell=None)
            assert saver._committed.blobs.written_bytes <= 64 * MIB - copied + MIB
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert np.array_equal(namespace["a"], names["a"])

    def test_memory_for_the_rest_of_a_stopped_save_is_there_before_it_is_finished(self, monkeypatch):
        names = {"a": noise(80 * MIB), "b": noise(8 * MIB, 1)}
        with contextlib.closing(Saver()) as saver:
            saver.save({}, cell=None)
            monkeypatch.setenv(SWITCH, "1")  # of several threads, which does how much is the machine's choice
            steps = iter(range(10))
            monkeypatch.setattr(saved_state.saver, "deadline", lambda _: lambda: stop_after(steps))
            with pytest.raises(OverBudgetError):
                saver.save(names, cell=None)
            monkeypatch.undo()
            wait_until(lambda: held_bytes(saver) > 85 * MIB)
            saver.save(names, cell=None)
            # What was allocated is what is used.
            assert held_bytes(saver) < 96 * MIB
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert all(np.array_equal(namespace[name], array) for name, array in names.items())

    def test_what_is_allocated_ahead_stays_within_the_room(self):
        with contextlib.closing(arena.Arena.new(MachineRoom(memory_limit_bytes=8 * MIB))) as small:
            small.begin()
            small.prepare(64 * MIB)
            wait_until(lambda: os.fstat(small.descriptors()[0]).st_blocks * 512 == 8 * MIB)
            small.begin()
            assert small.memory_room_bytes == 8 * MIB

    def test_nothing_more_is_allocated_ahead_once_others_have_taken_what_was_left(self, monkeypatch):
        room = MachineRoom(memory_limit_bytes=256 * MIB)
        with contextlib.closing(arena.Arena.new(room)) as small:
            small.begin()
            monkeypatch.setattr(room, "memory_bytes", lambda held_bytes: 64 * MIB - held_bytes)
            small.prepare(256 * MIB)
            wait_until(lambda: not small._ahead._thread.is_alive())
            assert os.fstat(small.descriptors()[0]).st_blocks * 512 == 64 * MIB

    def test_what_others_take_while_a_save_is_written_is_no_room_for_it_any_more(self, monkeypatch):
        monkeypatch.setattr(budget, "_SHORT_ANSWER_HOLDS_S", 0.0)
        monkeypatch.setenv(SWITCH, "1")
        room = MachineRoom(memory_limit_bytes=256 * MIB)
        with contextlib.closing(Saver(room)) as saver:
            answers = iter([256 * MIB])
            monkeypatch.setattr(room, "memory_bytes", lambda held_bytes: next(answers, 4 * MIB))
            manifest = saver.save({"a": noise(16 * MIB), "n": [1]}, cell=None)
        assert [saved.name for saved in manifest.saved] == ["n"]
        assert "that are left for saved state" in manifest.missing[0].reason

    def test_a_save_after_what_was_saved_is_dropped_is_a_whole_one(self):
        names = {"a": noise(16 * MIB), "n": [1]}
        drops = []
        with contextlib.closing(Saver()) as saver:
            saver.drops = lambda: len(drops)
            saver.save(names, cell=None)
            kept = [os.dup(descriptor) for descriptor in saver.descriptors()]
            drops.append("memory is short")
            arena.empty(kept)
            assert os.fstat(kept[0]).st_blocks == 0
            with pytest.raises(saved_state.SavedStateDamagedError):
                restore(kept, {})
            saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
            for descriptor in kept:
                os.close(descriptor)
        assert np.array_equal(namespace["a"], names["a"])
        assert namespace["n"] == [1]

    def test_a_save_in_whose_middle_everything_is_dropped_fails_and_the_next_one_is_whole(self):
        names = {"a": noise(4 * MIB)}
        drops = []

        class Drops:
            def __reduce__(self):
                if not drops:
                    drops.append("memory is short")
                    arena.empty(saver.descriptors())
                return list, ()

        with contextlib.closing(Saver()) as saver:
            saver.drops = lambda: len(drops)
            saver.save(names, cell=None)
            with pytest.raises(DroppedError, match="memory became short"):
                saver.save({**names, "drops": [Drops()]}, cell=None)
            saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert np.array_equal(namespace["a"], names["a"])

    def test_memory_that_no_save_overwrites_any_more_is_given_back(self):
        names = {"a": noise(32 * MIB)}
        with contextlib.closing(Saver()) as saver:
            for _ in range(3):
                names["a"] += 1
                saver.save(names, cell=None)
            assert held_bytes(saver) > 60 * MIB
            for number in range(6):
                saver.save({**names, "number": number}, cell=None)
            assert held_bytes(saver) < 40 * MIB
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert np.array_equal(namespace["a"], names["a"])

    def test_without_address_space_for_a_window_saves_go_through_the_system(self, monkeypatch):
        monkeypatch.setattr(window.Window, "reach", lambda *_: False)
        names = {"a": noise(16 * MIB)}
        with contextlib.closing(Saver()) as saver:
            for _ in range(3):
                names["a"] += 1
                saver.save(names, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert np.array_equal(namespace["a"], names["a"])

    def test_the_budget_holds_inside_one_large_pickle(self, monkeypatch):
        """How far a save came is told by how often it looked at the time: durations of two saves cannot be compared."""
        names = {"many": [{"n": n, "s": str(n)} for n in range(300_000)]}
        looks, real = [], saved_state.saver.deadline

        def counted(budget_s):
            check = real(budget_s)

            def look():
                looks.append(None)
                check()

            return look

        monkeypatch.setattr(saved_state.saver, "deadline", counted)
        with contextlib.closing(Saver()) as saver:
            with pytest.raises(OverBudgetError):
                saver.save(names, cell=None, budget_s=0.01)
            looks_until_stopped = len(looks)
            looks.clear()
            saver.save(names, cell=None)
        assert looks_until_stopped < len(looks)
        assert len(looks) > 20

    def test_a_save_whose_objects_took_too_long_each_time_is_not_even_begun(self, monkeypatch):
        now_s = 0.0

        class Costly:
            def __reduce__(self):
                nonlocal now_s
                now_s += 3.0
                return Costly, ()

        for module in (one_save, watchdog):
            monkeypatch.setattr(module, "monotonic_s", lambda: now_s)
        names = {"costly": Costly()}
        with contextlib.closing(Saver(patience_s=None)) as saver:
            saver.save(names, cell="1")
            took_s = now_s
            with pytest.raises(OverBudgetError, match="the save before took"):
                saver.save(names, cell="2", budget_s=took_s - 0.1)
            assert now_s == took_s
            saver.save(names, cell="2", budget_s=took_s)
            saver.save({}, cell="3")
            saver.save({"x": 1}, cell="4", budget_s=0.1)
            for _ in range(2):
                with pytest.raises(OverBudgetError):
                    saver.save(names, cell="5", budget_s=0.1)
            assert now_s == 2 * took_s + 3.0


def held_bytes(saver):
    return os.fstat(saver.descriptors()[0]).st_blocks * 512


def stop_after(steps):
    if next(steps, None) is None:
        raise OverBudgetError("enough")


class Endless:
    def __reduce__(self):
        while True:
            try:
                threading.Event().wait(60)
            except Exception:  # noqa: BLE001 - that is the point
                continue


class EndlessWhenMade:
    def __setstate__(self, state):
        threading.Event().wait(60)


class EndlessWhenLookedAt:
    @property
    def __dict__(self):
        threading.Event().wait(60)


class Point:
    def __init__(self, x):
        self.x = x


class TestStuckCode:
    def test_an_object_that_never_finishes_is_named_and_the_rest_is_saved(self):
        with contextlib.closing(Saver(patience_s=0.1)) as saver:
            manifest = saver.save({"a": [1], "bad": Endless(), "b": [2]}, cell=None)
            namespace = {}
            restore(saver.descriptors(), namespace)
        assert namespace == {"a": [1], "b": [2]}
        assert manifest.missing[0].reason == "its own code did nothing for 0.1 s"

    @pytest.mark.long("code that never finishes, where it is made again")
    def test_one_that_never_finishes_when_made_again_is_named_too(self):
        bad = EndlessWhenMade()
        bad.x = 1
        with contextlib.closing(Saver()) as saver:
            saver.save({"a": [1], "bad": bad, "b": [2]}, cell=None)
            # A collection of everything that the tests have imported takes a while, and has to end within it.
            with contextlib.closing(Saver(patience_s=2.0)) as second:
                namespace = {}
                report = second.restore(saver.descriptors(), namespace)
        assert namespace == {"a": [1], "b": [2]}
        assert [missing.name for missing in report.missing] == ["bad"]

    def test_the_users_own_alarm_comes_as_it_would_have(self):
        import signal

        rang = threading.Event()
        before = signal.signal(signal.SIGALRM, lambda *_: rang.set())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with contextlib.closing(Saver()) as saver:
                saver.save({"a": [1]}, cell=None)
            assert rang.wait(5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_what_is_walked_between_two_questions_for_the_budget_is_bounded(self, monkeypatch):
        looked_at = [0]
        look = graph.looks.look_at_instance

        def counting(*args):
            looked_at[-1] += 1
            return look(*args)

        monkeypatch.setattr(graph.looks, "look_at_instance", counting)
        walk = graph.Graph({}, (), (), lambda: looked_at.append(0))
        walk.add("points", [Point(n) for n in range(20_000)])
        walk.components()
        assert sum(looked_at) == 20_000
        assert max(looked_at) <= 2000

    def test_an_object_that_never_ends_being_looked_at_stops_no_save(self):
        with contextlib.closing(Saver(patience_s=0.1)) as saver:
            manifest = saver.save({"a": [1], "odd": EndlessWhenLookedAt(), "b": [2]}, cell=None)
        assert {saved.name for saved in manifest.saved} == {"a", "odd", "b"}


def test_what_cannot_be_adopted_whole_leaves_nothing_open() -> None:
    there = os.memfd_create("state")
    before = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match="Bad file descriptor"):
        arena.Arena.adopt([there, 1 << 20], MachineRoom())
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    os.close(there)


NAMED = """
import ctypes, mmap, os, sys, tempfile
from nls_jupyter.saved_state.room import resident_bytes
from nls_jupyter.saved_state.shared_memory import SharedMemory
name = bytes.fromhex(sys.argv[1])
ctypes.CDLL(None).prctl(15, name)
with tempfile.NamedTemporaryFile(prefix=os.fsdecode(name).replace("/", "")) as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    print(resident_bytes() > 1 << 20, SharedMemory().holds(address, 1))
"""


@pytest.mark.parametrize("name", [b"a\x0bb", b"\rRssAnon: x", b"a\x1cb", "ä\u2028b".encode(), b"\xff"])
def test_what_a_process_and_its_files_are_called_says_nothing_of_its_memory(name):
    done = subprocess.run([sys.executable, "-c", NAMED, name.hex()], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"
