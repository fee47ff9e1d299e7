"""What a library tells from all others by who it is, is that in the next process, too."""

from __future__ import annotations

import dataclasses
import sys
import types

import pytest

from nls_jupyter.saved_state import sentinels
from saved_state_roundtrip import check_in_a_new_process, roundtrip

CASES = {
    "a dataclass is a base": (
        """
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    names: list = dataclasses.field(default_factory=list, kw_only=True)
""",
        """
@dataclasses.dataclass
class Far(Point):
    y: int
assert Far(1, 2) == Far(1, y=2, names=[])
assert dataclasses.fields(Point)[0].default is dataclasses.MISSING
""",
    ),
    "one of the notebook's own that names itself": (
        """
class _Missing:
    def __reduce__(self): return "MISSING"
    def __repr__(self): return "MISSING"
MISSING = _Missing()
results = {"accuracy": 0.93, "notes": MISSING}
def noted(notes=MISSING): return notes is not MISSING
""",
        """
assert results["notes"] is MISSING and not noted() and noted(None) and type(MISSING) is _Missing
import pickle
assert pickle.loads(pickle.dumps(MISSING)) is MISSING
""",
    ),
    "traits": (
        """
import traitlets
class Kind(traitlets.HasTraits):
    either = traitlets.Union([traitlets.Int(), traitlets.Unicode()])
    one = traitlets.Int().tag(unset=traitlets.Undefined)
""",
        """
assert Kind().either == 0
assert Kind.class_traits()["one"].metadata["unset"] is traitlets.Undefined
""",
    ),
    "one that a class has": (
        "import pyparsing\nmaybe = pyparsing.Opt(pyparsing.Literal('a')) + 'b'",
        "assert maybe.parse_string('b').as_list() == ['b']",
    ),
    "argparse's string": (
        """
import argparse
parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
parser.add_argument("--size", type=int, default=3)
parser.add_argument("--name", help=argparse.SUPPRESS)
commands = parser.add_subparsers(dest="command")
commands.add_parser("go").add_argument("--far")
""",
        """
assert vars(parser.parse_args([])) == {"size": 3, "command": None}
assert vars(parser.parse_args(["go"])) == {"size": 3, "command": "go", "far": None}
assert "name" not in parser.format_help()
parser.add_argument("--later", default=argparse.SUPPRESS)
assert "later" not in parser.parse_args([])
""",
    ),
    "a bare object of a library's": (
        "import configparser\nunset = [configparser._UNSET]",
        "assert unset == [configparser._UNSET]",
    ),
    "a zone of dateutil's": (
        """
import datetime
tz = pytest.importorskip("dateutil.tz", reason="pip install python-dateutil to check its zones")
zone, by_hand = tz.gettz("Europe/Berlin"), tz.tzfile(tz.gettz("Europe/Berlin")._filename)
before = datetime.datetime(2026, 3, 28, 12, tzinfo=zone)
""",
        """
after = datetime.datetime(2026, 3, 29, 12, tzinfo=tz.gettz("Europe/Berlin"))
assert after - before == datetime.timedelta(days=1)
assert by_hand == zone is tz.gettz("Europe/Berlin") is not by_hand
""",
    ),
    "a model of pydantic's with a type filled in": (
        """
import typing
pydantic = pytest.importorskip("pydantic", reason="pip install pydantic to check its generic models")
T = typing.TypeVar("T")
class Page(pydantic.BaseModel, typing.Generic[T]):
    items: list[T]
    known: typing.ClassVar[list] = []
page = Page[int](items=[1])
Page.known.append(page)
""",
        """
assert type(page) is Page[int] is not Page[str]
assert page == Page[int](items=[1]) and Page.known[0] is page
""",
    ),
    "a bare object of the user's": (
        "unset = object()\ndef is_unset(it=unset): return it is unset",
        "assert is_unset() and not is_unset(1)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_itself_in_a_new_process(case):
    check_in_a_new_process(*(f"import pytest\n{part}" for part in CASES[case]))


def test_what_python_tells_of_itself_is_that_of_the_new_process():
    check_in_a_new_process(
        "import sys\nlimits, version, kind = sys.float_info, [sys.version_info, sys.flags], type(sys.hash_info)",
        "assert limits is sys.float_info and version == [sys.version_info, sys.flags]\n"
        "assert version[0] is sys.version_info and kind is type(sys.hash_info)\n",
    )
    result = roundtrip("import sys\nhooks = sys.get_asyncgen_hooks()")
    assert "a type of Python's, asyncgen_hooks, that cannot be imported" in result.unsaved["hooks"]


def test_what_has_content_is_saved():
    result = roundtrip("import types\nit = types.MappingProxyType({1: 2})\nfrom email.policy import HTTP as policy")
    assert result["it"] == types.MappingProxyType({1: 2})
    assert not sentinels.is_one(result.namespace["policy"])


@pytest.mark.parametrize("thing", [dataclasses.MISSING, dataclasses._FIELD])  # type: ignore[attr-defined]
def test_one_belongs_to_nobody(thing):
    assert sentinels.may_be(type(thing))
    assert sentinels.is_one(thing)


def test_an_empty_object_that_no_module_has_is_none():
    assert not sentinels.is_one(object())
    assert not sentinels.is_one(types.MappingProxyType({}))
    assert not sentinels.may_be(types.SimpleNamespace)


DECORATORS = '''
import functools, sys, types
class Cached:
    """Pickled by the name of what it wraps, as CacheTools' and a plain function are."""
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.cache = {}
    def __get__(self, thing, owner=None): return self if thing is None else types.MethodType(self, thing)
    def __call__(self, *given):
        if given not in self.cache: self.cache[given] = self.__wrapped__(*given)
        return self.cache[given]
    def __reduce__(self): return self.__qualname__
class Method:
    """Pickled by where its class has it."""
    def __init__(self, function): self.function = function
    def __set_name__(self, owner, name): self.owner, self.name = owner, name
    def __get__(self, thing, owner=None): return functools.partial(self.function, thing)
    def __reduce__(self): return self.find, (self.owner, self.name)
    @staticmethod
    def find(owner, name): return vars(owner)[name]
@Cached
def of_the_library(n): return n
class Curried(Cached):
    """Pickled by a text, as Toolz' are."""
    def __reduce__(self): return self.find, (f"{self.__module__}:{self.__qualname__}",)
    @staticmethod
    def find(path): return getattr(sys.modules[path.partition(":")[0]], path.partition(":")[2])
'''


def test_what_a_decorator_has_made_comes_back_though_it_is_pickled_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "their_decorators.py").write_text(DECORATORS)
    monkeypatch.syspath_prepend(str(tmp_path))
    check_in_a_new_process(
        """
import their_decorators
calls = []
@their_decorators.Cached
def plus_one(n):
    calls.append(n)
    return n + 1
class Kind:
    @their_decorators.Cached
    def cached(self, n): return n + 2
    @their_decorators.Method
    def method(self, n): return n + 3
@their_decorators.Curried
def plus_four(n): return n + 4
cache, got, kind, theirs = plus_one.cache, plus_one(1), Kind(), their_decorators.of_the_library
kept = vars(Kind)["method"]
""",
        "assert (plus_one(1), plus_one(2), calls) == (2, 3, [1, 2]) and plus_one.cache is cache\n"
        "assert (kind.cached(1), kind.method(1), plus_four(1)) == (3, 4, 5)\n"
        "assert vars(Kind)['method'] is kept and kept.owner is Kind\n"
        "assert theirs is their_decorators.of_the_library\n",
    )
    del sys.modules["their_decorators"]
