"""Constructs of `typing` that cells make come back as they were, shared with what they describe."""

from __future__ import annotations

import sys
import typing
from typing import Any

import pytest

from saved_state_processes import carried_on
from saved_state_roundtrip import of_user, roundtrip

CASES = {
    "the name of a type": """
UserId = typing.NewType("UserId", int)
Deeper = typing.NewType("Deeper", UserId)
def f(a: UserId, b: list[Deeper]) -> UserId: return a
class K:
    a: UserId
x = [UserId, f.__annotations__["a"], f.__annotations__["return"], K.__annotations__["a"], Deeper.__supertype__]
""",
    "variables of parameters": """
class Z: pass
P = typing.ParamSpec("P", covariant=True)
Bound = typing.ParamSpec("Bound", bound=Z)
T = typing.TypeVar("T")
def f(a: typing.Callable[P, int], *args: P.args, **rest: P.kwargs) -> typing.Callable[typing.Concatenate[int, P], int]:
    return a
class G(typing.Generic[Bound, T]):
    f: typing.Callable[Bound, T]
y = [G[[int, str], int], P.args, P.kwargs]
x = [P, P.args.__origin__, f.__annotations__["args"].__origin__, f.__annotations__["a"].__parameters__[0]]
""",
    "variables of many types": """
Ts = typing.TypeVarTuple("Ts")
class V(typing.Generic[*Ts]):
    a: tuple[*Ts]
def f(*args: *Ts) -> tuple[*Ts]: return args
y = [V[int, str], typing.Unpack[Ts], V()]
x = [Ts, V.__parameters__[0]]
""",
    "variables of types": """
T = typing.TypeVar("T", bound="int")
S = typing.TypeVar("S", int, str, contravariant=True)
class G(typing.Generic[T]):
    a: T
class H(G[T], typing.Generic[T, S]): pass
y = [G[int], G(), H()]
x = [T, G.__parameters__[0], H.__parameters__[0], G.__annotations__["a"]]
""",
    "typed dicts that inherit": """
class A(typing.TypedDict):
    a: int
class B(A, total=False):
    b: typing.Required[str]
class D(B):
    c: list[A]
    d: typing.NotRequired[typing.Annotated[str, 3]]
def f(x: B) -> A: return x
y = B(a=1, b="2")
x = [A, f.__annotations__["return"]]
""",
    "typed dicts that were called for": """
TD = typing.TypedDict("TD", {"a-b": int, "c": "int"}, total=False)
class E(TD):
    d: int
x = [TD, TD]
""",
    "generic typed dicts": """
T = typing.TypeVar("T")
class A(typing.TypedDict, typing.Generic[T]):
    a: T
class B(A[int]):
    b: str
y = A[int]
x = [T, A.__parameters__[0]]
""",
    "protocols": """
T = typing.TypeVar("T", covariant=True)
@typing.runtime_checkable
class Pr(typing.Protocol[T]):
    def m(self) -> T: ...
class I:
    def m(self): pass
class J(Pr[int]): pass
y = [Pr[int], isinstance(I(), Pr)]
x = [T, Pr.__parameters__[0]]
""",
}
SINCE_3_12 = {
    "aliases": """
class Q: pass
type X = int | list[X] | Q
type Y = dict[str, X]
type L[T] = list[T]
def f(a: X, b: Y, c: L[int]) -> X: return a
y = [L[int], X.__value__, Y.__value__, L.__value__]
x = [X, f.__annotations__["a"], X.__value__.__args__[1].__args__[0], Y.__value__.__args__[1]]
""",
    "generic functions": """
def f[T: int, S: (int, str), *Ts](x: T, *a: *Ts) -> S: return x
x = [f.__type_params__[0], f.__annotations__["x"]]
""",
    "generic classes": """
class C[T]:
    a: T
    def m[S](self, b: S) -> T: return self.a
class D(C[int]): pass
class TD[T](typing.TypedDict):
    a: T
y = [C[int], C(), D()]
x = [C.__type_params__[0], C.__annotations__["a"], C.m.__annotations__["return"]]
""",
}
SINCE_3_13 = {
    "what is only read": """
class A(typing.TypedDict):
    a: typing.ReadOnly[int]
x = [A, A]
""",
    "defaults": """
T = typing.TypeVar("T", default=int)
Ts = typing.TypeVarTuple("Ts", default=typing.Unpack[tuple[int, str]])
P = typing.ParamSpec("P", default=[int])
class G(typing.Generic[T]): pass
x = [T, G.__parameters__[0]]
""",
}
ALL = CASES | (SINCE_3_12 if sys.version_info >= (3, 12) else {}) | (SINCE_3_13 if sys.version_info >= (3, 13) else {})
OF_VARIABLES = [
    *("name", "module", "bound", "covariant", "contravariant", "infer_variance", "default", "constraints"),
    *("supertype", "value", "type_params", "qualname"),
]
OF_CLASSES = [
    *("total", "required_keys", "optional_keys", "readonly_keys", "mutable_keys", "orig_bases", "parameters"),
    *("type_params", "module", "bases", "annotations"),
]


def cells(source: str) -> dict[str, Any]:
    """As in a notebook, where annotations are no texts."""
    namespace: dict[str, Any] = {"__name__": "__main__", "typing": typing}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), namespace)
    return namespace


