"""Classes of cells come back as they were written, and a save leaves no trace in them."""

from __future__ import annotations

import json
import sys

import pytest

from left_out import thinned
from nls_jupyter import saved_state
from saved_state_processes import carried
from saved_state_roundtrip import cells, check_in_a_new_process, of_user, roundtrip, saved

CLASSES = {
    "methods and values": """
class C:
    z = 1
    def m(self): pass
    a = 2
thing = C()""",
    "a docstring": """
class C:
    '''What it is.'''
    b: int = 1
    a: str = 'x'
thing = C()""",
    "equality": """
class C:
    z = 1
    def __eq__(self, other): return True
    a = 2
thing = C()""",
    "a child": """
class B:
    y = 0
    x = 1
class C(B):
    y = 2
    a = 3
    def get(self): return super().x
thing = C()""",
    "a later attribute": """
class C:
    b = 1
C.a = 2
C.__doc__ = 'later'
C.b = 3
thing = C()""",
    "slots": """
class C:
    __slots__ = ('b', '__mine', 'a')
    def __init__(self): self.__mine = 1
    z = 0
thing = C()""",
    "one slot": """
class C:
    __slots__ = 'only'
thing = C()""",
    "slots with weak references": """
class C:
    __slots__ = ('a', '__weakref__')
thing = C()""",
    "slots with attributes": """
class C:
    __slots__ = ('a', '__dict__')
thing = C()""",
    "slots with texts": """
class C:
    __slots__ = {'a': 'the first', 'b': 'the second'}
thing = C()""",
    "slots below slots": """
class B:
    __slots__ = ('b',)
class C(B):
    __slots__ = ('a',)
thing = C(); thing.b = 1""",
    "slots below a class without": """
class B: pass
class C(B):
    __slots__ = ('a',)
thing = C(); thing.b = 1""",
    "a dataclass": """
import dataclasses
@dataclasses.dataclass
class C:
    b: int = 1
    a: list = dataclasses.field(default_factory=list)
thing = C()""",
    "a dataclass with slots": """
import dataclasses
@dataclasses.dataclass(slots=True, frozen=True)
class C:
    b: int
    a: int = 2
thing = C(1)""",
    "a dataclass that adds no slots": """
import dataclasses
@dataclasses.dataclass(slots=True)
class B:
    b: int = 1
@dataclasses.dataclass(slots=True)
class C(B):
    def a(self): return self.b
thing = C()""",
    "a class that is made anew": """
class B:
    z = 1
    def a(self): return self.b
C = type(B)('C', (), {**{n: v for n, v in vars(B).items() if n not in ('__dict__', '__weakref__')},
                      '__slots__': ('b', '__weakref__'), 'later': 2})
C.latest = 3
thing = C()""",
    "a dataclass with slots below an abstract class": """
import abc, dataclasses
class B(abc.ABC):
    __slots__ = ()
    @abc.abstractmethod
    def z(self): ...
@dataclasses.dataclass(slots=True)
class C(B):
    b: int = 1
    def z(self): return 2
thing = C()""",
    "an abstract class": """
import abc
class B(abc.ABC):
    @abc.abstractmethod
    def z(self): ...
    @property
    @abc.abstractmethod
    def a(self): ...
class C(B):
    def z(self): return 1
    a = 2
thing = C()""",
    "a child of list": """
class C(list):
    z = 1
    def first(self): return self[0]
    a = 2
thing = C([1])""",
    "an exception": """
class C(ValueError):
    z = 1
    def __str__(self): return 'c'
    a = 2
thing = C('x')""",
    "a factory": """
class C:
    def __new__(cls): return super().__new__(cls)
    def __class_getitem__(cls, key): return key
    def __del__(self): pass
    def __hash__(self): return 1
    def __getattr__(self, name): raise AttributeError(name)
thing = C()""",
    "a base that looks": """
seen = []
class B:
    def __init_subclass__(cls): seen.append(sorted(vars(cls)))
class C(B):
    z = 1
    a = 2
thing = C()""",
    "a named tuple": """
import typing
class C(typing.NamedTuple):
    b: int
    a: int = 2
thing = C(1)""",
    "a tuple of names": """
import collections
C = collections.namedtuple('C', 'b a')
thing = C(1, 2)""",
    "a protocol": """
import typing
class C(typing.Protocol):
    z: int
    def a(self) -> int: ...
class D(C): pass
thing = D()""",
    "a generic": """
from typing import Generic, TypeVar
T = TypeVar('T')
class C(Generic[T]):
    z = 1
    def a(self) -> T: ...
thing = C[int]()""",
    "a metaclass": """
class M(type):
    def __new__(meta, name, bases, body): return super().__new__(meta, name, bases, dict(body))
class C(metaclass=M):
    z = 1
    a = 2
thing = C()""",
    "a descriptor": """
class D:
    def __set_name__(self, owner, name): self.name = name
    def __get__(self, thing, owner): return self.name
class C:
    z = D()
    a = D()
thing = C()""",
}
IN_ANOTHER_ORDER = {"a generic", "a named tuple", "a protocol", "a dataclass with slots below an abstract class"}
"""A library's code runs when these are made, and may look at what is there: they get it when it is whole."""

