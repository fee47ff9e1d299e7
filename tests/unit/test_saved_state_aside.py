"""A copy of the process saves what was there when it was made, and harms nobody, however it ends."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import itertools
import mmap
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from test_saved_state_stops import MIB, StopAt, namespace, noise, restored, same

from gpu_simulation import simulated_gpus
from nls_jupyter.saved_state import Interpreter, Saver, SaveStoppedError, arena, aside, libraries, read_manifest, saver
from nls_jupyter.saved_state import copies as copies_module
from nls_jupyter.saved_state.aside import DONE, FAILED, REFUSED, STOPPED, Aside, NotAsideError
from nls_jupyter.saved_state.one_save import OneSave
from nls_jupyter.saved_state.shared_memory import SharedMemory
from nls_scheduler.processes import debuggers
from waiting import has_ended, wait_until

WITHIN_S = 60


class Copies:
    """Saves by copies of this process, and how each of them ended."""

    def __init__(self, saver, tmp_path):
        self.saver = saver
        self.handed_over = tmp_path / "handed over"
        self.endings = []
        self._over = threading.Event()

    def begin(self, names, cell="aside", stop=lambda: None):
        self._over.clear()
        self.saver.save_aside(names, cell=cell, stop=stop, committed=self.handed_over.touch, over=self._ended)

    def _ended(self, how):
        self.endings.append(how)
        self._over.set()

    def end(self):
        assert self._over.wait(WITHIN_S)
        return self.endings[-1]

    def save(self, names, cell="aside", stop=lambda: None):
        self.begin(names, cell, stop)
        return self.end()


@pytest.fixture(autouse=True)
def whatever_other_tests_have_imported(monkeypatch):
    for name in aside._NOT_COPIED:
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.fixture
def copies(tmp_path):
    with contextlib.closing(Saver()) as saver:
        yield Copies(saver, tmp_path)


class Gate:
    """Is pickled when it may be; the copy shows that it has come so far."""

    def __init__(self, path):
        self.path = path

    @property
    def reached(self):
        return self.path.with_suffix(".reached")

    def __reduce__(self):
        if os.getpid() == int(self.path.name):
            return Gate, (self.path,)  # the process itself does not wait
        self.reached.touch()
        while not self.path.exists():
            time.sleep(0.001)
        return Gate, (self.path,)


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / str(os.getpid()))


def pid_of(copy):
    """Once it is the copy's: before, it is that of what is in between, which is this process's child."""

    def found():
        with copy._using_pidfd:
            fields = Path(f"/proc/self/fdinfo/{copy._pidfd}").read_text(encoding="ascii")
        pid = int(fields.partition("\nPid:")[2].split()[0])
        with contextlib.suppress(psutil.NoSuchProcess, ValueError):
            return pid if psutil.Process(pid).ppid() != os.getpid() else None

    return wait_for(found)


@pytest.fixture
def no_child_of_ours():
    """Beside those that other tests have begun, such as multiprocessing's tracker."""

    def children():
        return {process.pid for process in psutil.Process().children()}

    before = children()
    return lambda: children() <= before


def test_what_is_saved_is_what_was_there_when_the_copy_was_made(copies, gate):
    names = {**namespace(1, 3), "gate": gate}
    copies.begin(names)
    names["array"][:] = 0
    names["shared"].append("later")
    names["later"] = 1
    gate.path.touch()
    assert copies.end() == DONE
    assert copies.handed_over.exists()
    found = restored(copies.saver)
    assert found.pop("gate").path == gate.path
    assert same(found, namespace(1, 3))
    assert read_manifest(copies.saver.descriptors()).cell == "aside"


def test_the_saves_after_a_copy_go_on_where_it_ended(copies):
    for step in range(6):
        wanted = namespace(step, 2 + step % 3)
        if step % 2:
            copies.saver.save(wanted, cell=str(step))
        else:
            assert copies.save(wanted) == DONE
        assert same(restored(copies.saver), wanted)


def test_what_has_not_changed_since_a_copy_is_not_written_again(copies):
    names = namespace(1, 8)
    copies.saver.save(names, cell="1")
    names["kept"][:] = 1
    assert copies.save(names) == DONE
    copies.saver.save(names, cell="2")
    assert copies.saver._committed.blobs.written_bytes == 0
    assert same(restored(copies.saver), names)


