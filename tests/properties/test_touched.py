"""What a save after a cell leaves as it was saved is as it was saved, whatever cells do that can be followed."""

from __future__ import annotations

import contextlib
import sys
import weakref

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from nls_jupyter.saved_state import Saver, order, other_threads
from saved_state_roundtrip import restore

# -- a library, which keeps what it is given ------------------------------------------------------------------------
registered, kept, watched = [], [], []


def register(function):
    registered.append(function)


def fire():
    for function in registered:
        function()


def keep(thing):
    kept.append(thing)


def poke():
    for thing in kept:
        thing.append(len(thing))


def watch(thing):
    watched.append(weakref.ref(thing))


def poke_watched():
    for reference in watched:
        reference().part = len(watched)


def drop():
    registered.clear()
    kept.clear()
    watched.clear()


class Node:
    """Of a library."""


# -- cells ----------------------------------------------------------------------------------------------------------
CELLS = (
    "{x} = [{n}]",
    "{x} = dict(k={n})",
    "{x} = ({y}, [{n}])",
    "{x} = lib.Node()",
    "{x} = np.arange({n})",
    "{x} = {y}",
    "{x} = {y}[1:]",
    "del {x}",
    "{x}.part = {y}",
    "{x}.append({y})",
    "{x}.append({n})",
    "{x}['k'] = {y}",
    "{x} += 1",
    "{x}[0] += 1",
    "{x}.clear()",
    "[*map({x}.append, range({n}))]",
    "{x}, {y} = {y}, {x}",
    "def {f}(): {x}.append({n})",
    "def {f}(): return {g}()",
    "def {f}(into={x}): into.append({n})",
    "def {f}():\n    global {x}\n    {x} = [{y}]",
    "def {f}():\n    def inner(): {x}.append({y})\n    return inner()",
    "{f} = lambda: {x}.append({n})",
    "{f} = (lambda into: lambda: into.append({n}))({x})",
    "{f} = {x}.append",
    "{f} = __import__('functools').partial({g})",
    "{f}()",
    "{x}.act = {f}",
    "{x}.act()",
    "{x}.append({f}); {x}[-1]()",
    "class {k}:\n    def __init__(self): self.own = {x}\n    def go(self): {y}.append({n})",
    "class {k}:\n    def go(self): self.own = [{y}]\n    def __del__(self): {x}.append({n})",
    "class {k}({j}):\n    def go(self):\n        super().go()\n        {x}.append({n})",
    "{x} = {k}()",
    "{x} = [{k}()]",
    "{k}().go()",
    "{x}.go()",
    "{x}.own.append({n})",
    "{k}.shared = {x}",
    "{x}.shared.append({n})",
    "{x} = ({y}.append(i) for i in range({n}))",
    "next({x})",
    "lib.register({f})",
    "lib.register(lambda: {x}.append({n}))",
    "lib.register({x}.go)",
    "lib.register({k}().go)",
    "lib.register(({x}.append(i) for i in range(9)).__next__)",
    "lib.fire()",
    "lib.keep({x})",
    "lib.keep({k}().__dict__.setdefault('mine', []))",
    "lib.poke()",
    "lib.watch({x})",
    "lib.poke_watched()",
    "lib.stands_there = {x}",
    "lib.stands_there.append({n})",
    "lib.stands_there.part = {n}",
    "lib.drop()",
    "{x} = weakref.ref({y})",
    "{x}().part = {n}",
    "1 / 0",
)
NAMES = st.sampled_from("abcd")
FUNCTIONS = st.sampled_from("fgh")
CLASSES = st.sampled_from("KJ")


@st.composite
def cells(draw):
    filled = {
        "x": NAMES,
        "y": NAMES,
        "n": st.integers(2, 5),
        "f": FUNCTIONS,
        "g": FUNCTIONS,
        "k": CLASSES,
        "j": CLASSES,
    }
    return draw(st.sampled_from(CELLS)).format(**{key: draw(values) for key, values in filled.items()})


