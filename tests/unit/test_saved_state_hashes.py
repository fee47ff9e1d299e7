"""Sets and dicts whose members lead back to them: their hash needs attributes that they get only afterwards."""

from __future__ import annotations

import collections
import contextlib
import pickle

import pytest

from nls_jupyter.saved_state import Saver, one_save
from nls_jupyter.saved_state.hash_cycles import has_hash_cycles
from saved_state_roundtrip import Roundtrip, cells, of_user, restore, roundtrip

NODES = """
import collections, dataclasses, weakref
import numpy as np

class Node:
    def __init__(self, name, near): self.name, self.near = name, near
    def __hash__(self): return hash(self.name)
    def __eq__(self, other): return isinstance(other, Node) and self.name == other.name

class Slots:
    __slots__ = ("name", "near")
    def __init__(self, name, near): self.name, self.near = name, near
    __hash__, __eq__ = Node.__hash__, lambda self, other: self.name == other.name

@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    near: object = dataclasses.field(compare=False)

@dataclasses.dataclass(unsafe_hash=True)
class Default:
    name: str = ""
    near: object = dataclasses.field(default=None, compare=False)

class Several(set): pass

class Table(dict): pass
"""
KINDS = ["Node", "Slots", "Frozen", "Default"]


def circle(kind: str, container: str) -> dict[str, object]:
    """Two that hold each other in containers of their own, and a list that leads to them."""
    space = cells(f"{NODES}\na, b = {kind}('a', {container}), {kind}('b', {container})\nboth = [b, a]")
    for one, other in (("a", "b"), ("b", "a")):
        near = space[one].near
        if isinstance(near, dict):
            near[space[other]], near[space[one]] = 7, 8
        else:
            near.add(space[other])
    return space


def found_again(space: Roundtrip) -> None:
    a, b = space["a"], space["b"]
    assert space["both"][1] is a
    for one, other in ((a, b), (b, a)):
        assert other in one.near
        assert next(iter(one.near)) is other
        if isinstance(one.near, dict):
            assert list(one.near.items()) == [(other, 7), (one, 8)]
        else:
            assert len(one.near) == 1


