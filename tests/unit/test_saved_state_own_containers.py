"""What is in a dict, list or set of a class of somebody's comes back as it is, whatever the class does with it."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import cells, of_user

CASES = {
    "a set that is made with a name": (
        """
class S(set):
    def __init__(self, name): super().__init__(); self.name = name
x = S("n"); x.add(1); x.add(2)
""",
        "set.__or__(x, set()) == {1, 2} and x.name == 'n'",
    ),
    "a dict that collects": (
        """
class D(dict):
    def __setitem__(self, key, value): self.setdefault(key, []).append(value)
x = D(); x["a"] = 1; x["a"] = 2
""",
        "x == {'a': [1, 2]}",
    ),
    "a dict that counts what is set": (
        """
class D(dict):
    def __init__(self): self.log = []
    def __setitem__(self, key, value): self.log.append(key); super().__setitem__(key, value * 2)
x = D(); x["a"] = 1; x["b"] = 2
""",
        "x == {'a': 2, 'b': 4} and x.log == ['a', 'b'] and list(x) == ['a', 'b']",
    ),
    "a list that changes what it gets": (
        """
class L(list):
    def append(self, value): super().append(value * 2)
    def extend(self, values): [self.append(value) for value in values]
x = L(); x.append(1); x.append(2)
""",
        "x == [2, 4]",
    ),
    "what shows a part of what is in it": (
        """
class F(frozenset):
    def __iter__(self): return (one for one in super().__iter__() if one != 2)
class D(dict):
    def items(self): return [(key, value) for key, value in super().items() if key != 2]
x = F([1, 2, 3]), D({1: 1, 2: 2})
""",
        "len(x[0]) == 3 and 2 in x[0] and len(x[1]) == 2 and x[1][2] == 2",
    ),
    "one that cannot be made without arguments, has slots, and is in itself": (
        """
class L(list):
    __slots__ = ("name", "__dict__")
    def __new__(cls, name): return super().__new__(cls)
    def __init__(self, name): self.name = name; self.more = [self]
x = L("n"); x.append(x)
""",
        "x.name == 'n' and x.more[0] is x and x[0] is x and len(x) == 1",
    ),
    "a way of its own to its state": (
        """
class D(dict):
    def __getstate__(self): return {"size": len(self)}
    def __setstate__(self, state): self.found = (state["size"], len(self))
x = D(a=1)
""",
        "x == {'a': 1} and getattr(x, 'found', (1, 1)) == (1, 1)",
    ),
    "attributes that somebody else holds": (
        """
class D(dict): pass
x = D(a=1); x.b = 2; held = vars(x)
""",
        "vars(x) is held and x.b == 2 and x == {'a': 1}",
    ),
    "a frozenset with attributes": (
        """
class F(frozenset): pass
x = F([1]); x.name = [x]
""",
        "x == {1} and x.name[0] is x",
    ),
}


@pytest.mark.parametrize("which", CASES)
def test_it_holds_what_it_held(which):
    made, holds = CASES[which]
    space = cells(made)
    assert eval(holds, space)
    result = of_user(space)
    assert not result.manifest.missing
    assert not result.report.missing
    assert eval(holds, result.namespace)
    assert type(result["x"]).__name__ == type(space["x"]).__name__


def test_a_weak_reference_to_what_is_lost_is_lost_and_named():
    space = cells("""
import weakref
def boom(): raise ValueError("cannot")
class R:
    def __reduce__(self): return boom, ()
class X: pass
n = X(); n.r = R(); w = weakref.ref(n); y = 5
""")
    result = of_user(space)
    assert {name.name for name in result.report.missing} == {"n", "w"}
    assert result["y"] == 5
