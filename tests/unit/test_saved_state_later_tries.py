"""What could not be brought back is tried again beside what is alive, and changes nothing of that."""

from __future__ import annotations

import contextlib
import logging
import sys
import weakref

import cloudpickle
import pytest

from nls_jupyter.saved_state import Saver, user_names

BAD = """
class Bad:
    fails = True
    def __setstate__(self, state):
        if fails: raise RuntimeError("no")
        vars(self).update(state)
bad = Bad()
"""
LARGE = """
class Large:
    def __setstate__(self, state):
        import sys
        vars(self).update(state)
        sys.nls_made.add(self)
        sys.nls_alive.append(len(sys.nls_made))
large = Large()
large.size = 1
"""
MAKE = """
def make():
    state = {'n': 0}
    class Held:
        def count(self): state['n'] += 1
    return Held(), lambda: state
"""


class Processes:
    """One process after the other, each with the saved state of the one before; none knows the classes of another."""

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self._savers = contextlib.ExitStack()
        self.saver = None
        self._begin()

    def _begin(self):
        self.saver, self.names = self._savers.enter_context(contextlib.closing(Saver())), {"__name__": "__main__"}
        for name in ("_DYNAMIC_CLASS_TRACKER_BY_ID", "_DYNAMIC_CLASS_TRACKER_BY_CLASS"):
            self._monkeypatch.setattr(cloudpickle.cloudpickle, name, type(getattr(cloudpickle.cloudpickle, name))())

    def run(self, code):
        exec(compile(code, "<cell>", "exec"), self.names)

    def __getitem__(self, expression):
        return eval(expression, self.names)

    def next(self, fails=True):
        self.saver.save(
            user_names(self.names, {"fails": self.names.get("fails")}), cell=None, function_globals=self.names
        )
        before = self.saver
        self._begin()
        self.names["fails"] = fails
        return self.saver.restore(before.descriptors(), self.names)

    def try_again(self):
        return self.saver.try_again(self.names)

    def close(self):
        self._savers.close()


@pytest.fixture
def processes(monkeypatch):
    with contextlib.closing(Processes(monkeypatch)) as them:
        yield them


def test_a_class_has_what_cells_have_given_it_since(processes):
    processes.run("class Stats:\n    n = 0\n    def tell(self): return 'old'\ns = Stats()")
    processes.run(BAD + "bad.kind = Stats")
    assert processes.next().carried == ("bad",)
    processes.run("Stats.n = 5\nStats.more = 1\nStats.tell = lambda self: 'new'")
    assert processes.try_again().carried == ("bad",)
    assert processes["Stats.n, Stats.more, s.tell()"] == (5, 1, "new")
    processes.run("fails = False")
    assert processes.try_again().restored == ("bad",)
    assert processes["bad.kind is Stats and type(s) is Stats"]
    assert processes["Stats.n, Stats.more, s.tell()"] == (5, 1, "new")


def test_an_enumeration_and_its_members_do(processes):
    processes.run("import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\nColor.RED.seen = 0")
    processes.run(BAD + "bad.color = Color.RED")
    assert processes.next().carried == ("bad",)
    processes.run("Color.RED.seen = 7\nColor.default = Color.BLUE")
    processes.try_again()
    assert processes["Color.RED.seen, Color.default.name"] == (7, "BLUE")


def test_a_logger_of_a_class_of_cells_does(processes):
    processes.run("import logging\nclass Mine(logging.Logger): pass")
    processes.run("log = Mine('nls.later')\nlogging.root.manager.loggerDict['nls.later'] = log\nlog.count = 0")
    processes.run(BAD + "bad.log = log")
    try:
        assert processes.next().carried == ("bad",)
        processes.run("log.count = 3")
        processes.try_again()
        assert processes["log.count"] == 3
    finally:
        del logging.root.manager.loggerDict["nls.later"]


def test_what_was_made_in_vain_is_gone_before_it_is_made_again(processes):
    """Else a GPU would have to have room for it twice."""
    processes.run(LARGE + BAD + "bad.large = large")
    sys.nls_made, sys.nls_alive = weakref.WeakSet(), []
    try:
        assert processes.next().carried == ("bad",)
        assert sys.nls_alive == [1, 1]
    finally:
        del sys.nls_made, sys.nls_alive


def test_no_try_shows_a_figure_once_more(processes):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    processes.run("import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()")
    processes.run(BAD + "bad.figure = figure")
    try:
        assert processes.next().carried == ("bad",)
        shown = pyplot.get_fignums()
        pyplot.figure(processes["figure.number"])
        for _ in range(3):
            processes.try_again()
            assert pyplot.get_fignums() == shown
            assert pyplot.gcf() is processes["figure"]
    finally:
        pyplot.close("all")


def test_no_try_takes_the_name_of_a_log_s_handler(processes):
    processes.run("import logging\nhandler = logging.StreamHandler()\nhandler.set_name('nls.later')")
    processes.run(BAD + "bad.handler = handler")
    assert processes.next().carried == ("bad",)
    for _ in range(3):
        processes.try_again()
        assert logging._handlers["nls.later"] is processes["handler"]
    processes.run("fails = False")
    assert processes.try_again().restored == ("bad",)
    assert logging._handlers["nls.later"] is processes["handler"]


def test_what_two_names_share_through_a_class_they_go_on_sharing(processes):
    processes.run(MAKE + "held, state = make()")
    processes.run(BAD + "bad.both = held, state")
    assert processes.next().carried == ("bad",)
    for _ in range(3):
        processes.run("held.count()")
        processes.try_again()
    assert processes["state()"] == {"n": 3}


def test_what_failed_together_and_comes_back_later_still_shares(processes):
    processes.run(MAKE)
    processes.run(BAD + "bad.both = make()")
    assert processes.next().carried == ("bad",)
    processes.try_again()
    processes.run("fails = False")
    assert processes.try_again().restored == ("bad",)
    processes.run("bad.both[0].count()")
    assert processes["bad.both[1]()"] == {"n": 1}


def test_what_was_saved_later_holds_in_the_process_after_as_well(processes):
    processes.run("class Stats:\n    n = 0\ns = Stats()")
    processes.run(BAD + "bad.kind = Stats")
    assert processes.next().carried == ("bad",)
    processes.run("Stats.n = 5")
    assert processes.next().carried == ("bad",)
    assert processes["Stats.n"] == 5
    assert not processes.next(fails=False).carried
    assert processes["Stats.n, bad.kind is Stats"] == (5, True)
