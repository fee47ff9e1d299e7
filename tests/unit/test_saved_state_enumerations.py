"""Enumerations of cells come back with what their members hold and have, whatever made them."""

from __future__ import annotations

import pytest

from saved_state_roundtrip import cells, check_in_a_new_process, of_user

ENUMERATIONS = {
    "with attributes from its __init__": (
        """
class Planet(Enum):
    MERCURY = (3.3e23, 2.4e6)
    EARTH = (5.9e24, 6.3e6)
    def __init__(self, mass, radius):
        self.mass, self.radius = mass, radius
    @property
    def gravity(self): return self.mass / self.radius ** 2
it = Planet.EARTH
""",
        "it.mass, it.gravity, [planet.radius for planet in Planet], it is Planet.EARTH, Planet((5.9e24, 6.3e6)) is it",
    ),
    "with content and attributes from its __new__": (
        """
class Axis(bytes, Enum):
    def __new__(cls, value, label, unit):
        it = bytes.__new__(cls, [value])
        it._value_, it.label, it.unit = value, label, unit
        return it
    X = 0, "x", "km"
    Y = 1, "y", "km"
it = Axis.Y
""",
        "it.label, it.unit, it[0], len(it), Axis(1) is it, [axis.label for axis in Axis], it is Axis['Y']",
    ),
    "numbered by a base of its own": (
        """
class Numbered(Enum):
    def __new__(cls):
        it = object.__new__(cls)
        it._value_ = len(cls.__members__) + 1
        return it
class Color(Numbered):
    RED = ()
    GREEN = ()
it = Color.GREEN
""",
        "it.value, Color(2) is it, [color.name for color in Color]",
    ),
    "with second names": (
        """
class Shape(Enum):
    SQUARE, ROUND, ALSO_SQUARE = 2, 3, 2
it = Shape.ALSO_SQUARE
""",
        "list(Shape.__members__), it is Shape.SQUARE, it is Shape['ALSO_SQUARE'], [shape.name for shape in Shape]",
    ),
    "of a dataclass": (
        """
@dataclass
class Size:
    text: str
    legs: int
class Creature(Size, Enum):
    BEETLE = "small", 6
    DOG = "medium", 4
it = Creature.DOG
""",
        "it.text, it.legs, it is Creature.DOG, [creature.legs for creature in Creature]",
    ),
    "of flags, some of several bits": (
        """
class Right(Flag):
    READ, WRITE = auto(), auto()
    BOTH = READ | WRITE
class Mode(IntFlag, boundary=KEEP):
    A, B = 1, 4
it, more = Right.READ | Right.WRITE, Mode(7)
""",
        (
            "it is Right.BOTH, 'BOTH' in Right.__members__, [right.name for right in Right], Right(1) in it, "
            "int(more), ~Mode.A"
        ),
    ),
    "of words and numbers": (
        """
class Word(str, Enum):
    ONE = "one"
    def shout(self): return self.upper()
class Level(IntEnum):
    LOW, HIGH = 1, 5
class Part(float, Enum):
    HALF = 0.5
it = [Word.ONE, Level.HIGH, Part.HALF]
""",
        "it, [str.__str__(it[0]), int(it[1]), float(it[2])], it[0].shout(), it[1] > Level.LOW, {it[0]: 1}['one']",
    ),
    "with what was given to a member later": (
        """
class Step(Enum):
    FIRST, LAST = 1, 2
Step.FIRST.then, Step.LAST.notes, Step.known = Step.LAST, [Step.FIRST], {Step.FIRST: "a"}
it = Step.LAST
""",
        "Step.FIRST.then is it, it.notes[0] is Step.FIRST, Step.known[Step.FIRST]",
    ),
    "whose code would count": (
        """
made = []
class Counted(Enum):
    def __new__(cls, value):
        made.append(value)
        it = object.__new__(cls)
        it._value_ = value
        return it
    def __init__(self, value): made.append(-value)
    ONE, TWO = 1, 2
it = Counted.TWO
""",
        "made, it.value, Counted(2) is it",
    ),
}
HEAD = "from dataclasses import dataclass\nfrom enum import KEEP, Enum, Flag, IntEnum, IntFlag, auto\n"


