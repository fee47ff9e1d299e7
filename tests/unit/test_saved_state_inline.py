"""A save makes no dict for each instance, and sees what a cell did to its attributes all the same."""

from __future__ import annotations

import contextlib
import gc

import pytest

from nls_jupyter.saved_state import Saver, inline, user_names
from saved_state_roundtrip import cells, restore

_SETUP = """
import dataclasses
class Point:
    def __init__(self, x):
        self.x, self.y, self.z = x, [x], None
class Base:
    size = 5
    def __init__(self): self.own = 'o'
class Strict(Base):
    def __setattr__(self, name, value): raise AttributeError('frozen')
    def __init__(self): vars(self).update(a=1, b=2)
class Empty: pass
class One:
    def __init__(self): self.only = [1]
@dataclasses.dataclass(frozen=True)
class Record:
    a: int = 1
    b: list = dataclasses.field(default_factory=list)
class Asking:
    def __init__(self): self.x = 1
    def __getattr__(self, name):
        if name.startswith('__'): raise AttributeError(name)
        return name
class Computed:
    value = property(lambda self: 7, lambda self, v: None)
    def __init__(self): self.__dict__.update(value=1, other=2)
points = [Point(n) for n in range(50)]
point, base, strict, empty, one, asking, computed = points[40], Base(), Strict(), Empty(), One(), Asking(), Computed()
record, more = Record(2), [Record(n) for n in range(5)]
wide = Empty(); vars(wide).update({f'a{n}': n for n in range(100)})
odd = Empty(); vars(odd).update({'a.b': 1, 3: 4, 'c d': 5})
others = [Base() for _ in range(3)]
"""
_EDITS = [
    "pass",
    "points[3].x = -1",
    "value = points[3].x; del points[3].x; points[3].w = value",
    "value = points[3].y; del points[3].y; points[3].v = value; del points[3].z; points[3].u = None",
    "points[3].y.append(2)",
    "points[4].__dict__['more'] = 1",
    "del others[1].own; others[1].size = 5",
    "base.size = 5",
    "base.size = 5; del base.own; base.own = 5",
    "del one.only; one.other = [1]",
    "empty.now = 1",
    "empty.now = 1; del empty.now",
    "vars(strict)['b'] = 3",
    "points[5].__class__ = One",
    "points[5], points[6] = points[6], points[5]",
    "vars(computed)['value'] = 3; asking.y = 2; odd.c = 3",
    "object.__setattr__(record, 'a', 1); object.__setattr__(more[2], 'a', 1)",
]


def attributes(names):
    found = {}
    for name, value in names.items():
        things = value if isinstance(value, list) else [value]
        found[name] = [(type(thing).__qualname__, repr(vars(thing))) for thing in things if hasattr(thing, "__dict__")]
    return {name: [(kind, text.replace("0x", "")) for kind, text in each] for name, each in found.items()}


@pytest.mark.parametrize("edit", _EDITS)
def test_attributes_come_back_as_they_are_now(edit):
    names = cells(_SETUP)
    with contextlib.closing(Saver()) as saver:
        for _ in range(2):
            saver.save(user_names(names, {}), cell=None, function_globals=names)
        exec(edit, names)
        manifest = saver.save(user_names(names, {}), cell=None, function_globals=names)
        assert not manifest.missing
        again = {}
        assert not restore(saver.descriptors(), again).missing
    saved = {name: names[name] for name in again if not isinstance(names[name], type)}
    back = {name: again[name] for name in saved}
    assert attributes(saved) == attributes(back)
    assert again["points"][40] is again["point"]


def test_neither_a_save_nor_a_restore_makes_a_dict_for_each_instance():
    names = cells(_SETUP)
    with contextlib.closing(Saver()) as saver:
        saver.save(user_names(names, {}), cell=None, function_globals=names)
        again = {}
        assert not restore(saver.descriptors(), again).missing
    for some in (names["points"], again["points"]):
        assert sum(type(each) is dict for point in some for each in gc.get_referents(point)) <= 1


@pytest.mark.parametrize("held_before", [True, False])
def test_a_dict_of_attributes_that_has_a_name_is_the_instances_still(held_before):
    """`config = vars(args)`; from Python 3.13 on the garbage collector does not tell of it."""
    names = cells(_SETUP)
    with contextlib.closing(Saver()) as saver:
        if not held_before:
            saver.save(user_names(names, {}), cell=None, function_globals=names)
        exec("held = [vars(each) for each in (*points[:5], base, one, record)]", names)
        for _ in range(2):
            saver.save(user_names(names, {}), cell=None, function_globals=names)
            again = {}
            assert not restore(saver.descriptors(), again).missing
    things = (*again["points"][:5], again["base"], again["one"], again["record"])
    assert all(vars(thing) is held for thing, held in zip(things, again["held"], strict=True))


def test_this_python_has_its_dicts_where_they_are_looked_for():
    """Else instances have a dict each after a save, which is right and takes twice the memory."""
    assert inline._CAN_BE_TOLD


def test_a_class_that_gets_an_attribute_later_is_looked_at_anew():
    space = cells("class C: pass\ni = C(); i.a = 1; i.b = None\nj = C(); j.a = 1; j.b = None")
    with contextlib.closing(Saver()) as saver:
        saver.save(space, cell=None)
        exec("C.b = None; z = C(); z.a = 1; z.c = None", space)
        saver.save(space, cell=None)
        restore(saver.descriptors(), found := {})
    assert vars(found["z"]) == {"a": 1, "c": None}