LOOK = """
def look(C, thing):
    more = None
    try:
        thing.not_there = 1
        del thing.not_there
        more = True
    except (AttributeError, TypeError):
        more = False
    return [list(vars(C)), more, str(C.__doc__), hasattr(thing, "__weakref__"), str(getattr(C, "__slots__", None))]
"""


def look(names):
    found = {}
    exec(LOOK, found)
    return found["look"](names["C"], names["thing"])


@pytest.mark.parametrize("source", CLASSES.values(), ids=CLASSES)
def test_a_save_leaves_no_trace_in_a_class(source):
    names = cells(source)
    before = look(names)
    with saved(saved_state.user_names(names, {}), function_globals=names):
        assert look(names) == before


def test_what_the_user_s_own_pickling_has_left_there_stays():
    names = cells("class C: pass\nthing = C()\nimport pickle, copy\nagain = copy.copy(thing)")
    assert "__slotnames__" in vars(names["C"])
    with saved(saved_state.user_names(names, {}), function_globals=names):
        assert "__slotnames__" in vars(names["C"])


@pytest.mark.parametrize("kind", thinned(CLASSES, 4, "classes that come back in a process of their own"))
def test_a_class_comes_back_with_what_it_has_in_the_order_in_which_it_was_written(kind):
    names = cells(CLASSES[kind])
    expected = json.loads(json.dumps(look(names)))
    order = "sorted(found[0]), sorted(wanted[0])" if kind in IN_ANOTHER_ORDER else "found[0], wanted[0]"
    check_in_a_new_process(
        CLASSES[kind],
        f"{LOOK}\nwanted = {expected!r}\nfound = look(C, thing)\none, other = {order}\n"
        "assert one == other, (one, other)\nassert found[1:] == wanted[1:], (found, wanted)\n",
    )


def test_a_class_of_attrs_has_its_slots_in_the_next_process():
    """Not in this one: attrs gives a function that it makes a copy of all that `__main__` holds."""
    before = (
        "import attr\n@attr.define\nclass C:\n  b: int\n  a: list = attr.field(factory=list)\n"
        "  def z(self): return super().__repr__()\nthing, had = C(1), list(vars(C))"
    )
    after = "assert list(vars(C)) == had and not hasattr(thing, '__dict__') and thing.z() and C(2).a == []"
    assert carried(before, after) == []


def test_what_a_class_has_and_where_its_things_are_works_in_a_new_process():
    check_in_a_new_process(
        f"{CLASSES['slots']}\nthing.a = [1]\nother = thing.a\nclass D(C):\n __slots__ = ()\nd = D(); d.b = other",
        "assert thing._C__mine == 1 and thing.a is other and d.b is other and isinstance(d, C)\n"
        "assert not hasattr(thing, '__dict__')\n",
    )


REGISTERED = """
made = []
class Base:
    kinds = {}
    def __init_subclass__(cls, /, kind="plain", **more):
        super().__init_subclass__(**more)
        Base.kinds[cls.__name__, len(Base.kinds)] = kind
        made.append(cls.shape)
class Meta(type):
    count = 0
    def __new__(meta, name, bases, body, **more):
        Meta.count += 1
        return super().__new__(meta, name, bases, {**body, "number": Meta.count}, **more)
    def __init__(cls, name, bases, body, **more):
        made.append(name)
class Round(Base, kind="round"):
    shape = 1
class Square(Round, metaclass=Meta, kind="square"):
    shape = 2
thing = Square()
"""


def test_what_was_done_when_a_class_was_made_is_not_done_again():
    check_in_a_new_process(
        REGISTERED,
        "assert made == [1, 2, 'Square'], made\n"
        "assert Base.kinds == {('Round', 0): 'round', ('Square', 1): 'square'}, Base.kinds\n"
        "assert (Meta.count, Square.number, type(thing), type(Square)) == (1, 1, Square, Meta)\n"
        "class Next(Square, kind='next'): shape = 3\n"
        "assert made[3:] == [3, 'Next'] and Next.number == 2 and Base.kinds[('Next', 2)] == 'next'\n",
    )