@pytest.mark.parametrize(("source", "shown"), ENUMERATIONS.values(), ids=ENUMERATIONS)
def test_its_members_come_back_with_all_that_they_are(source: str, shown: str) -> None:
    space = cells(HEAD + source)
    before = repr(eval(f"({shown})", space))
    for _ in range(3):
        result = of_user(space)
        assert not result.manifest.missing
        assert not result.report.missing
        space = result.namespace
        assert repr(eval(f"({shown})", space)) == before


def test_it_does_so_in_a_process_that_never_saw_it() -> None:
    source, _ = ENUMERATIONS["with attributes from its __init__"]
    check_in_a_new_process(HEAD + source, "assert it is Planet.EARTH and it.mass == 5.9e24 and Planet(it.value) is it")


def test_what_it_has_besides_comes_back_in_its_order() -> None:
    source = "class Kind(Enum):\n    z = 1\n    def b(self): return 1\n    def a(self): return 2\nKind.late = 3"
    space = cells(HEAD + source)
    kind = of_user(space)["Kind"]
    own = ("b", "a", "late")
    assert [name for name in vars(kind) if name in own] == [name for name in vars(space["Kind"]) if name in own]
    inherited = {"__static_attributes__"}  # since Python 3.13; an empty one is the enumeration's of Python
    assert vars(kind).keys() - inherited == vars(space["Kind"]).keys() - inherited


BASES = {
    "whose numbers are names": (
        """
class Named(StrEnum):
    @staticmethod
    def _generate_next_value_(name, start, count, last): return "col_" + name.lower()
""",
        "class Column(Named): PRICE = auto()\nit = Column.PRICE.value",
    ),
    "whose numbers are names, as the documentation has it": (
        """
class Named(Enum):
    def _generate_next_value_(name, start, count, last): return name
class Between(Named): pass
""",
        "class Ordinal(Between): NORTH = auto()\nit = Ordinal.NORTH.value",
    ),
    "whose numbers are those of flags, from a number on": (
        """
class Bits(IntFlag):
    @staticmethod
    def _generate_next_value_(name, start, count, last): return 1 << (count + 4)
""",
        "class Mode(Bits): A, B = auto(), auto()\nit = [mode.value for mode in Mode]",
    ),
    "with members for what it does not have": (
        """
class Known(Enum):
    @classmethod
    def _missing_(cls, value): return cls[value.upper()]
""",
        "class Color(Known): RED = 1\nit = Color('red').name",
    ),
    "that ignores some of its names": (
        """
class Plain(Enum):
    _ignore_ = ["part"]
    part = 3
    def whole(self): return self.value * 2
""",
        "class Later(Plain): A = 4\nit = Later.A.whole(), hasattr(Plain, 'part')",
    ),
    "of flags that keep what they do not know": (
        "class Kept(Flag, boundary=KEEP): pass",
        "class Mode(Kept): A = 1\nit = Mode(5).value, Mode._boundary_",
    ),
    "that makes its members of two arguments": (
        """
class Two(Enum):
    def __new__(cls, value, label):
        it = object.__new__(cls)
        it._value_, it.label = value, label
        return it
""",
        "class Axis(Two): X = 0, 'x'\nit = Axis(0).label",
    ),
    "that shows its numbers in another way": (
        "class Shown(IntFlag):\n    _numeric_repr_ = hex",
        "class Mode(Shown, boundary=KEEP): A = 1\nit = repr(Mode(32))",
    ),
}


@pytest.mark.parametrize(("source", "later"), BASES.values(), ids=BASES)
def test_enumerations_that_are_made_of_it_later_are_as_they_would_have_been(source: str, later: str) -> None:
    head = HEAD + "from enum import StrEnum\n"
    expected = cells(head + source + "\n" + later)["it"]
    for space in (cells(head + source), of_user(cells(head + source)).namespace):
        exec("from enum import *\n" + later, space)
        assert space["it"] == expected


