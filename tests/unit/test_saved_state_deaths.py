"""What ended a process while it was made is left out by the next one; everything else comes back."""

from __future__ import annotations

import contextlib

import pytest

from nls_jupyter.saved_state import WAITS, Saver
from nls_jupyter.saved_state.carried import DIED

NAMES = ["first", "holder", "number"]


class Deadly:
    """Nobody dies of it here; who is at it when it is made could."""


at: list[str | None] = []
suspects: list[str | None] = []


def make():
    suspects.append(at[-1])
    return Deadly()


class Processes:
    """One process after the other, each with the saved state of the one before."""

    def __init__(self):
        self.savers = [Saver()]
        self.names = {"first": [1], "deadly": Deadly(), "holder": {"b": [2]}, "number": 5}

    @property
    def saver(self):
        return self.savers[-1]

    def save(self):
        return self.saver.save(self.names, cell=None)

    def next(self, deaths=None):
        before, self.names = self.saver, {}
        self.savers.append(Saver())
        self.saver.on_component = at.append
        return self.saver.restore(before.descriptors(), self.names, deaths)

    def close(self):
        for saver in self.savers:
            saver.close()


@pytest.fixture
def processes(monkeypatch):
    monkeypatch.setattr(Deadly, "__reduce__", lambda _: (make, ()))
    at.clear(), suspects.clear()
    with contextlib.closing(Processes()) as them:
        them.save()
        them.next()
        them.save()
        yield them


def reasons(report):
    return {lost.name: lost.reason for lost in report.missing}


def test_who_restores_says_at_which_component_it_is_and_when_it_is_at_none(processes):
    assert len(set(suspects)) == 1
    assert len(set(at)) > 2
    assert at[-1] is None


def test_what_one_process_died_of_is_left_out_and_tried_again_in_one_that_has_the_rest(processes):
    report = processes.next({suspects[0]: 1})
    assert sorted(report.restored) == sorted(processes.names) == NAMES
    assert reasons(report) == {"deadly": DIED}
    assert report.carried == ("deadly",)
    assert processes.saver.try_again(processes.names).restored == ("deadly",)


def test_what_two_processes_died_of_is_tried_again_only_if_somebody_asks_for_it(processes):
    assert reasons(processes.next({suspects[0]: 2})) == {"deadly": WAITS}
    for _ in range(2):
        assert reasons(processes.saver.try_again(processes.names)) == {"deadly": WAITS}
        assert [(name.name, name.not_back) for name in processes.save().carried] == [("deadly", WAITS)]
        assert reasons(processes.next()) == {"deadly": WAITS}
    assert sorted(processes.names) == NAMES
    # Who asked for it, and died of it, waits to be asked again.
    assert reasons(processes.next({suspects[0]: 1})) == {"deadly": WAITS}
    assert processes.saver.try_again(processes.names, asked=True).restored == ("deadly",)
    assert not processes.save().carried


def test_it_can_be_given_up(processes):
    processes.next({suspects[0]: 2})
    processes.saver.forget(["deadly"])
    assert not processes.save().carried
    assert not processes.next().missing