@pytest.mark.parametrize("what", ["fstat", "preadv", "ftruncate", "pread"])
def test_a_save_that_fails_while_it_takes_over_from_a_copy_takes_nothing_for_granted(copies, monkeypatch, what):
    names = namespace(1, 4)
    copies.saver.save(names, cell="1")
    names["array"][::1000] += 1
    assert copies.save(names) == DONE
    stands = {**names, "array": names["array"].copy()}
    names["array"][5] += 1
    with monkeypatch.context() as patched:
        patched.setattr(arena.os, what, too_large)
        with contextlib.suppress(OSError):
            copies.saver.save(names, cell="2")
            stands = names
    assert same(restored(copies.saver), stands)
    for step in range(3):
        names["array"][7] += 1
        copies.saver.save(names, cell=str(step))
        assert same(restored(copies.saver), names)


def too_large(*_):
    raise OSError(errno.EFBIG, "File too large")


def test_components_that_a_copy_found_unchanged_are_known_on(copies, tmp_path):
    class Counted:
        def __init__(self):
            self.path = tmp_path / "pickled"

    list_of_them = [[Counted()] for _ in range(3)]
    names = {"unchanged": list_of_them, "array": noise(MIB, 1)}
    copies.saver.save(names, cell="1")
    names["array"][:] = 0
    before = dict(copies.saver._parts)
    assert copies.save(names) == DONE
    copies.saver._settle()
    assert any("unchanged" in {name.name for name in part.encoded.saved} for part in copies.saver._parts.values())
    assert copies.saver._parts.keys() < before.keys()


@pytest.mark.parametrize("saved_before", [True, False])
def test_a_copy_that_is_stopped_anywhere_leaves_the_state_before_and_the_next_save_is_whole(copies, saved_before):
    if saved_before:
        copies.saver.save(namespace(0, 2), cell="0")
    for calls in itertools.count(0, 7):
        wanted = namespace(1 + calls, 2 + calls % 5)
        how = copies.save(wanted, stop=StopAt(calls))
        assert how in {DONE, STOPPED}
        stands = namespace(1000 + calls, 2)
        copies.saver.save(stands, cell="whole")
        assert same(restored(copies.saver), stands)
        if how == DONE:
            break
    assert calls > 7


def test_a_save_ends_the_copy_and_does_not_wait_for_it(copies, gate, no_child_of_ours):
    copies.begin({**namespace(1, 2), "gate": gate})
    copies.saver.save(namespace(2, 2), cell="2")
    assert copies.endings != [DONE]
    assert no_child_of_ours()
    assert same(restored(copies.saver), namespace(2, 2))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_copy_that_is_killed_has_failed_and_is_the_last_one(copies, gate, number):
    copies.saver.save(namespace(1, 2), cell="1")
    copies.begin({**namespace(2, 2), "gate": gate})
    pid = pid_of(copies.saver._copies._at_work)
    wait_for(gate.reached.exists)
    os.kill(pid, number)
    assert copies.end() == FAILED
    assert not copies.handed_over.exists()
    assert "failed before" in copies.saver.why_not_aside()
    with pytest.raises(NotAsideError, match="failed before"):
        copies.begin({})
    assert same(restored(copies.saver), namespace(1, 2))


def test_ctrl_c_is_not_for_the_copy(copies, gate):
    copies.begin({**namespace(2, 2), "gate": gate})
    pid = pid_of(copies.saver._copies._at_work)
    wait_for(gate.reached.exists)
    os.kill(pid, signal.SIGINT)
    os.kill(pid, signal.SIGUSR1)
    gate.path.touch()
    assert copies.end() == DONE


def until_stopped(check):
    while True:
        check()
        time.sleep(0.01)


def test_a_copy_ends_with_its_process(tmp_path):
    told = tmp_path / "pid"
    parent = os.fork()
    if parent == 0:
        copy = Aside(until_stopped, lambda _: None)
        told.write_text(f"{pid_of(copy)}\n", encoding="ascii")
        signal.pause()
    wait_for(lambda: told.exists() and told.read_text(encoding="ascii").endswith("\n"))
    pid = told.read_text(encoding="ascii").strip()
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    wait_for(lambda: has_ended(pid))


