"""Instances whose class makes them in a way of its own come back as they are, and it is not asked to do it again."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import cells, check_in_a_new_process, of_user, roundtrip

CASES = {
    "a number with a unit": (
        """
class Temp(float):
 def __new__(cls,v,unit): o=super().__new__(cls,v); o.unit=unit; return o
x=Temp(3.5,'C')
""",
        "x==3.5 and x.unit=='C'",
    ),
    "a text of two": (
        """
class S(str):
 def __new__(cls,a,b): return super().__new__(cls,a+b)
x=S('a','b')
""",
        "x=='ab'",
    ),
    "a tuple of its arguments": (
        """
class T(tuple):
 def __new__(cls,*a): return super().__new__(cls,a)
x=T(1,2)
""",
        "tuple(x)==(1,2)",
    ),
    "a complex number": (
        """
class T(complex):
 def __new__(cls,a): return super().__new__(cls,a,a)
x=T(1)
""",
        "x==1+1j",
    ),
    "a product": (
        """
class T(int):
 def __new__(cls,a,b): o=super().__new__(cls,a*b); o.b=b; return o
x=T(2,3)
""",
        "x==6 and x.b==3",
    ),
    "bytes that can be changed": (
        """
class T(bytearray):
 def __init__(self,a,b): super().__init__(a+b); self.b=b
x=T(b'1',b'2')
""",
        "x==b'12' and x.b==b'2'",
    ),
    "a named tuple": (
        """
from collections import namedtuple
class P(namedtuple('P','x y')):
 __slots__=()
 def __new__(cls, x): return super().__new__(cls,x,2*x)
x=P(2)
""",
        "x==(2,4)",
    ),
    "a typed named tuple": (
        """
from typing import NamedTuple
class B(NamedTuple):
  x:int
  y:int
class P(B):
 def __new__(cls, x): return super().__new__(cls,x,2*x)
x=P(2)
""",
        "x==(2,4)",
    ),
    "a point in time": (
        """
import datetime
class T(datetime.datetime):
 def __new__(cls,y,label): o=super().__new__(cls,y,1,1); o.label=label; return o
x=T(2000,'l')
""",
        "x.year==2000 and x.label=='l'",
    ),
    "attributes of a point in time": (
        """
import datetime
class T(datetime.datetime): pass
x=T(2000,1,1); x.label='l'
""",
        "x.year==2000 and x.label=='l'",
    ),
    "a duration": (
        """
import datetime
class T(datetime.timedelta):
 def __new__(cls,label): o=super().__new__(cls,3); o.label=label; return o
x=T('l')
""",
        "x.days==3 and x.label=='l'",
    ),
    "a day": (
        """
import datetime
class T(datetime.date):
 def __new__(cls,label): o=super().__new__(cls,2000,1,1); o.label=label; return o
x=T('l')
""",
        "x.year==2000 and x.label=='l'",
    ),
    "a time zone": (
        """
import datetime
class T(datetime.tzinfo):
 def __init__(self, h): self.h=h
x=T(3)
""",
        "x.h==3",
    ),
    "a decimal number": (
        """
import decimal
class T(decimal.Decimal):
 def __new__(cls,v,unit): o=super().__new__(cls,v); o.unit=unit; return o
x=T('3.5','C')
""",
        "str(x) == '3.5' and x.unit=='C'",
    ),
    "a fraction": (
        """
import fractions
class T(fractions.Fraction):
 def __new__(cls,v,unit): o=super().__new__(cls,v,3); o.unit=unit; return o
x=T(1,'C')
""",
        "x * 3 == 1 and x.unit=='C'",
    ),
    "a path": (
        """
import pathlib
class T(type(pathlib.Path())):
 def __new__(cls,a,b): o=super().__new__(cls,a); o.b=b; return o
 def __init__(self,a,b):
  try: super().__init__(a)
  except TypeError: pass
x=T('/a','b')
""",
        "str(x)=='/a' and x.b=='b'",
    ),
    "random numbers": (
        """
import random
class T(random.Random):
 def __init__(self,a,b): super().__init__(a); self.b=b
x=T(1,2); x.random()
""",
        "x.getstate()==before.getstate() and x.b==2",
    ),
    "a namespace": (
        """
import types
class T(types.SimpleNamespace):
 def __init__(self,a): super().__init__(a=a)