@pytest.mark.parametrize("container", ["set()", "{}", "Several()", "weakref.WeakSet()"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_that_lead_back_to_what_they_are_in_are_found_again(kind, container):
    if kind == "Slots" and "Weak" in container:
        pytest.skip("nothing refers to it weakly")
    result = of_user(circle(kind, container))
    assert not result.manifest.missing
    assert not result.report.missing
    found_again(result)
    assert type(result["a"].near).__name__ == container.strip("{}()").rpartition(".")[2] or container == "{}"


@pytest.mark.parametrize(
    "container", ["Table()", "collections.OrderedDict()", "collections.Counter()", "collections.defaultdict(list)"]
)
@pytest.mark.parametrize("kind", ["Node", "Default"])
def test_dicts_of_other_kinds_have_their_keys_in_order_and_stay_what_they_are(kind, container):
    result = of_user(circle(kind, container))
    assert not result.report.missing
    found_again(result)
    near = result["a"].near
    assert type(near).__name__ == container.partition("(")[0].rpartition(".")[2]
    assert getattr(near, "default_factory", list) is list
    if isinstance(near, collections.OrderedDict):
        near.move_to_end(next(iter(near)))
        assert list(near.values()) == [8, 7]


def test_a_hundred_in_a_ring_are_found_again():
    space = cells(f"{NODES}\nring = [Node(n, {{}}) for n in range(100)]")
    ring = space["ring"]
    for number, node in enumerate(ring):
        node.near[ring[number - 1]] = number
    result = of_user(space)
    assert not result.report.missing
    assert all(node.near == {result["ring"][number - 1]: number} for number, node in enumerate(result["ring"]))


def test_a_way_of_its_own_to_get_its_state_finds_full_containers():
    space = cells(f"""{NODES}
class Index:
    def __init__(self, nodes): self.nodes, self.count = nodes, len(nodes)
    def __getstate__(self): return {{"nodes": self.nodes}}
    def __setstate__(self, state): self.__init__(state["nodes"])
a = Node("a", set())
a.near.add(a)
a.near.add(Node("b", a.near))
index = Index(a.near)
""")
    result = of_user(space)
    assert not result.report.missing
    assert result["index"].count == 2
    assert result["index"].nodes is result["a"].near


@pytest.mark.parametrize("kind", ["Node", "Default"])
def test_what_nobody_can_change_is_named(kind):
    space = cells(f"{NODES}\na, b = {kind}('a', None), {kind}('b', None)")
    space["a"].near, space["b"].near = (frozenset([space[other]]) for other in "ba")
    result = of_user(space)
    told = {name.name for name in result.report.missing}
    assert told
    for name in {"a", "b"} - told:
        near = result[name].near
        assert all(member in near for member in near)


def test_what_cannot_be_hashed_at_all_is_lost_and_named():
    space = cells(f"""{NODES}
class Never(Node):
    made = 0
    def __hash__(self):
        if self.name == "b" and type(self).made: raise ValueError("never again")
        return 1
    __eq__ = Node.__eq__
    def __setstate__(self, state): type(self).made = 1; self.__dict__.update(state)
x = 5
a = Never("b", set())
a.near.add(a)
""")
    result = of_user(space)
    assert [name.name for name in result.report.missing] == ["a"]
    assert "never again" in result.report.missing[0].reason
    assert result["x"] == 5


def test_pairs_of_them_are_found_again():
    space = cells(f"""{NODES}
edges = {{}}
a, b = Default("a", edges), Default("b", edges)
edges[a, b], edges[b, (a, b)] = 1, 2
""")
    result = of_user(space)
    assert not result.report.missing
    a, b, edges = result["a"], result["b"], result["edges"]
    assert a.near is edges
    assert [edges[a, b], edges[b, (a, b)]] == [1, 2]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ("[Node('a', set()), Node('b', [1])]", False),
        ("[{Node('a', []): 1}, {Frozen('b', [2])}]", False),
        ("[a, a.near]\na.near.append({a})", True),
        ("a\na.near.append({(a, 1): 1})", True),
        ("a\na.near.append({1: a, 'x': {2: a}})", False),
        ("a\na.near.append(weakref.WeakSet([a]))", True),
        ("a\na.near.append(Table({a: a}))", True),
        ("a\na.near.append(Several([(2, frozenset([a]))]))", True),
        ("a\na.near.append(lambda: 1)\na.near[0].of = {a}", True),
        ("a\na.near.append(weakref.ref(a)); b = Node('b', {a}); a.near.append(weakref.ref(b))", True),
        ("[np.array([{a}, 1], dtype=object), a]\na.near.append(x[0][:1])", True),
    ],
)
def test_a_cycle_counts_where_a_hash_is_in_it(made, found):
    space = cells(f"{NODES}\na = Node('a', [])\nx = {made}")
    met = {space[kind] for kind in KINDS}
    assert has_hash_cycles([space["x"]], [space], lambda: None, met) is found
    assert not has_hash_cycles([space["x"]], [space], lambda: None, set())


OPAQUE = f"""{NODES}
class Opaque(Node):
    def __reduce_ex__(self, protocol): return object.__reduce_ex__(self, protocol)
a = Opaque("a", [])
b = {{a}}
"""


def test_only_what_is_pickled_otherwise_than_before_is_looked_at_again(monkeypatch):
    looked = []
    monkeypatch.setattr(one_save, "has_hash_cycles", lambda *args: looked.append(has_hash_cycles(*args)) or looked[-1])
    space = cells(OPAQUE)
    names = {name: space[name] for name in ("a", "b")}
    steps = [([], [False])] * 2 + [([names["b"]], [False, True])] * 2 + [([], [False, True, False])]
    with contextlib.closing(Saver()) as saver:
        for near, found in steps:
            names["a"].near[:] = near
            saver.save(names, cell=None, function_globals=space)
            assert looked == found
            restored = {}
            restore(saver.descriptors(), restored)
            assert restored["a"] in restored["b"]


