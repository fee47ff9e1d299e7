"""CuPy within the allowance, by way of the simulated CuPy, which goes through the same allocator code."""

from __future__ import annotations

import gc
import threading

import pytest

from gpu_simulation import CONTEXT, GIB, simulated_gpus
from nls_jupyter import simulated_cupy as cupy
from nls_jupyter.gpu_process.allocators import Answer, Asking, Follower
from nls_jupyter.gpu_process.allocators.cupy_pool import CupyPool
from nls_scheduler.processes.proc import CONTEXT_VARIABLE

OutOfMemoryError = cupy.cuda.memory.OutOfMemoryError


class Daemon:
    """Answers what is asked, at once; `then` is done before that."""

    def __init__(self):
        self.questions = []
        self.answer = Answer(granted=False, reason="alice holds 9 GiB")
        self.then = lambda: None
        self.asking = Asking(self.hear, timeout_s=5.0)

    def hear(self, question):
        self.questions.append(question)
        self.then()
        self.asking.answer(question["number"], self.answer)


@pytest.fixture
def simulation(tmp_path, monkeypatch):
    with simulated_gpus(tmp_path, monkeypatch) as driver:
        monkeypatch.setenv(CONTEXT_VARIABLE, str(CONTEXT))
        monkeypatch.setenv("NLS_SIMULATED_CACHE", "1")
        yield driver


@pytest.fixture
def daemon():
    return Daemon()


@pytest.fixture
def follower(simulation, daemon, monkeypatch):
    """A follower whose CuPy is there, and is as before when the test is over."""
    assert simulation is not None
    monkeypatch.setattr(cupy, "_default_memory_pool", cupy.cuda.MemoryPool())
    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    follower = Follower(daemon.asking)
    yield follower
    cupy.cuda.set_allocator(before)
    gc.collect()


def gib(size):
    return cupy.zeros(int(size * GIB), cupy.uint8)


def test_arrays_of_all_sizes_and_their_caches_stay_within_the_allowance(follower, simulation):
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    kept = [gib(1), gib(2)]
    with pytest.raises(OutOfMemoryError):
        gib(1)
    first = simulation.discover()[0].uuid
    assert simulation.sample()[first].memory_used_bytes == 3 * GIB + CONTEXT
    del kept[1]
    assert gib(1.5).size == 1.5 * GIB, "a cached block of another size makes way"


def test_the_allowance_changes_at_run_time_from_another_thread(follower):
    follower._add(CupyPool(cupy, follower))
    follower.follow(2 * GIB)
    with pytest.raises(OutOfMemoryError):
        gib(3)
    changing = threading.Thread(target=follower.follow, args=(8 * GIB,))
    changing.start()
    changing.join()
    assert gib(3).size == 3 * GIB


def test_a_smaller_allowance_takes_caches_at_once_and_leaves_variables(follower):
    follower._add(CupyPool(cupy, follower))
    follower.follow(8 * GIB)
    kept, dropped = gib(2), gib(4)
    del dropped
    assert follower.held_bytes(0) == 6 * GIB + CONTEXT
    follower.follow(7 * GIB)
    assert follower.held_bytes(0) == 6 * GIB + CONTEXT, "what is allowed stays cached"
    follower.follow(3 * GIB)
    assert follower.held_bytes(0) == 2 * GIB + CONTEXT
    assert int(kept[-1]) == 0


def test_what_was_allocated_before_is_found_and_counts(follower):
    early = gib(3)
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    with pytest.raises(OutOfMemoryError):
        gib(1)
    del early
    assert follower.trim() == 3 * GIB
    assert gib(3).size == 3 * GIB


def test_an_import_alone_asks_cuda_nothing_so_that_a_process_may_stand_by(follower, monkeypatch):
    asked = []
    monkeypatch.setattr(cupy, "__name__", "cupy")
    monkeypatch.setattr(cupy.cuda.MemoryPool, "total_bytes", lambda pool: asked.append(pool) or 0)
    monkeypatch.setattr(cupy.cuda.runtime, "getDevice", lambda: asked.append("device") or 0)
    follower._add(CupyPool(cupy, follower))
    assert (asked, follower.libraries[-1].devices()) == ([], set())


def test_each_device_has_the_whole_allowance(follower):
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    first = gib(3)
    with cupy.cuda.Device(1):
        second = gib(3)
        with pytest.raises(OutOfMemoryError):
            gib(1)
    assert (follower.held_bytes(0), follower.held_bytes(1)) == (3 * GIB + CONTEXT, 3 * GIB + CONTEXT)
    del first, second
    assert follower.trim() == 6 * GIB


def test_two_libraries_share_one_allowance(follower):
    class Other:
        followed = 0

        def held_bytes(self, device):
            return 2 * GIB if device == 0 else 0

        def follow(self):
            self.followed += 1

    pool, other = CupyPool(cupy, follower), Other()
    follower.libraries += [pool, other]
    follower.allowance_bytes = 4 * GIB
    kept = gib(1)
    assert other.followed == 1, "it hears that less is left for it"
    with pytest.raises(OutOfMemoryError):
        gib(1)
    assert kept.size == GIB


def test_a_failed_allocation_asks_with_what_it_lacks_and_says_what_it_heard(follower, daemon, simulation):
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    kept = gib(2)
    with pytest.raises(OutOfMemoryError, match=r"\[scheduler\] Alice holds 9 GiB\.$"):
        gib(3)
    (question,) = daemon.questions
    assert question == {
        "number": 1,
        "gpu": simulation.discover()[0].uuid,
        "bytes": 3 * GIB,
        "held_bytes": 2 * GIB + CONTEXT,
    }
    assert kept.size == 2 * GIB


def test_an_allocation_that_is_granted_is_tried_again_and_nobody_notices(follower, daemon):
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    daemon.answer = Answer(granted=True, reason="8 GiB are free")
    daemon.then = lambda: follower.follow(8 * GIB)
    assert gib(6).size == 6 * GIB
    assert len(daemon.questions) == 1


def test_a_granted_allocation_that_fails_again_is_not_asked_for_twice(follower, daemon):
    follower._add(CupyPool(cupy, follower))
    follower.follow(4 * GIB)
    daemon.answer = Answer(granted=True, reason="8 GiB are free")
    with pytest.raises(OutOfMemoryError, match="8 GiB are free"):
        gib(6)
    assert len(daemon.questions) == 1


def test_a_daemon_that_is_silent_costs_a_bounded_time(follower):
    follower._asking = Asking(lambda question: None, timeout_s=0.01)
    follower._add(CupyPool(cupy, follower))
    follower.follow(GIB)
    with pytest.raises(OutOfMemoryError, match=r"did not answer within 0\.01 s"):
        gib(2)


def test_an_allocator_of_the_users_own_is_left_alone(follower, daemon):
    own = cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(own.malloc)
    follower._add(CupyPool(cupy, follower))
    follower.follow(GIB)
    assert gib(2).size == 2 * GIB
    assert daemon.questions == []
    assert cupy.cuda.get_allocator() == own.malloc


def test_without_an_allowance_there_is_no_bound_but_the_gpu(follower, daemon):
    follower._add(CupyPool(cupy, follower))
    assert gib(12).size == 12 * GIB
    with pytest.raises(OutOfMemoryError):
        gib(17)
    assert len(daemon.questions) == 1
