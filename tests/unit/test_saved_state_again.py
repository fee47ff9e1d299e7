"""Saving again: only what changed is written and pickled, and what was shared across saves stays shared."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import weakref

import numpy as np
import pytest

from nls_jupyter import saved_state
from nls_jupyter.saved_state import graph, order, pickler
from nls_jupyter.saved_state.arena import CHUNK_BYTES
from saved_state_roundtrip import cells, restore

MIB = 1 << 20


class Notebook:
    """Names that are saved after each cell."""

    def __init__(self, monkeypatch):
        self.saver = saved_state.Saver()
        self.names = {}
        self.pickled = 0
        make = pickler.Pickler.__init__

        def counting(*args):
            self.pickled += 1
            make(*args)

        monkeypatch.setattr(pickler.Pickler, "__init__", counting)

    def save(self):
        """Bytes written and streams pickled."""
        self.pickled = 0
        names = saved_state.user_names(self.names, {})
        self.manifest = self.saver.save(names, cell=None, function_globals=self.names)
        return self.saver._committed.blobs.written_bytes, self.pickled

    def restored(self):
        namespace = {}
        report = restore(self.saver.descriptors(), namespace)
        assert not report.missing
        return namespace

    def memory_bytes(self):
        return os.fstat(self.saver.descriptors()[0]).st_blocks * 512


@pytest.fixture
def notebook(monkeypatch):
    it = Notebook(monkeypatch)
    with contextlib.closing(it.saver):
        yield it


def noise(size_bytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


def test_what_has_not_changed_is_neither_written_nor_pickled(notebook):
    notebook.names = cells(
        "import math\nclass A:\n  def __init__(self): self.x = [1]\n"
        "many = [{'n': n, 'f': n / 7, 's': str(n), 't': (n, [n])} for n in range(3000)]\n"
        "a = A(); f = lambda x, y=[]: a; text = 'word' * 5000; deep = {'a': {'b': {1, 2}}}; b = bytearray(b'x')\n"
        "import collections, functools, random; draw, shuffle = random.random, random.shuffle\n"
        "class S:\n  __slots__ = ('a',)\n  @classmethod\n  def make(cls): pass\n"
        "add, get, size, slot, make = many.append, deep.get, deep.__len__, S.a, S.make\n"
        "ordered = collections.OrderedDict(a=1); ordered.note = [1]\n"
        "part = functools.partial(add, [1]); part.note = 2\n"
    )
    notebook.names["array"] = noise(3 * MIB)
    notebook.names["view"] = notebook.names["array"][5:]
    written, pickled = notebook.save()
    assert written > 3 * MIB
    assert pickled >= 3
    assert notebook.save() == (0, 0)
    restored = saved_state.user_names(notebook.restored(), {})
    assert set(restored) == {name.name for name in notebook.manifest.saved}


@pytest.mark.parametrize(
    "edit",
    [
        "deep['list'].append(4)",
        "deep['list'][0] = 7",
        "deep['list'].reverse()",
        "deep['key'] = deep.pop('list')",
        "deep['list'] = tuple(deep['list'])",
        "deep['same'] = deep['list']",
        "thing.value = 2",
        "thing.value = 1.0",
        "thing.value = True",
        "del thing.value; thing.other = 1",
        "del slotted.a; slotted.b = 1",
        "Thing.shared = 3",
        "Thing.method = lambda self: 2",
        "Thing.__qualname__ = 'Other'",
        "f.__defaults__ = ([2],)",
        "f.__defaults__[0].append(1)",
        "f.tag = 1",
        "cell()",
        "content[0] = 1",
        "numbers[1] = 5",
        "part.keywords['b'] = 2",
        "queue.rotate(1)",
        "counts['new']",
        "scalar += 1",
        "flags.flags.writeable = False",
        "fields.names = ('x', 'y')",
        "array[3] = 7",
        "array[3:5] = array[5:7] = 9; view = array[1:]",
        "array = array.reshape(-1, 2)",
        # NumPy 2.5 warns of it.
        "import warnings\nwith warnings.catch_warnings(action='ignore'): array.dtype = 'i4'",
        "objects[0] = 'other'",
        "objects[1].append(2)",
        "generator.random()",
        "text = text[:-1] + 'y'",
        "minus = -2",
        "zero = -0.0",
        "new = 1",
        "del deep",
    ],
)
def test_every_change_is_seen(notebook, edit):
    names = notebook.names = cells(
        "import numpy as np, array as arrays, functools, collections\n"
        "class Thing:\n  shared = 2\n  def method(self): return 1\n"
        "class Slotted:\n  __slots__ = ('a', 'b')\n"
        "thing = Thing(); thing.value = 1; slotted = Slotted(); slotted.a = 1\n"
        "deep = {'list': [1, 2, 3], 'x': [1, 2, 3]}\n"
        "def f(x=[]): return x\n"
        "def make():\n  n = 0\n  def cell():\n    nonlocal n\n    n += 1\n    return n\n  return cell\n"
        "cell = make(); content = bytearray(3); numbers = arrays.array('i', [1, 2]); part = functools.partial(f, b=1)\n"
        "queue = collections.deque([1, 2, 3], 4); counts = collections.defaultdict(list); scalar = np.float64(2)\n"
        "flags = np.arange(4); array = np.arange(20); view = array[2:]; objects = np.array(['a', [1]], dtype=object)\n"
        "generator = np.random.default_rng(1); text = 'x' * 10000; minus = -1; zero = 0.0\n"
        "fields = np.dtype([('a', 'i4'), ('b', 'f4')])\n"
    )
    notebook.save()
    notebook.save()
    exec(edit, names)
    written, _ = notebook.save()
    assert written > 0
    again = notebook.restored()
    for name in ("deep", "content", "numbers", "queue", "counts", "text", "minus", "new", "fields"):
        assert again.get(name) == names.get(name)
    assert repr(again["zero"]) == repr(names["zero"])
    assert (vars(again["thing"]), again["thing"].method(), again["Thing"].shared) == (
        vars(names["thing"]),
        names["thing"].method(),
        names["Thing"].shared,
    )
    assert again["Thing"].__qualname__ == names["Thing"].__qualname__
    assert repr(vars(again["thing"])) == repr(vars(names["thing"]))
    assert [getattr(again["slotted"], slot, None) for slot in "ab"] == [
        getattr(names["slotted"], slot, None) for slot in "ab"
    ]
    assert (again["f"].__defaults__, vars(again["f"])) == (names["f"].__defaults__, vars(names["f"]))
    assert again["cell"]() == names["cell"]()
    assert again["part"].keywords == names["part"].keywords
    assert again["flags"].flags.writeable == names["flags"].flags.writeable
    for name in ("array", "view", "objects", "scalar"):
        assert np.array_equal(again[name], names[name])
        assert (again[name].dtype, again[name].shape) == (names[name].dtype, names[name].shape)
    assert np.shares_memory(again["array"], again["view"]) == np.shares_memory(names["array"], names["view"])
    assert again["generator"].random() == names["generator"].random()
    if "deep" in names:
        assert (again["deep"].get("same") is again["deep"].get("list")) == (
            names["deep"].get("same") is names["deep"].get("list")
        )


def test_a_changed_array_costs_its_changed_parts_and_no_pickling(notebook):
    notebook.names = {"a": noise(20 * MIB), "other": [1]}
    notebook.save()
    notebook.names["a"][5 * MIB + 7] ^= 1
    written, pickled = notebook.save()
    assert (written, pickled) == (CHUNK_BYTES, 0)
    assert np.array_equal(notebook.restored()["a"], notebook.names["a"])


def test_sharing_that_begins_between_two_saves_is_kept(notebook):
    a, b = [1], {"b": 2}
    notebook.names = {"a": a, "b": b, "array": noise(MIB), "rest": [3]}
    notebook.save()
    b["a"] = a
    notebook.names["view"] = notebook.names["array"][::2]
    notebook.save()
    again = notebook.restored()
    assert again["b"]["a"] is again["a"]
    assert again["view"].base is again["array"]
    del b["a"]
    notebook.names["a"].append(again)
    del notebook.names["a"][1]
    notebook.save()
    assert notebook.restored()["b"] == {"b": 2}


def test_an_edit_to_one_name_does_not_pickle_the_others(notebook):
    notebook.names = {f"n{number}": [{"n": n} for n in range(2000)] for number in range(5)}
    notebook.save()
    notebook.names["n3"][7]["n"] = -1
    written, pickled = notebook.save()
    assert pickled == 1
    assert 0 < written < 100_000
    assert notebook.restored() == notebook.names


def test_equal_contents_lie_in_the_arena_once(notebook):
    notebook.names = {"a": noise(4 * MIB), "b": noise(4 * MIB), "zeros": np.zeros(64 * MIB, np.uint8)}
    written, _ = notebook.save()
    assert 4 * MIB < written < 5 * MIB
    again = notebook.restored()
    assert again["a"] is not again["b"]
    again["a"][0] ^= 1
    assert again["b"][0] == notebook.names["b"][0]
    assert not again["zeros"].any()


def test_what_is_deleted_gives_its_memory_back(notebook):
    notebook.names = {"a": noise(40 * MIB)}
    notebook.save()
    assert notebook.memory_bytes() > 40 * MIB
    del notebook.names["a"]
    notebook.save()
    assert notebook.memory_bytes() < MIB


def test_an_array_that_always_changes_takes_twice_its_size_and_no_more(notebook):
    notebook.names = {"a": noise(20 * MIB)}
    notebook.save()
    for _ in range(10):
        notebook.names["a"] += 1
        assert notebook.save()[0] == 20 * MIB
    assert notebook.memory_bytes() < 42 * MIB
    assert np.array_equal(notebook.restored()["a"], notebook.names["a"])


def test_a_new_process_goes_on_where_the_old_one_was(notebook):
    notebook.names = {"a": noise(8 * MIB), "l": [{"n": n} for n in range(3000)]}
    notebook.save()
    with contextlib.closing(saved_state.Saver()) as second:
        namespace = {}
        second.restore(notebook.saver.descriptors(), namespace)
        second.save(namespace, cell=None)
        assert second._committed.blobs.written_bytes == 0  # the same content again
        namespace["a"][:5] += 1
        second.save(namespace, cell=None)
        assert second._committed.blobs.written_bytes == MIB
        third = {}
        restore(second.descriptors(), third)
        assert np.array_equal(third["a"], namespace["a"])


def test_saving_does_not_keep_what_was_saved_alive(notebook):
    import weakref

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    notebook.names = {"thing": thing, "list": [thing], "a": np.arange(5)}
    notebook.save()
    notebook.save()
    notebook.names.clear()
    del thing
    assert gone() is None


def test_what_was_kept_of_the_old_is_not_taken_for_the_new(notebook):
    """An object's address is used again as soon as it is gone."""
    choose = random.Random(4)
    notebook.names = {"l": [object_of(choose) for _ in range(200)], "d": {}}
    for _ in range(60):
        position = choose.randrange(200)
        notebook.names["l"][position] = None
        notebook.names["l"][position] = object_of(choose)
        notebook.names["d"][str(choose.randrange(5))] = object_of(choose)
        notebook.save()
        again = notebook.restored()
        assert repr(again["l"]) == repr(notebook.names["l"])
        assert repr(again["d"]) == repr(notebook.names["d"])


