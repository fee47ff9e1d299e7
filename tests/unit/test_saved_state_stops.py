"""A save that is asked to stop stops where it does no harm, and no signal ends one anywhere else."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading

import numpy as np
import pytest

from nls_jupyter import saved_state
from nls_jupyter.between import held_signals
from nls_jupyter.between.save_stops import SaveStops
from nls_jupyter.saved_state import Saver, SaveStoppedError, arena, watchdog, window
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.window import Window
from nls_scheduler.units.clock import monotonic_s
from saved_state_roundtrip import restore

MIB = 1 << 20
WITHIN_S = 60


def noise(size_bytes, seed):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


def namespace(seed, mebibytes):
    shared = [seed]
    return {
        "array": noise(mebibytes * MIB + 17, seed),
        "kept": noise(2 * MIB, 0),
        "small": {"shared": shared, "others": [noise(1000, seed), "text" * 5000]},
        "shared": shared,
    }


def same(one, other):
    return (
        repr(one.keys()) == repr(other.keys())
        and all(np.array_equal(one[name], other[name]) for name in ("array", "kept"))
        and one["shared"] == other["shared"]
        and one["small"]["shared"] is one["shared"]
    )


def restored(saver):
    """What would come back, from copies: the saver goes on with its own files."""
    copies, found = [], {}
    try:
        for descriptor in saver.descriptors():
            copies.append(os.memfd_create("copy"))
            size = os.fstat(descriptor).st_size
            assert os.pwrite(copies[-1], os.pread(descriptor, size, 0), 0) == size
        report = restore(copies, found)
    finally:
        for copy in copies:
            os.close(copy)
    assert not report.missing
    return found


@pytest.fixture
def growing(monkeypatch):
    """An arena that has memory to overwrite, and is moved in the address space when it grows."""
    monkeypatch.setattr(window, "_SMALLEST_BYTES", MIB)
    with contextlib.closing(Saver()) as saver:
        saver.save(namespace(1, 3), cell="1")
        saver.save(namespace(2, 6), cell="2")
        yield saver


class StopAt:
    """Stops a save when it asks for the n-th time."""

    def __init__(self, calls):
        self.left = calls

    def __call__(self):
        self.left -= 1
        if self.left < 0:
            raise SaveStoppedError


def test_a_save_that_is_stopped_anywhere_leaves_the_state_before_and_the_next_one_is_whole(growing):
    stands = namespace(2, 6)
    for calls in itertools.count():
        wanted = namespace(3 + calls, 2 + calls % 9)
        stop = StopAt(calls)
        with contextlib.suppress(SaveStoppedError):
            growing.save(wanted, cell="stopped", stop=stop)
            stands = wanted
        if calls % 3 == 0 or stop.left >= 0:
            assert same(restored(growing), stands)
        if stop.left >= 0:
            break
        if calls % 2:
            stands = namespace(1000 + calls, 2 + calls % 5)
            manifest = growing.save(stands, cell="whole")
            assert not manifest.missing
            assert same(restored(growing), stands)
    assert calls > 10


class CtrlCAt:
    """SIGINT at the n-th step that Python code takes in a save."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self, *_):
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.long("Ctrl-C at each moment of a save")
def test_ctrl_c_at_any_moment_of_a_save_comes_after_it(growing, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # all that is written is written by the main thread
    for steps in itertools.count(1, 173):
        wanted = namespace(steps, 2 + steps % 7)
        ctrl_c = CtrlCAt(steps)
        with contextlib.suppress(KeyboardInterrupt):
            sys.setprofile(ctrl_c)
            growing.save(wanted, cell=str(steps))
        sys.setprofile(None)
        # The first one comes before the save has begun.
        assert steps == 1 or saved_state.read_manifest(growing.descriptors()).cell == str(steps)
        assert growing.save(wanted, cell="again").missing == ()
        assert same(restored(growing), wanted)
        if ctrl_c.left > 0:
            break
    assert steps > 173


def test_ctrl_c_while_the_window_moves_comes_when_the_save_is_over(growing, monkeypatch):
    real, moved = window._libc.mremap, []

    def mremap(*args):
        address = real(*args)
        if not moved:  # a later move, outside of a save, would end the tests
            signal.raise_signal(signal.SIGINT)
        moved.append(address)
        return address

    growing.save(namespace(3, 12), cell="3")
    growing.save(namespace(4, 24), cell="4")
    # The machine has got so much more that the window does not reach over it.
    arena = growing._committed.arena
    monkeypatch.setattr(arena._budget, "_asked_at", float("-inf"))
    monkeypatch.setattr(type(arena._room), "memory_bytes", lambda *_: 1 << 41)
    monkeypatch.setattr(window, "_libc", _With(window._libc, mremap=mremap))
    with pytest.raises(KeyboardInterrupt):
        growing.save(namespace(5, 30), cell="5")
    assert moved
    assert same(restored(growing), namespace(5, 30))


class _With:
    """An object with some attributes replaced."""

    def __init__(self, whole, **replaced):
        self.__dict__.update(replaced)
        self._whole = whole

    def __getattr__(self, name):
        return getattr(self._whole, name)


def test_the_watchdog_interrupts_nothing_that_writes(growing, monkeypatch):
    asked, harmed = [], []

    def stop():
        if asked:
            raise SaveStoppedError

    def barked_at(write):
        def writing(*args):
            asked.append(write)
            try:
                signal.raise_signal(signal.SIGALRM)  # it has waited long enough
            except BaseException:
                harmed.append(write)
                raise
            return write(*args)

        return writing

    with monkeypatch.context() as patch:
        patch.setattr(os, "sched_getaffinity", lambda _: {0})  # the main thread writes
        patch.setattr(Window, "write", barked_at(Window.write))
        patch.setattr(arena, "_pwrite", barked_at(arena._pwrite))
        with pytest.raises(SaveStoppedError):
            growing.save(namespace(3, 8), cell="3", stop=stop)
    assert asked
    assert not harmed
    growing.save(namespace(3, 8), cell="3")
    assert same(restored(growing), namespace(3, 8))


class Endless:
    def __init__(self):
        self.begun = threading.Event()

    def __reduce__(self):
        self.begun.set()
        while True:
            threading.Event().wait(60)


def test_code_of_an_object_that_does_not_end_is_stopped_too():
    endless, asked = Endless(), threading.Event()
    asking = threading.Thread(target=lambda: endless.begun.wait(WITHIN_S) and asked.set())
    asking.start()

    def stop():
        if asked.is_set():
            raise SaveStoppedError

    with contextlib.closing(Saver(patience_s=WITHIN_S)) as saver:
        saver.save({"x": 1}, cell="1")
        with pytest.raises(SaveStoppedError):
            saver.save({"x": 2, "endless": endless}, cell="2", stop=stop)
        asking.join()
        assert restored_plain(saver) == {"x": 1}
        saver.save({"x": 3}, cell="3", stop=lambda: None)
        assert restored_plain(saver) == {"x": 3}


@pytest.fixture
def clock(monkeypatch):
    """The watchdog's time stands still but for what is added to it."""
    now = [1000.0]
    monkeypatch.setattr(watchdog, "monotonic_s", lambda: now[0])
    return now


def test_code_in_c_that_took_long_and_has_returned_is_not_stuck(clock):
    """CUDA's initialization takes longer than the patience where there are many Gpus, or a driver compiles."""
    dog = watchdog.Watchdog(10.0)
    with dog.watching():
        clock[0] += 25.0
        dog._bark(signal.SIGALRM, None)
        for _ in range(18):
            clock[0] += 0.5
            dog._bark(signal.SIGALRM, None)
        clock[0] += 0.5
        with pytest.raises(watchdog.StuckError):
            dog._bark(signal.SIGALRM, None)


@pytest.mark.parametrize("early", [True, False])
def test_a_setting_that_is_stuck_costs_no_other_one(early):
    def stuck(_=None):
        raise watchdog.StuckError("its own code did nothing for 10 s")

    applied = []
    interpreter = saved_state.Interpreter()
    interpreter._aspects = [
        Aspect("one", lambda: 1, stuck, early=early),
        Aspect("two", lambda: 2, applied.append, early=early),
    ]
    stored, missing = interpreter.capture()
    assert missing == []
    assert [name.name for name in interpreter.apply(stored, early=early)] == ["one"]
    assert applied == [2]
    interpreter._aspects[0] = Aspect("one", stuck, stuck)
    assert [name.name for name in interpreter.capture()[1]] == ["one"]


def restored_plain(saver):
    found = {}
    restore(saver.descriptors(), found)
    return found


class ComesBackWithCtrlC:
    def __reduce__(self):
        return come_back, ()


def come_back():
    signal.raise_signal(signal.SIGINT)
    return "back"


def test_ctrl_c_in_a_restore_loses_no_name():
    with contextlib.closing(Saver()) as saver:
        saver.save({"a": 1, "thing": ComesBackWithCtrlC(), "b": 2}, cell=None)
        found = {}
        with pytest.raises(KeyboardInterrupt):
            restore(saver.descriptors(), found)
    assert found == {"a": 1, "thing": "back", "b": 2}


@pytest.fixture
def handler():
    """One of the user's, which notes what it gets."""
    got = []

    def handle(number, frame):
        got.append(number)

    before = signal.signal(signal.SIGUSR1, handle)
    yield handle, got
    signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_is_held_is_handled_once_and_afterwards(handler):
    handle, got = handler
    with held_signals.held():
        with held_signals.held():
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        assert not got
        assert held_signals.waits(signal.SIGUSR1)
        assert not held_signals.waits(signal.SIGINT)
        assert held_signals.handler_of(signal.SIGUSR1) is handle
    assert got == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGUSR1) is handle
    assert held_signals.handler_of(signal.SIGUSR1) is handle
    assert not held_signals.waits(signal.SIGUSR1)