OF_METACLASSES = {
    "that answers for it": (
        """
class Meta(EnumType):
    def __contains__(cls, value): return value in cls._value2member_map_
    def __getitem__(cls, name): return super().__getitem__(name.upper())
    def names(cls): return list(cls._member_names_)
class Mode(Enum, metaclass=Meta):
    TRAIN, TEST = "t", "e"
""",
        "type(Mode) is Meta, 't' in Mode, 'z' in Mode, Mode['train'].name, Mode.names()",
    ),
    "that hands out values": (
        """
class Meta(EnumType):
    def __iter__(cls): return (member.value for member in super().__iter__())
    def __len__(cls): return 0
class Mode(Enum, metaclass=Meta):
    A, B, AB = 1, 2, 3
""",
        "list(Mode), len(Mode), Mode.AB.name, list(Mode.__members__)",
    ),
    "that remembers all that it makes": (
        """
made = []
class Meta(EnumType):
    @classmethod
    def __prepare__(meta, name, bases, note=None):
        made.append(note)
        return super().__prepare__(name, bases)
    def __new__(meta, name, bases, body, note=None):
        made.append(name)
        return super().__new__(meta, name, bases, body)
    def __init__(cls, name, bases, body, note=None):
        super().__init__(name, bases, body)
        cls.note = note
class Mode(Enum, metaclass=Meta, note="a"):
    A = 1
""",
        "made, Mode.note, Mode.A.value, isinstance(Mode, Meta)",
    ),
    "of abstract classes, too": (
        """
from abc import ABC, ABCMeta, abstractmethod
class Meta(ABCMeta, EnumType): pass
class Shape(ABC):
    @abstractmethod
    def sides(self): ...
class Kind(Shape, Enum, metaclass=Meta):
    SQUARE = 4
    def sides(self): return self.value
@Kind.register
class Other: pass
it = Kind.SQUARE
""",
        "Kind.SQUARE.sides(), type(Kind) is Meta, isinstance(it, Shape), Kind(4) is it, issubclass(Other, Kind)",
    ),
    "of an own base": (
        """
class Meta(EnumType):
    def first(cls): return cls._member_names_[0]
class Base(Enum, metaclass=Meta): pass
class Mixin:
    def twice(self): return self.value * 2
class Mode(Mixin, Base):
    A = 2
""",
        "Mode.first(), Mode.A.twice(), type(Base) is type(Mode) is Meta",
    ),
}


@pytest.mark.parametrize(("source", "shown"), OF_METACLASSES.values(), ids=OF_METACLASSES)
def test_its_metaclass_comes_back_and_is_not_asked(source: str, shown: str) -> None:
    space = cells(HEAD + "from enum import EnumType\n" + source)
    before = repr(eval(f"({shown})", space))
    for _ in range(2):
        result = of_user(space)
        assert not result.manifest.missing
        assert not result.report.missing
        space = result.namespace
        assert repr(eval(f"({shown})", space)) == before


def test_a_base_is_told_of_it_once() -> None:
    source = """
told = []
class Told(Enum):
    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        told.append(cls.__name__)
class Mode(Told): A = 1
"""
    result = of_user(cells(HEAD + source))
    assert not result.report.missing
    assert result["told"] == ["Mode"]
    exec("class Other(Told): B = 1", result.namespace)
    assert result["told"] == ["Mode", "Other"]


MIXINS = {
    "dates": ("class Day(date, Enum): FIRST, LAST = (2020, 1, 2), (2021, 3, 4)", "Day.LAST", "it.year, Day.FIRST < it"),
    "times": ("class At(time, Enum): NOON = 12, 30", "At.NOON", "it.hour, it.minute"),
    "moments": ("class At(datetime, Enum): NOON = 2020, 1, 2, 12, 30", "At.NOON", "it.hour, it.tzinfo, it.year"),
    "spans": (
        "class Span(timedelta, Enum): DAY, HOUR = 1, (0, 3600)",
        "Span.HOUR",
        "it.total_seconds(), Span.DAY > it",
    ),
    "decimals": ("class Cost(Decimal, Enum): LOW, HIGH = '1.50', '2.10'", "Cost.LOW", "it + 1, Decimal.__str__(it)"),
    "complex numbers": ("class Turn(complex, Enum): LEFT, BACK = 1j, -1", "Turn.LEFT", "it * it, it.imag"),
    "paths": (
        "class At(PurePosixPath, Enum): A, B = '/a/b.txt', '/c'",
        "At.A",
        "it.suffix, PurePosixPath('/a') < it, hash(it) == hash(At.A)",
    ),
    "numbers of NumPy": ("class Half(numpy.float32, Enum): A = 1.5", "Half.A", "it + 1, it.dtype"),
    "lists": ("class Line(list, Enum): A, B = [1, 2], [3]", "Line.A", "list(it), list(Line.B), Line([1, 2]) is it"),
    "dicts": ("class Map(dict, Enum): A = {'a': 1}", "Map.A", "dict(it), it['a']"),
    "sets": ("class Set(frozenset, Enum): A = [1, 2]", "Set.A", "sorted(it), 2 in it"),
    "errors": ("class Failed(ValueError, Enum): A = 'text', 3", "Failed.A", "it.args"),
    "what a cell makes of two arguments": (
        """
class Coord:
    def __new__(cls, x, y):
        made.append(x)
        it = object.__new__(cls)
        it.x, it.y = x, y
        return it
    def __repr__(self): return "coord"
made = []
class Place(Coord, Enum): HOME = 1, 2
""",
        "Place.HOME",
        "it.x, it.y, made, isinstance(it, Coord), it.value.y",
    ),
    "what a cell makes of a text": (
        """
class Day(date):
    def __new__(cls, text): return date.__new__(cls, *map(int, text.split("-")))
class Feast(Day, Enum): NEW_YEAR = "2020-1-1"
""",
        "Feast.NEW_YEAR",
        "it.month, it.year, isinstance(it, Day)",
    ),
    "what has slots": (
        """
class Pair:
    __slots__ = "x", "_y"
    def __init__(self, x, y): self.x, self._y = x, y
    def __repr__(self): return "pair"
class Kind(Pair, Enum): A = 1, [2]
""",
        "Kind.A",
        "it.x, it._y",
    ),
}
OF_LIBRARIES = """
import numpy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
"""