def object_of(choose):
    value = choose.randrange(-3, 3)
    return choose.choice(
        [value, float(value), str(value) * 3, [value], (value,), {value}, {str(value): value}, bytes([value & 7]), None]
    )


def test_a_thousand_small_names_are_a_few_streams(notebook):
    notebook.names = {f"n{number}": [number] for number in range(1000)}
    _, pickled = notebook.save()
    assert pickled <= 3


def test_a_change_of_one_of_many_numbers_writes_a_thousand_and_not_all(notebook):
    notebook.names = {f"n{number}": number for number in range(5000)}
    whole, pickled = notebook.save()
    assert 5 <= pickled <= 6
    notebook.names["n7"] = -1
    written, pickled = notebook.save()
    assert (pickled, written < whole // 3) == (1, True)


def test_putting_small_names_together_looks_at_each_a_few_times():
    class Small(graph.Component):
        looks = 0

        def __getattribute__(self, name):
            Small.looks += 1
            return super().__getattribute__(name)

    names = [f"n{number}" for number in range(3000)]
    components = [Small([name], digest=b"d", nodes=0, held=[], has_memory=False) for name in names]
    in_order = order.in_order(components, dict.fromkeys(names, 1))
    assert sorted(name for component in in_order for name in component.names) == sorted(names)
    assert Small.looks < 20 * len(names)


def test_components_are_what_is_shared():
    shared, memory = [1], np.arange(10)
    names = {"a": [shared], "b": {"s": shared}, "c": [1], "d": memory[:5], "e": memory[3:], "f": 1, "g": 1}
    it = graph.Graph({np.ndarray: library_look()}, (), (names,), lambda: None)
    for name, value in names.items():
        it.add(name, value)
    assert sorted(component.names for component in it.components()) == [["a", "b"], ["c"], ["d", "e"], ["f"], ["g"]]


def test_what_a_class_takes_from_typing_joins_it_with_nothing():
    """Its class method is one function for all, and leads to whatever anybody has asked for."""
    names = cells("""
import typing
T, U = (typing.TypeVar(name) for name in "TU")
class Pair(typing.NamedTuple, typing.Generic[T]):
    first: T
class Kept(typing.Generic[U]): pass
class Asked: pass
Kept[Asked]
""")
    it = graph.Graph({}, (), (names,), lambda: None)
    for name in ("Pair", "Asked"):
        it.add(name, names[name])
    assert len(it.components()) == 2


@pytest.mark.parametrize(
    "kinds",
    [
        "import collections\nOne, Other = (collections.namedtuple(name, 'x') for name in ('One', 'Other'))",
        "import dataclasses\nOne, Other = (dataclasses.make_dataclass(name, ['x']) for name in ('One', 'Other'))",
        "class One: of = len, str.upper, int.__add__\nclass Other: of = len, str.upper, int.__add__",
    ],
)
def test_what_libraries_give_to_everybody_joins_nothing(kinds):
    names = cells(kinds)
    it = graph.Graph({}, (), (names,), lambda: None)
    it.add("One", names["One"])
    it.add("Other", {"kind": names["Other"]})
    assert len(it.components()) == 2


def library_look():
    from nls_jupyter.saved_state.libraries.numpy_arrays import _look

    return _look


@pytest.mark.parametrize(
    "beside", ["", "def function(): return x", "class Kind:\n    def method(self): pass\nk = Kind()"]
)
def test_a_save_keeps_nothing_alive_that_the_user_gives_up(beside):
    """Without the garbage collector: memory of a Gpu is to be free at once."""
    gc.collect()
    gc.disable()
    try:
        shell = cells(f"import numpy as np\nclass Array(np.ndarray): pass\nx = np.ones(1000).view(Array)\n{beside}")
        alive = weakref.ref(shell["x"])
        with contextlib.closing(saved_state.Saver()) as saver:
            for _ in range(2):
                saver.save(saved_state.user_names(shell, {}), cell=None, function_globals=shell)
            shell["x"] = None
            assert alive() is None
    finally:
        gc.enable()