x=T(1)
""",
        "x.a==1",
    ),
    "a bounded line": (
        """
from collections import deque
class T(deque):
 def __init__(self,n,label): super().__init__(maxlen=n); self.label=label
x=T(3,'l'); x.append(1)
""",
        "list(x)==[1] and x.maxlen==3 and x.label=='l'",
    ),
    "a tree": (
        """
from collections import defaultdict
class T(defaultdict):
 def __init__(self): super().__init__(T); self.label=3
x=T(); x['a']['b']
""",
        "x=={'a':{'b':{}}} and x.label==3 and x.default_factory is type(x)",
    ),
    "attributes of a dict with defaults": (
        """
from collections import defaultdict
class T(defaultdict): pass
x=T(int); x['a']; x.label=3
""",
        "x=={'a':0} and x.label==3",
    ),
    "an ordered dict": (
        """
from collections import OrderedDict
class T(OrderedDict):
 def __init__(self,n): super().__init__(); self.n=n
x=T(3); x['b']=1;x['a']=2
""",
        "list(x.items())==[('b',1),('a',2)] and x.n==3",
    ),
    "an ordered dict that changes what it gets": (
        """
from collections import OrderedDict
class T(OrderedDict):
 def __init__(self,n): super().__init__(); self.n=n
 def __setitem__(self,k,v): super().__setitem__(k,v*2)
x=T(3); x['b']=1;x['a']=2
""",
        "list(x.items())==[('b',2),('a',4)] and x.n==3",
    ),
    "a counter": (
        """
from collections import Counter
class T(Counter):
 def __init__(self,n): super().__init__('aab'); self.n=n
x=T(3)
""",
        "x=={'a':2,'b':1} and x.n==3",
    ),
    "an instance": (
        """
class T:
 def __new__(cls,a): o=super().__new__(cls); o.a=a; return o
x=T(3)
""",
        "x.a==3",
    ),
    "an instance with slots": (
        """
class T:
 __slots__=('a',)
 def __new__(cls,a): o=super().__new__(cls); o.a=a; return o
x=T(3)
""",
        "x.a==3",
    ),
    "one that is counted": (
        """
class T:
 made=0
 def __new__(cls): cls.made+=1; return super().__new__(cls)
x=T(); y=[T,T()]
""",
        "type(x).made==2",
    ),
    "one that is the only one": (
        """
class T:
 it=None
 def __new__(cls):
  if cls.it is None: cls.it=super().__new__(cls)
  return cls.it
x=T(); x.v=3
""",
        "x.v==3 and type(x).it is x and type(x)() is x",
    ),
    "an array": (
        """
import array
class T(array.array):
 def __new__(cls,n): return super().__new__(cls,'i',range(n))
x=T(3)
""",
        "list(x)==[0,1,2]",
    ),
    "a named tuple of a text": (
        """
from typing import NamedTuple
class Pair(NamedTuple):
    a: int
    b: list
class Twice(Pair):
    __slots__ = ()
    def __new__(cls, text): return super().__new__(cls, len(text), [text])
    def __iter__(self): return iter(())
x = Twice("text")
""",
        "x.a == 4 and x.b == ['text'] and len(x) == 2",
    ),
    "slots of a day, and what refuses to be set": (
        """
import datetime
class T(datetime.date):
    __slots__ = ("label", "__own", "unset")
    def __new__(cls, label):
        made = super().__new__(cls, 2000, 1, 1)
        object.__setattr__(made, "label", label); object.__setattr__(made, "_T__own", [label])
        return made
    def __setattr__(self, name, value): raise AttributeError(name)
x = T("l")
""",
        "x.label == 'l' and x._T__own == ['l'] and not hasattr(x, 'unset')",
    ),
    "one that asks for a name": (
        """
class T:
    def __new__(cls, *, name): return super().__new__(cls)
    def __init__(self, *, name): self.name = name
    def __getattr__(self, name): return self.name + name
x = T(name="n")
""",
        "x.name == 'n' and x.a == 'na'",
    ),
    "a number of NumPy's with a unit": (
        """
import numpy as np
class T(np.float64):
    def __new__(cls, value, unit): made = super().__new__(cls, value); made.unit = unit; return made
x = T(1.5, "m")
""",
        "x == 1.5 and x.unit == 'm' and type(x).__name__ == 'T'",
    ),
    "slots that are asked for others": (
        """
