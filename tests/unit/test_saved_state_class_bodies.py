"""What a library reads when a class is made is there when the class comes back; the user's code is not told again."""

from __future__ import annotations

import sys

import pytest

from saved_state_roundtrip import check_in_a_new_process, roundtrip

LIBRARY = '''
heard = []
class Reads(type):
    """Registers by the body, as YAML does, and counts arguments, as SymPy does."""
    def __init__(cls, name, bases, body):
        super().__init__(name, bases, body)
        if "tag" in body:
            heard.append((body["tag"], cls.__qualname__, cls.opens.__func__.__code__.co_argcount, cls.opens(3)))
            cls._size = body.get("size", 0)
    @property
    def size(cls):
        """As the body has it, and for nobody to set."""
        return cls._size
class Read(metaclass=Reads):
    pass
class Told:
    def __init_subclass__(cls):
        heard.append((cls.__name__, sorted(name for name in vars(cls) if name[0] != "_")))
class Transforms(type):
    """Makes something else of a body, which it does not take again."""
    def __new__(meta, name, bases, body):
        if "made" in body:
            raise TypeError("a body has no `made`")
        made = super().__new__(meta, name, bases, {**body, "fields": None})
        made.made = body.get("fields")
        return made
'''


@pytest.fixture
def library(tmp_path, monkeypatch):
    (tmp_path / "their_classes.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("their_classes", None)


READ = """
import their_classes
class Kind(their_classes.Read):
    tag, size = "kind", 2
    known = {}
    @classmethod
    def opens(cls, n): return super().__name__ if n == 2 else (cls.tag, n)
    def again(self): return super().__repr__() and Kind
Kind.known[1] = Kind()
of_kind = Kind.opens
"""


@pytest.mark.usefixtures("library")
def test_a_metaclass_reads_a_class_that_comes_back_once():
    check_in_a_new_process(
        READ,
        "assert their_classes.heard == [('kind', 'Kind', 2, ('kind', 3))], their_classes.heard\n"
        "assert Kind.size == 2 and vars(Kind)['size'] == 2 and type(Kind.known[1]) is Kind is Kind().again()\n"
        "assert of_kind.__self__ is Kind and [name for name in vars(Kind) if name[0] != '_'][:2] == ['tag', 'size']\n",
    )


@pytest.mark.usefixtures("library")
def test_a_metaclass_below_one_that_reads_is_not_run_again():
    check_in_a_new_process(
        READ.replace("class Kind(", "made = []\nclass Own(their_classes.Reads):\n def __init__(cls, *parts):\n"
        "  super().__init__(*parts); made.append(1)\nclass Kind(").replace(".Read)", ".Read, metaclass=Own)"),
        "assert their_classes.heard == [('kind', 'Kind', 2, ('kind', 3))] and made == [1] and type(Kind) is Own\n",
    )  # fmt: skip


@pytest.mark.usefixtures("library")
def test_a_library_is_told_past_a_base_of_the_user_s():
    check_in_a_new_process(
        """
import their_classes
told = []
class Own(their_classes.Told):
    def __init_subclass__(cls):
        super().__init_subclass__()
        told.append(cls.__name__)
class Silent(their_classes.Told):
    def __init_subclass__(cls): told.append(cls.__name__)
class Named:
    def __set_name__(self, owner, name): told.append(name)
class One(Own):
    a, b = 1, Named()
class Two(Silent): pass
""",
        "assert told == ['b', 'One', 'Two'], told\n"
        "assert sorted(their_classes.heard) == [('One', ['a', 'b']), ('Own', []), ('Silent', [])]\n"
        "class Three(Own): c = Named()\nassert told[3:] == ['c', 'Three'] and len(their_classes.heard) == 4\n",
    )


@pytest.mark.usefixtures("library")
def test_a_class_of_which_its_metaclass_has_made_something_else_comes_back_as_it_is():
    check_in_a_new_process(
        "import their_classes\nclass Kind(metaclass=their_classes.Transforms): fields = [1]",
        "assert (Kind.fields, Kind.made) == (None, [1])\n",
    )


@pytest.mark.usefixtures("library")
def test_classes_that_lead_to_one_another_come_back():
    check_in_a_new_process(
        READ
        + "class Part(their_classes.Read):\n whole, parts = Kind, (Kind,)\nKind.part = Part\nPart.itself = (Part,)",
        "assert Kind.part is Part and Part.parts == (Part.whole,) == (Kind,) and Part.itself == (Part,)\n",
    )


def test_a_library_that_reads_a_body_finds_what_yaml_has_registered():
    check_in_a_new_process(
        """
import yaml
class Point(yaml.YAMLObject):
    yaml_tag, yaml_loader = "!point", yaml.SafeLoader
    @classmethod
    def from_yaml(cls, *parts): return super().from_yaml(*parts)
""",
        "found = yaml.safe_load('!point {x: 1}')\nassert type(found) is Point and found.x == 1\n",
    )


def test_functions_of_sympy_have_their_arguments():
    pytest.importorskip("sympy", reason="pip install sympy to check its classes with it")
    check_in_a_new_process(
        """
import sympy
class Two(sympy.Function): nargs = 2
class Counted(sympy.Function):
    @classmethod
    def eval(cls, a, b=1): return sympy.Integer(b) if a == 0 else None
x = sympy.Symbol("x")
both = Two(x, x) + Counted(x)
""",
        "assert str((Two.nargs, Counted.nargs)) == '({2}, {1, 2})' and Counted(0, 3) == 3\n"
        "assert both == Two(x, x) + Counted(x)\n",
    )


def test_structures_of_ctypes_come_back():
    check_in_a_new_process(
        """
import ctypes
class Pair(ctypes.Structure):
    _fields_ = [("first", ctypes.c_int), ("rest", ctypes.c_double * 2)]
    def total(self): return super() and self.first + sum(self.rest)
class Packed(Pair):
    _pack_, _layout_ = 1, "ms"
    _fields_ = [("flag", ctypes.c_bool), ("to", ctypes.POINTER(Pair)), ("pair", Pair)]
class Either(ctypes.Union):
    _fields_ = [("whole", ctypes.c_int), ("part", ctypes.c_float)]
class Swapped(ctypes.BigEndianStructure):
    _fields_ = [("high", ctypes.c_int16, 4), ("low", ctypes.c_int16, 12)]
class Node(ctypes.Structure): pass
Node._fields_ = [("n", ctypes.c_int), ("next", ctypes.POINTER(Node))]
kinds = Pair, Packed, Either, Swapped, Node, Pair * 3
sizes = [ctypes.sizeof(kind) for kind in kinds]
pair, swapped = Pair(1, (2, 3)), Swapped(1, 2)
""",
        "assert [ctypes.sizeof(kind) for kind in kinds] == sizes and pair.total() == 6.0\n"
        "assert bytes(swapped) == bytes(Swapped(1, 2)) and Packed(1).first == 1 and Pair * 3 is kinds[-1]\n"
        "assert Node(2, ctypes.pointer(Node(1))).next.contents.n == 1\n",
    )


def test_a_part_of_a_body_that_cannot_be_saved_names_the_class():
    result = roundtrip("""
import yaml
class Point(yaml.YAMLObject):
    yaml_tag, steps = "!of_nobody", (n for n in range(3))
point = Point()
""")
    assert set(result.unsaved) == {"Point", "point"}
    assert "generator" in result.unsaved["Point"]
