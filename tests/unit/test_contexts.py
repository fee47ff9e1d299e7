"""A context with its libraries is counted as what the driver shows beside the allocators, from when that is known."""

from __future__ import annotations

import pytest

from nls_jupyter.gpu_process.allocators import Asking, Follower
from nls_jupyter.gpu_process.allocators.contexts import Contexts
from nls_scheduler.processes.proc import CONTEXT_VARIABLE

MIB = 2**20


class Driver:
    """What it shows of this process, by UUID."""

    def __init__(self):
        self.shown = {}
        self.asked = 0
        self.now = 0.0

    def __call__(self, uuid):
        self.asked += 1
        return self.shown.get(uuid)


class Library:
    """On two devices; it allocates whenever it is told to."""

    def __init__(self):
        self.held = {0: 0, 1: 0}
        self.followed = 0

    def devices(self):
        return set(self.held)

    def held_bytes(self, device):
        return self.held[device]

    def follow(self):
        self.followed += 1

    def trim(self):
        return 0


@pytest.fixture
def driver(monkeypatch):
    monkeypatch.setenv(CONTEXT_VARIABLE, str(400 * MIB))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    return Driver()


@pytest.fixture
def library():
    return Library()


@pytest.fixture
def follower(driver, library):
    follower = Follower(Asking(lambda _: None), contexts=Contexts(driver, lambda: driver.now))
    follower._add(library)
    follower.follow(8192 * MIB)
    driver.now += 1
    return follower


def test_until_the_driver_shows_the_process_a_context_is_what_it_is_counted_as(follower, driver, library):
    library.held[0] = 100 * MIB
    follower.look_again()
    assert follower.held_bytes(0) == 500 * MIB
    assert follower.left_bytes(library, 0) == (8192 - 400) * MIB


def test_what_libraries_take_beside_their_allocators_is_not_left_for_these(follower, driver, library):
    library.held[0], driver.shown["GPU-a"] = 100 * MIB, 850 * MIB
    followed = library.followed
    follower.look_again()
    assert follower.left_bytes(library, 0) == (8192 - 750) * MIB
    assert follower.left_bytes(library, 1) == (8192 - 400) * MIB, "of each device its own"
    assert library.followed == followed + 1


def test_a_library_that_follows_no_more_costs_no_cell_its_answer(follower, driver, library, monkeypatch):
    def follow():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(library, "follow", follow)
    driver.shown["GPU-a"] = 850 * MIB
    follower.look_again()
    assert follower.left_bytes(library, 0) == (8192 - 850) * MIB


def test_what_is_the_same_sets_nothing_again_and_the_driver_is_asked_once_a_second(follower, driver, library):
    driver.shown["GPU-a"] = 600 * MIB
    follower.look_again()
    followed, asked = library.followed, driver.asked
    for _ in range(10):
        follower.look_again()
    assert (library.followed, driver.asked) == (followed, asked)
    driver.now += 1
    follower.look_again()
    assert library.followed == followed
    assert driver.asked == asked + 2


def test_an_allocation_in_the_middle_of_the_question_leaves_what_was_known(driver, monkeypatch):
    amounts = iter([100 * MIB, 300 * MIB])
    driver.shown["GPU-a"] = 900 * MIB
    contexts = Contexts(driver, lambda: driver.now)
    assert not contexts.measure(0, lambda: next(amounts))
    assert contexts.bytes(0) == 400 * MIB


def test_a_driver_that_shows_less_than_is_allocated_is_not_believed(driver):
    driver.shown["GPU-a"] = 50 * MIB
    contexts = Contexts(driver, lambda: driver.now)
    assert not contexts.measure(0, lambda: 100 * MIB)
    assert contexts.bytes(0) == 400 * MIB