class T:
    __slots__ = ("_parts",)
    def __init__(self): self._parts = {"a": 1}
    def __getattr__(self, name):
        if name in self._parts: return self._parts[name]
        raise AttributeError(name)
x = T()
""",
        "x.a == 1",
    ),
    "slots and attributes that are asked for others": (
        """
class S:
    __slots__ = ("_parts",)
class T(S):
    def __init__(self): self._parts = {"a": 1}; self.b = 2
    def __getattr__(self, name):
        if name in self._parts: return self._parts[name]
        raise AttributeError(name)
x = T()
""",
        "x.a == 1 and x.b == 2",
    ),
    "one with a way of its own": (
        """
class T(float):
    def __new__(cls, value, unit): made = super().__new__(cls, value); made.unit = unit; return made
    def __getnewargs__(self): return float(self), self.unit + "!"
x = T(1.5, "m")
""",
        "x == 1.5 and x.unit == 'm'",
    ),
}


@pytest.mark.parametrize(("source", "holds"), CASES.values(), ids=CASES)
def test_an_instance_comes_back_as_it_is(source, holds):
    if "numpy" in source:
        pytest.importorskip("numpy")
    before = cells(f"{source}\nagain = [x]")
    assert eval(holds, {"x": before["x"], "before": before["x"]})
    result = of_user(before)
    assert not result.unsaved
    assert not result.report.missing
    assert not result.manifest.changed
    assert eval(holds, {"x": result["x"], "before": before["x"]})
    assert result["again"][0] is result["x"]
    assert type(result["x"]) is result["T" if "T" in before else type(before["x"]).__name__]


def test_members_that_lead_back_to_a_tree_are_found_in_it():
    result = roundtrip("""
from collections import defaultdict
class Node:
    def __init__(self, name): self.name = name; self.tree = Tree(); self.tree[self][self] = 1
    def __hash__(self): return hash(self.name)
    def __eq__(self, other): return self.name == other.name
class Tree(defaultdict):
    def __init__(self): super().__init__(dict); self.label = "l"
x = Node("n")
""")
    assert not result.report.missing
    x = result["x"]
    assert x.tree[x] == {x: 1}
    assert x.tree.label == "l"
    assert x.tree.default_factory is dict


def test_a_library_s_only_one_stays_the_only_one(tmp_path, monkeypatch):
    (tmp_path / "has_an_only_one.py").write_text("""
class Only:
    made = None
    def __new__(cls):
        cls.made = cls.made or super().__new__(cls)
        return cls.made
only = Only()
""")
    monkeypatch.syspath_prepend(tmp_path)
    result = roundtrip("import has_an_only_one\nx = [has_an_only_one.only]")
    assert result["x"][0] is result["has_an_only_one"].only


def test_a_text_that_a_library_has_already_stays_that_one(monkeypatch, tmp_path):
    (tmp_path / "site-packages").mkdir()
    for folder, name in (tmp_path / "site-packages", "has_texts"), (tmp_path, "has_texts_of_its_own"):
        monkeypatch.syspath_prepend(folder)
        (folder / f"{name}.py").write_text("""
class Text(str):
    known = {}
    def __new__(cls, text): return cls.known.setdefault(text, super().__new__(cls, text))
class Twice(str):
    def __new__(cls, text): return super().__new__(cls, text * 2)
text, twice = Text("a"), Twice("b")
""")
    result = roundtrip("import has_texts, has_texts_of_its_own as own\nx = [has_texts.text, own.twice]")
    assert result["x"][0] is result["has_texts"].text
    assert result["x"][1] == "bb"


def test_what_a_class_makes_works_in_a_new_process():
    check_in_a_new_process(
        CASES["a number with a unit"][0] + "y = {x: [x]}",
        "assert y[3.5][0] is x and type(x) is Temp and x.unit == 'C' and Temp(1, 'K').unit == 'K'",
    )


def test_one_that_fails_when_it_is_asked_costs_only_the_names_that_lead_to_it():
    result = roundtrip("""
class Endless:
    def __init__(self): self.parts = {}
    def __getattr__(self, name): return self.parts[name]
    def __reduce__(self): return object.__new__, (type(self),), {"parts": {}}
x = Endless()
shared = [1]
both = [x, shared]
""")
    assert {missing.name for missing in result.report.missing} == {"x", "both"}
    assert result["shared"] == [1]
