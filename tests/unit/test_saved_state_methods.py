"""A name for a method of an object leads to that object, whatever language the method is written in."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from nls_jupyter import saved_state
from saved_state_roundtrip import cells, restore, roundtrip

_SETUP = """
import collections, numpy as np
rows = [{'i': i} for i in range(2000)]
cache = {i: [i] for i in range(2000)}
seen = set(); queue = collections.deque(); array = np.zeros(3)
ordered = collections.OrderedDict(a=1); ordered.note = [1]
class Trainer:
    def __init__(self):
        self.history = []
        self.log = self.history.append
    @classmethod
    def make(cls): return cls()
trainer = Trainer()
class Slotted:
    __slots__ = ('a',)
"""


@pytest.fixture
def saver():
    with contextlib.closing(saved_state.Saver()) as saver:
        yield saver


def saved_twice(saver, names, edit):
    """What comes back after a save, an edit and a save."""
    saver.save(saved_state.user_names(names, {}), cell=None, function_globals=names)
    exec(edit, names)
    manifest = saver.save(saved_state.user_names(names, {}), cell=None, function_globals=names)
    assert not manifest.missing
    assert not manifest.changed
    again = {}
    assert not restore(saver.descriptors(), again).missing
    return again


@pytest.mark.parametrize(
    ("method", "edit", "check"),
    [
        ("rows.append", "method({'i': -1})", "len(rows) == 2001 and method.__self__ is rows"),
        ("cache.get", "cache[9999] = ['new']", "method(9999) is cache[9999]"),
        ("cache.__getitem__", "cache[9999] = ['new']", "method(9999) is cache[9999]"),
        ("cache.__len__", "cache[9999] = ['new']", "method() == 2001 and method.__self__ is cache"),
        ("seen.add", "method(7)", "seen == {7} and method.__self__ is seen"),
        ("queue.append", "method(7)", "list(queue) == [7] and method.__self__ is queue"),
        ("array.fill", "method(7)", "array.tolist() == [7, 7, 7] and method.__self__ is array"),
        ("ordered.update", "method(b=2)", "ordered['b'] == 2 and method.__self__ is ordered"),
        ("trainer.log", "method(3)", "trainer.history == [3] and method.__self__ is trainer.history"),
        ("Trainer.make", "Trainer.more = 3", "type(method()) is Trainer and Trainer.more == 3"),
        ("Slotted.a", "made = Slotted(); made.a = 3", "method is Slotted.a and method.__get__(made) == 3"),
    ],
)
def test_it_goes_on_with_the_object_that_other_names_have(saver, method, edit, check):
    names = cells(f"{_SETUP}method = {method}\n")
    assert eval(check, saved_twice(saver, names, edit))


def test_attributes_of_an_ordered_dict_come_back_as_they_are_now(saver):
    names = cells(f"{_SETUP}plain = collections.OrderedDict(b=2)\n")
    again = saved_twice(saver, names, "ordered.note.append(2); plain.note = 'late'")
    assert (again["ordered"], again["ordered"].note, again["plain"].note) == ({"a": 1}, [1, 2], "late")


@pytest.mark.parametrize(
    "source",
    [
        "from random import random as draw, seed",
        "from random import gauss, seed\ndraw = lambda: gauss(0, 1)",
        "from numpy.random import rand as draw, seed",
    ],
)
def test_a_function_that_a_library_exports_shares_the_librarys_own_state(saver, source):
    before = random.getstate(), np.random.get_state()
    try:
        again = saved_twice(saver, cells(source), "seed(5)")
        again["seed"](4)
        drawn = again["draw"]()
        random.seed(4)
        np.random.seed(4)
        assert drawn in {random.random(), np.random.rand()} or drawn == random.Random(4).gauss(0, 1)
        assert again["seed"] in {random.seed, np.random.seed}
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def test_a_dict_whose_keys_are_its_attributes_stays_one(saver):
    names = cells(
        "class Config(dict):\n  def __init__(self, **k):\n    super().__init__(**k)\n    self.__dict__ = self\n"
        "config = Config(lr=1)"
    )
    again = saved_twice(saver, names, "config.depth = 3")
    config = again["config"]
    assert (config.depth, config["lr"]) == (3, 1)
    config.lr = 2
    assert config["lr"] == 2


def test_attributes_that_go_by_another_name_too_stay_shared(saver):
    names = cells(
        "import argparse\nargs = argparse.Namespace(lr=1)\nconfig = vars(args)\n"
        "class Slotted:\n  __slots__ = ('a', '__dict__')\n"
        "slotted = Slotted(); slotted.a = [1]; slotted.b = 2; others = vars(slotted)"
    )
    again = saved_twice(saver, names, "config['depth'] = 3; args.seed = 4")
    assert (again["args"].depth, again["config"]["seed"]) == (3, 4)
    again["config"]["lr"] = 2
    assert again["args"].lr == 2
    again["slotted"].c = 3
    assert (again["slotted"].a, again["others"]) == ([1], {"b": 2, "c": 3})


def test_a_static_method_has_the_attributes_that_it_had_and_no_others() -> None:
    star = (
        "class Star(str):\n"
        "    def __new__(cls): return super().__new__(cls, '*')\n"
        "    @staticmethod\n"
        "    def noted(): pass\n"
        "vars(Star)['noted'].by = 'me'\n"
    )
    before, after = cells(star)["Star"], roundtrip(star)["Star"]
    kept, found = [[set(vars(vars(kind)[name])) for name in ("__new__", "noted")] for kind in (before, after)]
    assert found == kept
    assert not kept[0]
    assert (after(), vars(after)["noted"].by) == ("*", "me")