def wait_for(condition):
    return wait_until(condition, WITHIN_S)


def test_a_copy_that_never_ends_is_killed():
    over = []
    ended = threading.Event()
    Aside(lambda _: time.sleep(600), lambda how: (over.append(how), ended.set()), within_s=0.05)
    assert ended.wait(WITHIN_S)
    assert over == [FAILED]


def test_a_copy_that_does_not_hear_is_killed_when_it_is_to_end_and_nobody_who_got_its_number(
    monkeypatch, no_child_of_ours, tmp_path
):
    monkeypatch.setattr(aside, "_STOPS_WITHIN_S", 0.05)
    monkeypatch.setattr(aside, "_KILLS", 1000)  # a busy machine takes its time to end one that is killed
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a number may be another process's by now"))
    over = []
    began = tmp_path / "began"
    copy = Aside(lambda _: (began.touch(), time.sleep(600)), over.append)
    wait_for(began.exists)
    copy.end()
    assert over == [FAILED]
    assert no_child_of_ours()


@pytest.fixture
def fork_that_hangs(monkeypatch):
    """What libraries have called in a forked child, or their own `os.fork`, may never return there."""

    def hang_in(which):
        forks = itertools.count(1)

        def fork():
            number, pid = next(forks), os.fork()
            if pid == 0 and number == which:
                time.sleep(600)
            return pid

        monkeypatch.setattr(debuggers, "fork", fork)

    return hang_in


@pytest.mark.parametrize("which", [1, 2])
def test_a_copy_that_hangs_before_it_begins_is_killed_when_it_is_to_end(
    monkeypatch, fork_that_hangs, no_child_of_ours, which
):
    monkeypatch.setattr(aside, "_STOPS_WITHIN_S", 0.05)
    monkeypatch.setattr(aside, "_KILLS", 1000)  # a busy machine takes its time to end one that is killed
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a number may be another process's by now"))
    fork_that_hangs(which)
    over = []
    Aside(lambda _: pytest.fail("it works"), over.append).end()
    assert over == [FAILED]
    assert no_child_of_ours()


@pytest.mark.parametrize("which", [1, 2])
def test_a_copy_that_hangs_before_it_begins_has_failed_and_the_process_saves_itself(
    monkeypatch, fork_that_hangs, no_child_of_ours, copies, which
):
    monkeypatch.setattr(aside, "_BEGINS_WITHIN_S", 0.05)
    monkeypatch.setattr(copies_module, "Aside", functools.partial(Aside, within_s=0.05))
    fork_that_hangs(which)
    assert copies.save(namespace(1, 2)) == FAILED
    assert no_child_of_ours()
    with pytest.raises(NotAsideError, match="failed before"):
        copies.begin({})
    copies.saver.save(namespace(2, 2), cell="2")
    assert same(restored(copies.saver), namespace(2, 2))


@pytest.mark.parametrize("waited_for", ["_introduced", "_know"])
def test_a_copy_that_nobody_could_end_does_not_begin(monkeypatch, tmp_path, waited_for):
    """Whenever it ends: before it is asked after, or while it is."""
    lives, until_gone = os.pipe()
    of_aside = getattr(Aside, waited_for)

    def once_it_is_gone(*args):
        assert os.read(lives, 1) == b""
        return of_aside(*args)

    def gone_before_it_tells(*_):
        os._exit(1)

    monkeypatch.setattr(aside.socket, "send_fds", gone_before_it_tells)
    monkeypatch.setattr(Aside, waited_for, once_it_is_gone)
    over, ended = [], threading.Event()
    worked = tmp_path / "worked"
    Aside(lambda _: worked.touch(), lambda how: (over.append(how), ended.set()))
    os.close(until_gone)
    assert ended.wait(WITHIN_S)
    os.close(lives)
    assert over == [FAILED]
    assert not worked.exists()


def test_a_save_says_that_a_copy_does_not_even_die(monkeypatch, copies, gate):
    monkeypatch.setattr(aside, "_STOPS_WITHIN_S", 0.01)
    copies.begin({"gate": gate})
    with monkeypatch.context() as patched:
        patched.setattr(aside.signal, "pidfd_send_signal", lambda *_: None)
        wait_for(gate.reached.exists)
        with pytest.raises(OSError, match="does not end"):
            copies.saver.save({"x": 1}, cell="1")
    gate.path.touch()
    copies.end()
    copies.saver.save({"x": 2}, cell="2")
    assert restored(copies.saver) == {"x": 2}