STORIES = {
    "a counter of one with a way of its own to its state": (
        """
class S(Node):
    __hash__ = Node.__hash__
    def __eq__(self, other): return type(other) is S and self.name == other.name
    def __getstate__(self): return dict(self.__dict__)
    def __setstate__(self, state): self.__dict__.update(state)
x = S(1, None)
x.near = collections.Counter({x: 3})
""",
        "len(x.near) == 1 and x.near[x] == 3",
    ),
    "a hash that goes through another": (
        """
@dataclasses.dataclass(unsafe_hash=True)
class Author:
    name: str = ""
    books: set = dataclasses.field(default_factory=set, compare=False, repr=False)
@dataclasses.dataclass(unsafe_hash=True)
class Book:
    author: Author
    title: str
x = Author("Ann")
book = Book(x, "T")
x.books.add(book)
""",
        "book in x.books and len(x.books) == 1",
    ),
    "a dict of a class of its own whose attributes somebody holds": (
        """
x = Default("a")
x.near = Table({x: 1})
x.near.more = 2
held = vars(x.near)
""",
        "x.near[x] == 1 and x.near.more == 2 and vars(x.near) is held",
    ),
    "a named tuple": (
        """
from typing import NamedTuple
class P(NamedTuple):
    n: object
    k: int
x = Default("a")
x.near = {P(x, 1): "v"}
""",
        "x.near[P(x, 1)] == 'v'",
    ),
    "a state that is a list of pairs": (
        """
class Bag:
    def __init__(self): self.d = {}
    def __getstate__(self): return list(self.d.items())
    def __setstate__(self, pairs): self.d = dict(pairs)
x = Default("a")
x.near = Bag()
x.near.d[x] = 1
""",
        "x.near.d[x] == 1",
    ),
    "what refers to a dict": (
        """
import functools, types
x = Node("a", {})
x.near[x] = 5
x.get, x.shown = x.near.get, types.MappingProxyType(x.near)
x.bound, x.views = types.MethodType(dict.__len__, x.near), [x.near.items(), functools.partial(len, x.near)]
""",
        "x.get(x) == 5 and x.shown[x] == 5 and x.bound() == 1 and len(x.views[0]) == 1 and x.views[1]() == 1",
    ),
}


@pytest.mark.parametrize("which", STORIES)
def test_whatever_the_hash_needs_is_there(which):
    made, holds = STORIES[which]
    space = cells(NODES + made)
    assert eval(holds, space)
    result = of_user(space)
    assert not result.report.missing
    assert eval(holds, result.namespace)


def test_a_frozenset_of_a_class_of_its_own_is_named_too():
    result = roundtrip(f"{NODES}\nclass FS(frozenset): pass\nx, y = Default('a'), 5\nx.near = FS([x])")
    assert [name.name for name in result.report.missing] == ["x"]
    assert result["y"] == 5


def test_what_is_deep_or_broken_costs_no_save():
    space = cells(f"""{NODES}
deep = frozenset()
for _ in range(60): deep = deep | {{deep}}
a = Node(1, [deep])
b = Node(2, set())
b.near.add(b)
b.odd = [weakref.WeakSet.__new__(weakref.WeakSet), {{1: deep}}]
y = 5
""")
    result = of_user(space)
    assert result["y"] == 5
    assert result["a"].near[0] is result["deep"]  # to compare them would take an eternity
    assert {name.name for name in (*result.manifest.missing, *result.report.missing)} <= {"b"}


def test_pickle_itself_loses_them():
    """Else all of this could go."""
    space = circle("Node", "set()")
    import cloudpickle

    with pytest.raises(AttributeError):
        pickle.loads(cloudpickle.dumps(space["both"]))
