"""What is in slots comes back, also where a class hides them behind something else, or lets nobody set them."""

from __future__ import annotations

import contextlib

import pytest

from nls_jupyter import saved_state
from saved_state_roundtrip import cells, of_user, restore

HIDDEN = {
    "behind a slot": (
        "class Child(Base): __slots__ = 'a', 'b'\nit = Child(); it.a, it.b = 'child', it\nBase.a.__set__(it, ['base'])",
        "it.a, it.b is it, Base.a.__get__(it)",
    ),
    "behind two": (
        (
            "class Child(Base): __slots__ = 'a'\nclass Last(Child): __slots__ = 'a'\nit = Last()\n"
            "Child.a.__set__(it, 2); Base.a.__set__(it, 1)"
        ),
        "hasattr(it, 'a'), Child.a.__get__(it), Base.a.__get__(it)",
    ),
    "behind a property": (
        (
            "class Child(Base):\n    a = property(lambda self: Base.a.__get__(self) + 1)\n"
            "it = Child(); Base.a.__set__(it, 1)"
        ),
        "it.a, Base.a.__get__(it)",
    ),
    "with attributes": (
        "class Child(Base):\n    a = 5\nit = Child(); Base.a.__set__(it, 1); it.free = 2; held = vars(it)",
        "it.a, Base.a.__get__(it), it.free, held is vars(it)",
    ),
    "private in classes of one name": (
        (
            "class Same:\n    __slots__ = ('__mine',)\nFirst = Same\n"
            "class Same(First): __slots__ = ('__mine',)\n"
            "it = Same(); it._Same__mine = 'second'; First._Same__mine.__set__(it, 'first')"
        ),
        "it._Same__mine, First._Same__mine.__get__(it)",
    ),
    "of what refuses to be changed": (
        (
            "class Point(Base):\n    __slots__ = 'y'\n"
            "    def __init__(self, a, y):\n"
            "        object.__setattr__(self, 'a', a); object.__setattr__(self, 'y', y)\n"
            "    def __setattr__(self, name, value): raise AttributeError('it cannot be changed')\n"
            "    def __delattr__(self, name): raise AttributeError('it cannot be changed')\n"
            "    def __hash__(self): return hash((self.a, self.y))\n"
            "    def __eq__(self, other): return self.a == other.a and self.y is other.y\n"
            "it = Point(1, [2].append); found = {Point(1, None): 'x'}"
        ),
        "it.a, it.y.__name__, found[Point(1, None)]",
    ),
}
HEAD = "class Base: __slots__ = 'a'\n"


@pytest.mark.parametrize(("source", "shown"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_in_it_comes_back(source: str, shown: str) -> None:
    space = cells(HEAD + source)
    before = repr(eval(f"({shown})", space))
    for _ in range(2):
        result = of_user(space)
        assert not (*result.manifest.missing, *result.manifest.changed, *result.report.missing)
        space = result.namespace
        assert repr(eval(f"({shown})", space)) == before


def test_a_change_of_it_is_seen_by_the_next_save() -> None:
    space = cells(HEAD + "class Child(Base): __slots__ = 'a'\nit = Child(); it.a = 1; Base.a.__set__(it, 2)")
    with contextlib.closing(saved_state.Saver()) as saver:
        saver.save(saved_state.user_names(space, {}), cell="1", function_globals=space)
        exec("Base.a.__set__(it, 3)", space)
        saver.save(saved_state.user_names(space, {}), cell="2", function_globals=space)
        found: dict[str, object] = {}
        restore(saver.descriptors(), found)
    assert eval("Base.a.__get__(it)", found) == 3


def test_a_class_that_cannot_be_saved_for_how_it_tells_its_slot_says_what_helps() -> None:
    result = of_user(cells("class Shy: __slots__ = '__mine'\nit = Shy()"))
    what, advice = "a class whose only slot is private", "write it as __slots__ = ('__mine',)"
    assert result.unsaved == {"Shy": f"{what} cannot be saved; {advice}", "it": f"it holds {what}; {advice}"}