@pytest.mark.parametrize(("source", "it", "shown"), MIXINS.values(), ids=MIXINS)
def test_members_that_are_something_else_too_come_back(source: str, it: str, shown: str) -> None:
    space = cells(f"{HEAD}{OF_LIBRARIES}{source}\nit = {it}\nits_value = it.value")
    shown = f"({shown}, its_value, type(its_value) in type(it).__mro__)"
    before = repr(eval(shown, space))
    for _ in range(2):
        result = of_user(space)
        assert not result.manifest.missing
        assert not result.report.missing
        space = result.namespace
        assert repr(eval(shown, space)) == before
        assert space["it"] is eval(it, space)


def test_members_that_nobody_can_make_again_are_named_when_they_are_saved() -> None:
    result = of_user(cells(HEAD + "import io\nclass File(io.BytesIO, Enum): A = b'a'\nheld = [File.A]"))
    sentence = "an enumeration whose members are also of BytesIO"
    assert result.unsaved == {"File": f"{sentence} cannot be saved", "held": f"it holds {sentence}"}
    assert not result.report.missing


def test_it_comes_back_where_something_before_it_is_hashed_late() -> None:
    source = """
def kinds():
    class Kind(Enum): A = 1, [2]
    return Kind
class Node:
    def __init__(self):
        self.around, self.kind = None, kinds()
        self.around = {self}
    def __hash__(self): return hash(self.kind.__name__)
it = Node()
"""
    result = of_user(cells(HEAD + source))
    assert not result.report.missing
    assert result["it"] in result["it"].around
    assert result["it"].kind.A.value == (1, [2])


def test_members_are_found_by_all_values_that_they_are_known_by() -> None:
    source = """
class Dtype(Enum):
    def __new__(cls, *values):
        it = object.__new__(cls)
        it._value_ = values[0]
        for other in values[1:]:
            cls._value2member_map_[other] = it
        return it
    FLOAT = 32, "f4", ("float", 32)
    INT = 8, "i1"
class Bit(Flag): A, B = 1, 2
both = Bit.A | Bit.B
"""
    result = of_user(cells(HEAD + source))
    kind, bit = result["Dtype"], result["Bit"]
    assert [kind(value) for value in ("f4", ("float", 32), "i1")] == [kind.FLOAT, kind.FLOAT, kind.INT]
    assert kind(32) is kind.FLOAT
    assert kind._value2member_map_.keys() == cells(HEAD + source)["Dtype"]._value2member_map_.keys()
    assert bit.A | bit.B is result["both"]


def test_a_member_keeps_its_name_where_another_one_was_there_before_it() -> None:
    """As `_add_alias_` of Python 3.13 has it, called by `__init__`."""
    source = """
class Kind(Enum):
    def __init__(self, value): type(self)._member_map_["ALSO_" + str(value)] = self
    A, B = 1, 2
it = Kind.A
"""
    result = of_user(cells(HEAD + source))
    kind = result["Kind"]
    assert [member.name for member in kind] == ["A", "B"]
    assert result["it"] is kind["ALSO_1"] is kind["A"]