def shown(thing: Any, names: dict[str, Any]) -> Any:
    if isinstance(thing, list):
        return [shown(one, names) for one in thing]
    parts = OF_CLASSES if isinstance(thing, type) else OF_VARIABLES
    has = [getattr(thing, f"__{part}__", None) for part in parts]
    found = [sorted(one) if isinstance(one, frozenset) else repr(one) for one in has]
    hints = None
    if isinstance(thing, type) or hasattr(thing, "__code__"):
        hints = repr(typing.get_type_hints(thing, globalns=names, include_extras=True))
    text = "" if " at 0x" in repr(thing) else repr(thing)
    return [type(thing).__name__, text, found, hints]


@pytest.mark.parametrize("source", ALL.values(), ids=ALL)
def test_it_comes_back_as_it_was_and_still_shared(source):
    before = cells(source)
    result = of_user(before)
    assert not result.unsaved
    assert not result.report.missing
    assert not result.manifest.changed
    names = [name for name in before if not name.startswith("__") and name != "typing"]
    assert {name: shown(result[name], result.namespace) for name in names} == {
        name: shown(before[name], before) for name in names
    }
    first, *others = result["x"]
    assert others
    assert [other is first for other in others] == [other is before["x"][0] for other in before["x"][1:]]
    again = of_user({"__name__": "__main__", **result.namespace})
    assert not again.unsaved
    assert not again.report.missing


def test_one_of_a_module_stays_that_module_s(tmp_path, monkeypatch):
    (tmp_path / "has_type_names.py").write_text("""
import typing
UserId = typing.NewType("UserId", int)
P = typing.ParamSpec("P")
""")
    monkeypatch.syspath_prepend(tmp_path)
    result = of_user(cells("import has_type_names\nx = [has_type_names.UserId, has_type_names.P]"))
    assert result["x"] == [result["has_type_names"].UserId, result["has_type_names"].P]


def test_a_default_that_typing_extensions_has_given_comes_back():
    pytest.importorskip("typing_extensions")
    result = of_user(
        cells("""
import typing_extensions
T = typing_extensions.TypeVar("T", default=int)
P = typing_extensions.ParamSpec("P", default=[int, str])
class G(typing.Generic[T]): pass
""")
    )
    assert not result.unsaved
    assert not result.report.missing
    assert (result["T"].__default__, result["P"].__default__) == (int, [int, str])
    assert result["G"].__parameters__ == (result["T"],)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are no aliases")
def test_an_alias_that_leads_nowhere_or_to_itself_with_variables_is_named():
    result = of_user(cells("type Late = NotThere | int\ntype R[T] = T | list[R[T]]"))
    assert set(result.unsaved) == {"Late", "R"}


def test_a_generic_named_tuple_comes_back_unchanged():
    result = roundtrip("""
import typing
T = typing.TypeVar("T")
class Pair(typing.NamedTuple, typing.Generic[T]):
    first: T
    second: int
it = Pair[str]("a", 1)
""")
    assert not (*result.manifest.changed, *result.manifest.missing, *result.report.missing)
    assert result["it"] == result["Pair"]("a", 1)
    assert result["Pair"][int].__args__ == (int,)


def test_overloads_are_known_in_the_next_process_but_one():
    before = """
        import typing
        @typing.overload
        def found(where: int) -> int: ...
        @typing.overload
        def found(where: str) -> str: ...
        def found(where): return where
        class Finder:
            @typing.overload
            def find(self, where: int) -> int: ...
            @typing.overload
            def find(self, where: str) -> str: ...
            def find(self, where): return where
    """
    after = """
        kinds = [over.__annotations__["where"] for over in typing.get_overloads(found)]
        assert kinds == [int, str] and len(typing.get_overloads(Finder.find)) == 2
        typing.clear_overloads()
    """
    assert carried_on(before, after) == []


SINCE_3_14 = """
    import enum
    class Tree:
        leaf: Leaf
        kind = int
        def grow(self, by: kind, to: Leaf) -> Tree: ...
    class Slim(Tree):
        __slots__ = ()
        more: Tree
    def look(at: Leaf, up: Tree): ...
    def changed(at: int): ...
    class Kinds(enum.Enum):
        one: Leaf = 1
    changed.__annotations__["at"] = str
    own = look.__annotate__
"""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are found out at once")
def test_annotations_that_name_what_comes_later_are_found_out_later():
    after = """
        import functools
        for one in (Tree, Tree.grow, look, Kinds):
            try: one.__annotations__
            except NameError: continue
            raise AssertionError(one)
        assert Slim.__annotations__ == {"more": Tree} and changed.__annotations__ == {"at": str}
        class Leaf: pass
        assert Tree.__annotations__ == {"leaf": Leaf} and look.__annotations__ == {"at": Leaf, "up": Tree}
        assert Tree.grow.__annotations__ == {"by": int, "to": Leaf, "return": Tree}
        assert functools.wraps(look)(lambda at: 0).__annotations__ == look.__annotations__
        assert Kinds.__annotations__ == {"one": Leaf} and Kinds(1) is Kinds.one
        assert own is look.__annotate__
        assert [name for name in vars(Tree) if name != "__annotations_cache__"] == names
    """
    assert carried_on(SINCE_3_14 + "    names = list(vars(Tree))\n", after) == []


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are found out at once")
def test_a_save_finds_out_no_annotations_of_classes():
    names = cells("class Leaf: pass\nclass Tree:\n    leaf: Leaf\ntree = Tree()")
    result = of_user(names)
    assert "__annotations_cache__" not in {**vars(names["Tree"]), **vars(result["Tree"])}
    assert result["Tree"].__annotations__ == {"leaf": result["Leaf"]}
