"""What a save after a cell leaves alone, and what it looks at although no name in the cell leads there."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading

import numpy as np
import pytest

from nls_jupyter.saved_state import Saver, aside, order, other_threads
from saved_state_roundtrip import restore

WITHIN_S = 60


class Notebook:
    """Cells in a namespace, saved after each."""

    def __init__(self, saver):
        self.saver = saver
        self.names = {"__name__": "__main__", "np": np}

    def user(self):
        return {name: value for name, value in self.names.items() if not name.startswith("__")}

    def cell(self, text, *, whole=False):
        """The names that the save after it left."""
        code = compile(text, "<cell>", "exec")
        self.saver.touched.ran(code)
        exec(code, self.names)
        self.saver.touched.ran(code)
        return self.save(whole=whole)

    def save(self, *, whole=False):
        left = set() if whole else self.left()
        manifest = self.saver.save(self.user(), cell=None, function_globals=self.names, after_cell=not whole)
        assert manifest.left == len(left)
        self.saver.look(self.user(), function_globals=self.names)
        return left

    def left(self):
        parts = self.saver._untouched(self.saver._names(self.user(), self.names))
        return {name for part in parts for name in part.component.names}


@pytest.fixture
def notebook(monkeypatch):
    monkeypatch.setattr(order, "_SMALL_NODES", -1)
    monkeypatch.setattr(other_threads, "run_times_ns", dict)  # those of whoever runs the tests
    monkeypatch.delitem(sys.modules, "IPython.extensions.autoreload", raising=False)  # theirs as well
    with contextlib.closing(Saver()) as saver:
        yield Notebook(saver)


def test_the_first_save_looks_at_everything(notebook):
    assert notebook.cell("a, b = [1], [2]") == set()
    assert notebook.cell("a.append(b)") == {"np"}
    assert notebook.cell("c = 1") >= {"a", "b"}


def test_what_only_small_names_hold_is_looked_at_each_time():
    with contextlib.closing(Saver()) as saver:
        notebook = Notebook(saver)
        notebook.cell("a, b = [1], [2]")
        assert notebook.cell("a.append(1)") == set()


@pytest.mark.parametrize(
    "cell",
    [
        "eval('a.append(1)')",
        "globals()['a'].append(1)",
        "import gc",
        "import sys; sys._getframe()",
        "__import__('sys').modules['__main__']",
        "run = eval",
        "e('a.append(1)')",
        "f()",
        "import sys; sys.modules.get(__name__)",
        "f.__code__ = f.__code__",
        "import typing; typing.get_type_hints(f)",
        "import cProfile",
        "dict(weights_only=False)",
        "dict(file=1, allow_pickle=True)",
    ],
)
def test_what_cannot_be_followed_may_touch_anything(notebook, cell):
    notebook.cell("e = exec\ndef f(): return (lambda: vars())()")
    notebook.cell("a = [1]")
    notebook.cell("b = 1")
    assert notebook.cell(cell) == set()
    assert notebook.cell("b = 2") >= {"a"} or "run" in notebook.names


def test_what_functions_share_that_exec_has_made_is_left_unless_one_of_them_may_run(notebook):
    notebook.cell("space, a = {'n': [0]}, [1]\nexec('def bump(): n[0] += 1', space)\nbump = space['bump']; f = [bump]")
    notebook.cell("b = 1")
    assert notebook.cell("b = 2") >= {"space", "bump", "f", "a"}
    assert not notebook.cell("f[0]()") & {"space", "bump", "f"}
    found = {}
    restore(notebook.saver.descriptors(), found)
    assert found["space"]["n"] == [1]
    assert found["f"][0].__globals__ is found["space"]


def test_what_code_says_that_exec_has_made_counts_as_said(notebook):
    notebook.cell("space, a = {}, [1]\nexec('def change():\\n  import gc', space)")
    notebook.cell("b = 1")
    assert "a" in notebook.cell("b = 2")
    assert notebook.cell("space['change']()") == set()


def test_a_cell_that_defines_a_class_touches_what_it_says(notebook):
    notebook.cell("a = [1]\nb = [2]")
    assert "a" in notebook.cell("class C:\n    b.append(3)\n    def m(self): return b")


def test_a_name_with_a_recipe_and_without_it_again_is_looked_at(notebook):
    notebook.cell("a = [1]; b = [a]")
    notebook.saver.recipes["b"] = "[a]"
    notebook.cell("c = 1")
    assert "a" not in notebook.cell("b[0].append(2)")
    del notebook.saver.recipes["b"]
    assert not notebook.cell("c = 2") & {"a", "b"}
    found = {}
    restore(notebook.saver.descriptors(), found)
    assert found["b"][0] is found["a"]


def test_a_function_that_a_signal_has_is_followed(notebook):
    before = signal.getsignal(signal.SIGUSR1)
    try:
        notebook.cell("import signal\na = [1]\nc = [3]\ndef handler(*_): a.append(1)")
        notebook.cell("signal.signal(signal.SIGUSR1, handler)")
        left = notebook.cell("b = 1")
        assert "c" in left
        assert "a" not in left
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_while_a_thread_runs_everything_may_be_touched(notebook, monkeypatch):
    notebook.cell("a = [1]")
    assert "a" in notebook.cell("b = 1")
    monkeypatch.undo()
    monkeypatch.setattr(order, "_SMALL_NODES", -1)
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, args=(WITHIN_S,))
    thread.start()
    try:
        assert notebook.left() == set()
    finally:
        go_on.set()
        thread.join()


def test_views_of_memory_that_somebody_else_has_are_looked_at(notebook):
    elsewhere = np.zeros(3)
    notebook.names["shown"] = elsewhere[:2]
    notebook.cell("own = np.zeros(3)[1:]")
    assert notebook.cell("b = 1") & {"shown", "own"} == {"own"}
    assert elsewhere[0] == 0


def test_what_a_copy_has_saved_since_does_not_stand_in_the_way(notebook, monkeypatch):
    for name in aside._NOT_COPIED:  # whatever other tests have imported
        monkeypatch.delitem(sys.modules, name, raising=False)
    notebook.cell("a, b = [1], [2]")
    code = compile("b.append(1)", "<cell>", "exec")
    exec(code, notebook.names)
    notebook.saver.touched.ran(code)
    over = threading.Event()
    notebook.saver.save_aside(
        notebook.user(), cell=None, function_globals=notebook.names, stop=int, committed=int, over=lambda _: over.set()
    )
    assert over.wait(WITHIN_S)
    notebook.cell("c = [3]")
    found = {}
    restore(notebook.saver.descriptors(), found)
    assert {name: found[name] for name in "abc"} == {"a": [1], "b": [2, 1], "c": [3]}


def test_after_a_restore_everything_is_looked_at_once(notebook):
    notebook.cell("a = [1]")
    with contextlib.closing(Saver()) as saver:
        other = Notebook(saver)
        saver.restore(notebook.saver.descriptors(), other.names)
        assert other.cell("b = 1") == set()
        assert "a" in other.cell("b = 2")