def test_no_debugger_follows_a_copy_or_stops_it(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a debugger's own"))

    def work(_):
        if sys.gettrace() is not None:
            raise NotAsideError("it is traced")

    over, ended, tracing = [], threading.Event(), sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        Aside(work, lambda how: (over.append(how), ended.set()))
    finally:
        sys.settrace(tracing)
    assert ended.wait(WITHIN_S)
    assert over == [DONE]


def test_what_python_has_warned_of_once_is_not_warned_of_again_after_a_copy():
    told, over = {}, threading.Event()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        warnings.warn_explicit("once", UserWarning, "cell", 1, registry=told)
        before = list(warnings.filters)
        Aside(lambda _: None, lambda _: over.set())
        assert over.wait(WITHIN_S)
        assert warnings.filters == before
        warnings.warn_explicit("once", UserWarning, "cell", 1, registry=told)
    assert [str(warning.message) for warning in seen] == ["once"]


def test_cells_that_wait_for_their_children_find_no_copy_among_them(copies, gate, no_child_of_ours):
    copies.begin({"gate": gate})
    wait_for(gate.reached.exists)
    assert no_child_of_ours()
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.wait() == (child, 7 << 8)
    gate.path.touch()
    assert copies.end() == DONE


def test_random_numbers_and_settings_are_those_of_the_process(tmp_path):
    with contextlib.closing(Saver(interpreter=Interpreter())) as saver:
        random.seed(17)
        np.random.seed(4)
        assert Copies(saver, tmp_path).save({"x": 1}) == DONE
        expected = random.random(), np.random.rand()
        random.seed(1)
        np.random.seed(1)
        saver._settle()
        with contextlib.closing(Saver(interpreter=Interpreter())) as other:
            other.restore(saver.descriptors(), {})
        assert (random.random(), np.random.rand()) == expected


def test_nothing_that_the_copy_does_is_heard(copies, capfd):
    class Loud:
        def __reduce__(self):
            print("loud")
            print("loud", file=sys.stderr)
            warnings.warn("loud", stacklevel=1)
            return Loud, ()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert copies.save({"loud": Loud()}) == DONE
    copies.saver._settle()
    assert "loud" not in "".join(capfd.readouterr())  # gRPC, of other tests, says something about forks


def test_finalizers_run_once(copies, tmp_path):
    made = tmp_path / "finalized"

    class Cyclic:
        def __init__(self):
            self.self = self

        def __del__(self):
            with made.open("a", encoding="utf-8") as lines:
                lines.write(f"{os.getpid()}\n")

    Cyclic()
    assert copies.save({"many": [[] for _ in range(20_000)]}) == DONE
    gc.collect()  # while its folder is there
    assert made.read_text(encoding="utf-8").split() == [str(os.getpid())]


@pytest.fixture
def xp(tmp_path, monkeypatch):
    """Arrays on a Gpu that no copy of this process can read."""
    with simulated_gpus(tmp_path, monkeypatch):
        from nls_jupyter import simulated_cupy
        from nls_jupyter.saved_state.libraries.cupy_arrays import DeviceMemory

        mine, pieces = os.getpid(), DeviceMemory.pieces

        def here(memory):
            assert os.getpid() == mine, "the copy reads memory of a Gpu"
            return pieces(memory)

        monkeypatch.setattr(DeviceMemory, "pieces", here)
        monkeypatch.setattr(saver, "_LOOK_S", WITHIN_S)  # a busy machine takes its time to look at a few names
        yield simulated_cupy


def on_gpu(xp, seed):
    """Some large, some small, two that share, and one behind another object."""
    large = xp.asarray(noise(2 * MIB + 8, seed))
    return {"large": large, "view": large[100:200], "small": xp.asarray(noise(100, seed)), "behind": [xp.zeros(5)]}


def same_on_gpu(one, other):
    return (
        all(np.array_equal(one[name].get(), other[name].get()) for name in ("large", "view", "small"))
        and np.array_equal(one["behind"][0].get(), other["behind"][0].get())
        and one["view"].data.mem is one["large"].data.mem
    )


@pytest.mark.parametrize("saved_before", [True, False])
def test_memory_of_a_gpu_is_read_before_the_copy_is_made(copies, gate, xp, saved_before):
    names = on_gpu(xp, 1)
    if saved_before:
        copies.saver.save(names, cell="1")
    names["large"][:] = 7
    names["small"][:] = 8
    names["later"] = xp.full(100_000, 2.0)
    copies.begin({**names, "gate": gate})
    expected = {**on_gpu(xp, 1)}
    expected["large"][:], expected["small"][:] = 7, 8
    names["large"][:], names["small"][:], names["later"][:] = 0, 0, 0
    gate.path.touch()
    assert copies.end() == DONE
    found = restored(copies.saver)
    assert same_on_gpu(found, expected)
    assert (found["later"].get() == 2).all()
    copies.saver.save(names, cell="2")
    assert same_on_gpu(restored(copies.saver), names)


def test_a_copy_refuses_where_a_gpus_memory_was_not_looked_for(copies, xp):
    old = [1]
    copies.saver.save({"old": old}, cell="1")
    old.append(xp.zeros(100))  # behind a name that did not lead to a Gpu
    assert copies.save({"old": old}) == REFUSED
    assert not copies.handed_over.exists()
    assert "refused" in copies.saver.why_not_aside()
    with pytest.raises(NotAsideError, match="refused"):
        copies.begin({})
    copies.saver.save({"old": old}, cell="2")
    assert copies.save({"old": old}) == DONE
    assert restored(copies.saver)["old"][0] == 1


def test_what_a_copy_has_looked_through_is_not_looked_through_again_before_the_next(copies, xp):
    names = {**on_gpu(xp, 1), "old": [1]}
    for step in range(3):
        names["small"][:] = step
        assert copies.save(names) == DONE
        assert (restored(copies.saver)["small"].get() == step).all()
    names["old"].append(xp.zeros(100))
    assert copies.save(names) == REFUSED  # as nobody has looked there


def test_nothing_is_looked_through_where_nobody_has_imported_what_could_be_on_a_gpu(copies, monkeypatch):
    for name in (*libraries._ON_DEVICES, "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    looked = []
    monkeypatch.setattr(OneSave, "hold", lambda *_: looked.append(1) or {})
    assert copies.save({"x": 1}) == DONE
    assert not looked
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: True)))
    assert libraries.may_be_on_devices()
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setitem(sys.modules, "cupy", os)
    assert libraries.may_be_on_devices()
    monkeypatch.delitem(sys.modules, "cupy")
    monkeypatch.setattr(libraries, "_entry_points", lambda: (EntryPoint("theirs", "here:there", "codecs"),))
    assert not libraries.may_be_on_devices()
    monkeypatch.setitem(sys.modules, "theirs", os)
    assert libraries.may_be_on_devices()