def test_ctrl_c_does_not_cost_another_signal_its_handler(handler):
    _, got = handler

    @held_signals.held()
    def both():
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        both()
    assert got == [signal.SIGUSR1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_is_set_while_signals_are_held_stays(handler):
    with held_signals.held():
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN


def test_other_threads_have_no_signals_to_hold(handler):
    handle, _ = handler
    seen = []

    def look():
        with held_signals.held():
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [handle]


def test_a_stop_is_for_the_saves_up_to_its_number_on_the_other_side_too():
    kernel = SaveStops.create()
    child = os.fork()
    if child == 0:
        kernel.stop(3)
        kernel.stop(2)  # no less than before
        os._exit(0)
    os.waitpid(child, 0)
    assert [number for number in range(1, 6) if kernel.asked(number)] == [1, 2, 3]
    kernel.close()
    kernel.stop(9)  # nobody is there any more


def test_nothing_asks_a_save_to_stop_from_the_beginning():
    stops = SaveStops.create()
    assert not stops.asked(1)
    stops.close()


def test_a_stopped_save_is_no_error_of_an_objects_own_code():
    assert not issubclass(saved_state.SaveStoppedError, Exception)


def test_a_process_of_another_version_than_its_kernel_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.memfd_create("of-another-version")
    os.ftruncate(descriptor, 8)
    monkeypatch.setenv(SaveStops.variable, str(descriptor))
    with pytest.raises(SystemExit, match="upgraded under this kernel"):
        SaveStops.check()
    os.ftruncate(descriptor, SaveStops.size_bytes)
    SaveStops.check()
    os.close(descriptor)
    with pytest.raises(SystemExit, match="upgraded under this kernel"):
        SaveStops.check()
    monkeypatch.delenv(SaveStops.variable)
    with pytest.raises(SystemExit, match="upgraded under this kernel"):
        SaveStops.check()


@pytest.mark.parametrize("what", ["trace", "profile"])
def test_who_traces_the_process_is_not_called_for_a_save_where_the_watchdogs_alarm_would_end_that(what):
    before, seen = getattr(sys, f"get{what}")(), []

    class Thing:
        def __reduce__(self):
            return Thing, ()

    def called(frame, event, _):
        seen.append(frame.f_code)
        until = monotonic_s() + WITHIN_S
        while frame.f_code is Thing.__reduce__.__code__ and monotonic_s() < until:
            pass

    with contextlib.closing(Saver(patience_s=2.0)) as saver:
        saver.save({"other": namespace}, cell=None)  # what is imported for a save is
        try:
            getattr(sys, f"set{what}")(called)
            assert not saver.save({"thing": Thing()}, cell=None).missing
            assert getattr(sys, f"get{what}")() is called
            namespace(0, 1)
        finally:
            getattr(sys, f"set{what}")(before)
    assert namespace.__code__ in seen
    assert Thing.__reduce__.__code__ not in seen