class Notebook:
    """Cells in a namespace, saved after each."""

    def __init__(self):
        self.names = {"__name__": "__main__", "lib": sys.modules[__name__], "np": np, "weakref": weakref}
        self.saver = Saver()
        self.run("a, b, c, d = [1], [2], [3], [4]")
        self.save()

    def user(self):
        return {name: value for name, value in self.names.items() if not name.startswith("__")}

    def run(self, text):
        code = compile(text, "<cell>", "exec")
        self.saver.touched.ran(code)
        with contextlib.suppress(Exception):
            exec(code, self.names)
        self.saver.touched.ran(code)

    def save(self, *, after_cell=False):
        manifest = self.saver.save(self.user(), cell=None, function_globals=self.names, after_cell=after_cell)
        self.saver.look(self.user(), function_globals=self.names)
        return manifest

    def close(self):
        self.saver.close()
        drop()
        globals().pop("stands_there", None)


def saved(saver):
    """As another process restores it: in this one, classes would be those that are there."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", weakref.WeakValueDictionary())
        patch.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", weakref.WeakKeyDictionary())
        restore(saver.descriptors(), found)
    return found


class Portrait:
    """Equal for namespaces that hold the same, and share the same. Keeps nothing of what it has seen."""

    def __init__(self, names, only):
        self.numbers, self.parts, seen = {}, [], []
        self.names = [(name, self._of(names[name], seen)) for name in sorted(only)]
        del self.numbers

    def __eq__(self, other):
        return (self.names, self.parts) == (other.names, other.parts)

    def _of(self, thing, seen):
        if isinstance(thing, (int, str, float, bytes, type(None))):
            return thing
        if id(thing) not in self.numbers:
            number = self.numbers[id(thing)] = len(self.numbers)
            seen.append(thing)
            self.parts.append((number, type(thing).__name__, self._content(thing, seen)))
        return f"#{self.numbers[id(thing)]}"

    def _content(self, thing, seen):
        if isinstance(thing, (list, tuple)):
            return [self._of(part, seen) for part in thing]
        if isinstance(thing, dict):
            return [(key, self._of(part, seen)) for key, part in thing.items()]
        if isinstance(thing, np.ndarray):
            return thing.tolist()
        if isinstance(thing, weakref.ref):
            return self._of(thing(), seen)
        if type(thing).__module__ in {"__main__", __name__}:
            return [(key, self._of(part, seen)) for key, part in vars(thing).items()]
        return None


@pytest.fixture(autouse=True)
def every_component_by_itself(monkeypatch):
    monkeypatch.setattr(order, "_SMALL_NODES", -1)
    monkeypatch.setattr(other_threads, "run_times_ns", dict)  # those of whoever runs the tests
    monkeypatch.delitem(sys.modules, "IPython.extensions.autoreload", raising=False)  # theirs as well


PROGRAMS = st.lists(cells(), min_size=1, max_size=12)


@settings(max_examples=examples(40), deadline=None)
@given(PROGRAMS)
def test_nothing_that_can_be_followed_is_missed(texts):
    nothing_is_missed(texts)


@pytest.mark.long("random programs: as many as an eighth of them are tried here")
@pytest.mark.timeout(600)  # each saver reads what is mapped, which is much in a process that has run other tests
@settings(max_examples=examples(120), deadline=None)
@given(PROGRAMS)
def test_nothing_that_can_be_followed_is_missed_in_many_programs(texts):
    nothing_is_missed(texts)


def nothing_is_missed(texts):
    notebook = Notebook()
    for text in texts:
        notebook.run(text)
        manifest = notebook.save(after_cell=True)
        found = saved(notebook.saver)
        data = (set("abcd") & notebook.names.keys()) - {missing.name for missing in manifest.missing}
        assert Portrait(found, data) == Portrait(notebook.names, data)
    notebook.close()


PLAIN_CELLS = st.tuples(st.sampled_from([text for text in CELLS[:17] if "Node" not in text]), NAMES, NAMES).map(
    lambda drawn: drawn[0].format(x=drawn[1], y=drawn[2], n=3)
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(PLAIN_CELLS, max_size=5), st.sampled_from("abcd"))
def test_what_changes_in_secret_is_seen_by_the_next_whole_save_and_counted(texts, name):
    notebook = Notebook()
    for text in texts:
        notebook.run(text)
        notebook.save(after_cell=True)
    assert not notebook.saver.missed
    secret = type(notebook.names.get(name)) is list
    if secret:
        notebook.names[name].append("in secret")
    notebook.save(after_cell=True)
    notebook.save()
    found = saved(notebook.saver)
    assert Portrait(found, found.keys() & set("abcd")) == Portrait(notebook.names, notebook.names.keys() & set("abcd"))
    assert not secret or name in notebook.saver.missed
    notebook.close()