def test_new_names_that_lead_far_do_not_keep_known_memory_of_a_gpu_from_being_read(copies, xp, monkeypatch):
    copies.saver.save({"kept": (kept := xp.zeros(100))}, cell="1")
    monkeypatch.setattr(saver, "_LOOK_S", 0.005)
    many = [[number] for number in range(300_000)]
    assert copies.save({"many": many, "kept": kept}) == DONE


SHARED = {
    "of a file": lambda path: np.memmap(path, dtype=np.uint8, mode="w+", shape=(MIB,)),
    "of a part of a file": lambda path: np.memmap(path, dtype=np.uint8, mode="w+", shape=(MIB,))[100:200],
    "of a file that others write": lambda path: np.memmap(path.with_name("there"), dtype=np.uint8, mode="r"),
    "as another array": lambda path: np.asarray(np.memmap(path.with_name("there"), dtype=np.uint8, mode="r")),
    "without a file": lambda _: np.frombuffer(mmap.mmap(-1, 5000), dtype=np.uint8),
}


@pytest.fixture
def shared(tmp_path):
    (tmp_path / "there").write_bytes(bytes(MIB))
    return {kind: functools.partial(new, tmp_path / "mapped") for kind, new in SHARED.items()}


@pytest.mark.parametrize("kind", SHARED)
def test_no_copy_is_made_where_names_show_memory_that_goes_on_changing(copies, shared, kind):
    """Known before, so that whoever waits for the save can wait for one of the process itself."""
    copies.saver.save({"x": 1}, cell="1")
    held = [shared[kind]()]
    for cell in ("2", "3"):
        with pytest.raises(NotAsideError, match="shared with other processes"):
            copies.begin({"held": held, "x": 1})
        copies.saver.save({"held": held, "x": 1}, cell=cell)
    copies.saver.save({"x": 1}, cell="4")
    private = np.frombuffer(mmap.mmap(-1, 5000, flags=mmap.MAP_PRIVATE), dtype=np.uint8)
    assert copies.save({"private": private, "x": 1, "array": noise(3 * MIB, 1)}) == DONE
    assert copies.save({"x": 2}) == DONE