def test_a_library_hears_of_every_class(tmp_path, monkeypatch):
    (tmp_path / "their_plugins.py").write_text(
        "class Plugin:\n kinds = []\n def __init_subclass__(cls):\n"
        "  Plugin.kinds.append((cls.__name__, hasattr(cls, 'run')))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    check_in_a_new_process(
        "import their_plugins\nclass Mine(their_plugins.Plugin):\n def run(self): pass\n",
        "assert their_plugins.Plugin.kinds == [('Mine', True)]\nassert Mine.run\n",
    )
    del sys.modules["their_plugins"]


def test_what_a_class_has_as_its_base_has_it_is_its_own():
    check_in_a_new_process(
        "class Base: size = None; names = ()\nclass Child(Base): size = None; names = ()",
        "Base.size = 1; Base.names = 2\nassert (Child.size, Child.names) == (None, ())\n",
    )


def test_modules_that_pickle_has_are_as_before():
    import copyreg

    before = copyreg._slotnames
    with saved({"x": ValueError()}):
        assert copyreg._slotnames is before
    assert copyreg._slotnames is before
    assert sys.modules["copyreg"] is copyreg


WITH_INSTANCES = {
    "hashed by more than plain values": (
        """
class Point:
    salt = (7,)
    def __init__(self, n): self.n = n
    def __eq__(self, other): return self.n == other.n
    def __hash__(self): return hash((self.n, self.salt))
Point.known = {Point(n): n for n in range(3)}
""",
        "[Point(n) in Point.known for n in range(4)], len(Point.known)",
    ),
    "hashed by a property, beside a decorator that remembers": (
        """
def remembers(function):
    known = {}
    def asked(self): return known.setdefault(self, function(self))
    asked.known = known
    return asked
class Point:
    fields = ("n",)
    def __init__(self, n): self.n = n
    @property
    def key(self): return tuple(getattr(self, field) for field in self.fields or ())
    def __eq__(self, other): return self.key == other.key
    def __hash__(self): return hash(self.key)
    @remembers
    def twice(self): return 2 * self.n
twos = [Point(n).twice() for n in range(3)]
""",
        "[Point(n) in Point.twice.known for n in range(4)], len(Point.twice.known)",
    ),
    "that get their state by what the class has": (
        """
class Point:
    version, count = (2, 0), 0
    def __new__(cls, *_):
        cls.count += 1
        return object.__new__(cls)
    def __init__(self, n): self.n = n
    def __getstate__(self): return self.n
    def __setstate__(self, state): self.n, self.made_for = state, self.version
Point.origin = Point(1)
""",
        "Point.origin.n, Point.version, Point.count, getattr(Point.origin, 'made_for', Point.version)",
    ),
    "that its own methods find": (
        """
from typing import Generic, TypeVar
T = TypeVar("T")
class Point(Generic[T]):
    def __init__(self, n, known=set()):
        self.n = n
        known.add(self)
    def __eq__(self, other): return self.n == other.n
    def __hash__(self): return hash(self.n)
points = [Point(n) for n in range(3)]
""",
        "[point in Point.__init__.__defaults__[0] for point in points]",
    ),
}


@pytest.mark.parametrize(("source", "shown"), WITH_INSTANCES.values(), ids=WITH_INSTANCES)
def test_a_class_is_found_to_have_its_instances(source, shown):
    space = cells(source)
    before = repr(eval(f"({shown})", space))
    result = of_user(space)
    assert not result.manifest.missing
    assert not result.report.missing
    assert repr(eval(f"({shown})", result.namespace)) == before
    assert "__slotnames__" not in vars(result["Point"])


def test_a_part_of_a_class_that_cannot_be_given_names_the_class():
    source = """
class Meta(type):
    @property
    def size(cls): return 1
class Shape(metaclass=Meta):
    locals()["size"] = 5
    side = 2
    def area(self): return self.side
it = Shape()
"""
    result = of_user(cells(source))
    assert {missing.name for missing in result.report.missing} == {"Shape", "it"}
    assert "no setter" in result.report.missing[0].reason or "can't set" in result.report.missing[0].reason


def test_what_a_class_has_is_not_asked_for_anything():
    source = """
class Lazy:
    def __init__(self): self.__dict__["asked"] = []
    def __getattr__(self, name):
        self.asked.append(name)
        raise RuntimeError("not connected")
class Client:
    connection = Lazy()
it = Client()
"""
    space = cells(source)
    result = of_user(space)
    assert not result.manifest.missing
    assert not result.report.missing
    assert space["Client"].connection.asked == result["Client"].connection.asked == []


def test_a_class_of_msgspec_is_named_with_its_instances():
    pytest.importorskip("msgspec", reason="pip install msgspec to check its classes with it")
    result = roundtrip("""
import msgspec
class Point(msgspec.Struct, frozen=True):
    x: int
    y: int = 0
points = [Point(1)]
other = [1]
""")
    assert set(result.unsaved) == {"Point", "points"}
    assert all("a class of msgspec's" in reason for reason in result.unsaved.values())
    assert result["other"] == [1]