def test_locks_that_processes_share_are_no_memory_that_names_show(copies):
    copies.saver.save({"x": 1}, cell="1")
    kept = [multiprocessing.get_context("spawn").Lock() for _ in range(3)]
    assert copies.save({"x": 2}) == DONE
    del kept


@pytest.mark.parametrize("kind", SHARED)
def test_memory_that_the_process_goes_on_changing_is_not_for_a_copy(copies, shared, kind):
    mapped = shared[kind]()
    copies.saver._copies._shared = SharedMemory()  # mapped long before
    assert copies.save({"late": mapped, "x": 1}) == REFUSED
    assert "late" not in (restored(copies.saver) if copies.handed_over.exists() else {})


def test_a_copy_refuses_to_leave_out_what_the_process_itself_might_save(copies):
    mine = os.getpid()

    class OnlyHere:
        def __reduce__(self):
            if os.getpid() != mine:
                raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
            return OnlyHere, ()

    names = {"x": 1, "here": OnlyHere(), "never": (n for n in ())}
    copies.saver.save(names, cell="1")
    names["x"] = 2
    assert copies.save(names) == REFUSED
    assert copies.saver.save(names, cell="2").missing[0].name == "never"
    del names["here"]
    assert copies.save(names) == DONE


def test_a_new_name_that_cannot_be_saved_keeps_no_other_one_from_being_saved_by_a_copy(copies):
    copies.saver.save({"x": 1, "_": 1}, cell="1")
    names = {"x": 2, "_": (n for n in ()), "new": (n for n in ()), "y": 3}
    assert copies.save(names) == REFUSED  # the process itself might save it
    assert copies.handed_over.exists()
    assert restored(copies.saver) == {"x": 2, "y": 3}
    assert {missing.name for missing in copies.saver.save(names, cell="2").missing} == {"_", "new"}
    assert copies.save(names) == DONE


@pytest.mark.parametrize("library", aside._NOT_COPIED)
def test_a_process_whose_libraries_do_not_bear_it_is_not_copied(copies, monkeypatch, library):
    monkeypatch.setitem(sys.modules, library, os)
    with pytest.raises(NotAsideError, match=library):
        copies.begin({})


def test_a_process_that_has_no_room_for_a_copy_is_not_copied(copies, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(copies.saver._room, "memory_bytes", lambda _: MIB)
        with pytest.raises(NotAsideError, match="memory is too short"):
            copies.begin({})
    monkeypatch.setattr(debuggers, "fork", refuse)
    copies.saver._committed.arena._budget._asked_at = float("-inf")
    copies.saver._committed.arena._budget.left_bytes = 0
    with pytest.raises(NotAsideError, match="Resource temporarily unavailable"):
        copies.begin({})


def refuse():
    raise BlockingIOError(11, "Resource temporarily unavailable")


@pytest.mark.long("threads beside a copy")
def test_threads_of_the_process_do_not_hold_up_the_copy(copies):
    """What they hold when the copy is made, nobody there lets go."""
    stop = threading.Event()

    def work():
        lock = threading.Lock()
        while not stop.is_set():
            with lock:
                sum(range(1000))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for step in range(10):
            assert copies.save(namespace(step, 2)) == DONE
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert same(restored(copies.saver), namespace(9, 2))


def test_a_stop_from_outside_reaches_the_copy(copies, gate):
    def stop():
        if gate.path.exists():
            raise SaveStoppedError

    copies.begin({"gate": gate, **namespace(1, 2)}, stop=stop)
    gate.path.touch()
    assert copies.end() == STOPPED
