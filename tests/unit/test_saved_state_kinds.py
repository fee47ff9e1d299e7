"""Every kind of object that a notebook holds comes back as it was, or is named with a reason."""

from __future__ import annotations

import itertools
import sys
import warnings

import pytest

import saved_state_zoo as zoo
from nls_jupyter import saved_state
from saved_state_processes import carried
from saved_state_roundtrip import Roundtrip, cells, roundtrip
from saved_state_same import same

# What libraries say about each other when some of these objects are made.
pytestmark = pytest.mark.filterwarnings("ignore")

KEPT = [
    pytest.param(setup, expression, id=f"{group}: {kind}")
    for group, (setup, kinds) in zoo.KEPT.items()
    for kind, expression in kinds.items()
]
NAMED = [
    pytest.param(setup, expression, id=kind)
    for setup, kinds in zoo.NAMED.values()
    for kind, expression in kinds.items()
]


def test_the_list_is_long_enough_to_mean_something():
    assert len(KEPT) >= 200
    assert len(NAMED) >= 30


@pytest.mark.parametrize(("setup", "expression"), KEPT)
def test_it_comes_back_as_it_was_and_still_shared(setup, expression):
    names = zoo.namespace(setup, expression)
    user = saved_state.user_names(names, {}) | {"again": names["x"], "holder": [names["x"]]}
    result = Roundtrip(user, function_globals=names)
    assert not result.unsaved
    assert not result.report.missing
    assert not result.manifest.changed
    assert same(names["x"], result["x"])
    if not isinstance(result["x"], (int, float, complex)):  # those may be made anew at any time
        assert result["again"] is result["x"] is result["holder"][0]


@pytest.mark.parametrize(("setup", "expression"), NAMED)
def test_it_is_named_with_a_reason_and_costs_nobody_else(setup, expression):
    names = zoo.namespace(setup, expression)
    try:
        result = Roundtrip({"before": [1], "x": names["x"], "holder": {"x": names["x"]}, "after": [2]})
    finally:
        for close in names["__opened__"]:
            close()
    assert set(result.unsaved) == {"x", "holder"}
    assert len(result.unsaved["x"]) > 10
    assert result.namespace == {"before": [1], "after": [2]}


def test_the_comparison_sees_differences():
    """The tests above are only as good as it."""
    for group, (setup, kinds) in zoo.KEPT.items():
        values = []
        with warnings.catch_warnings(action="ignore"):
            values = [zoo.namespace(setup, expression)["x"] for expression in kinds.values()]
        for position, value in enumerate(values[:-1]):
            assert not same(value, values[position + 1]), (group, position)


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("try: 1 / 0\nexcept ZeroDivisionError as error: x = error", "an exception comes back without its traceback"),
        ("x = ValueError(1)\nx.__cause__ = KeyError(2)", "an exception comes back without its traceback"),
        (
            "import io; x = io.BytesIO(); x.note = 1; y = vars(x)",
            "its attributes, which have a name too, come back apart",
        ),
        (
            "import types; x = types.SimpleNamespace(a=1); y = vars(x)",
            "its attributes, which have a name too, come back",
        ),
        ("x = lambda: 1\nx.note = 1; y = vars(x)", "its attributes, which have a name too, come back"),
        ("x = iter({'a': 1}.items())", "an iterator over a dict or a set comes back with a list"),
        ("x = reversed({'a': 1})", "an iterator over a dict or a set comes back with a list"),
        ("import collections; x = iter(collections.OrderedDict(a=1))", "an iterator over a dict or a set comes back"),
        ("x = iter({1, 2})", "an iterator over a dict or a set comes back with a list"),
    ],
)
def test_what_comes_back_otherwise_says_so(source, change):
    result = roundtrip(source)
    assert [changed.name for changed in result.manifest.changed] == ["x"]
    assert result.manifest.changed[0].change.startswith(change)
    assert type(result["x"]).__name__ in {
        *("list_iterator", "ZeroDivisionError", "ValueError", "BytesIO", "SimpleNamespace", "function")
    }


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python does not pickle it")
@pytest.mark.parametrize(
    ("taken", "changed"),
    [
        ("pass", False),
        ("next(groups)", False),
        ("_, group = next(groups); next(group)", True),
        ("_, group = next(groups); list(group)", False),
        ("[list(group) for _, group in groups]", False),
    ],
)
def test_groups_that_are_gone_over_go_on_or_it_is_said(taken, changed):
    result = roundtrip(f"import itertools\ngroups = itertools.groupby([1, 1, 1, 2, 2, 3])\n{taken}")
    assert any("middle of a group" in one.change for one in result.manifest.changed) == changed
    if not changed:
        groups = cells(f"import itertools\ngroups = itertools.groupby([1, 1, 1, 2, 2, 3])\n{taken}")["groups"]
        assert [(key, [*group]) for key, group in result["groups"]] == [(key, [*group]) for key, group in groups]


@pytest.mark.parametrize("taken", [0, 1, 3, 5])
def test_lines_that_are_zipped_go_on_where_the_shorter_has_ended(taken):
    """Python leaves a hole where it was, which ends a process that goes over it: so this has one of its own."""
    before = f"""
        import itertools
        fill = [0]
        rows = itertools.zip_longest('ab', map(list, 'xyz'), fillvalue=fill)
        taken = [next(rows, None) for _ in range({taken})]
    """
    left = [("a", ["x"]), ("b", ["y"]), ([0], ["z"])][taken:]
    after = f"""
        rest = list(rows) if 'rows' in globals() else {left}
        assert rest == {left}, rest
        assert 'rows' not in globals() or all(row[0] is fill for row in rest[-1:])
    """
    named = [name for name, _ in carried(before, after)]
    assert named == (["rows"] if sys.version_info >= (3, 14) else [])  # Python pickles it no more


def test_what_counts_or_repeats_goes_on_where_it_was():
    result = roundtrip("""
import itertools
part = [1]
made = [itertools.count(3), itertools.count(-1), itertools.count(1 << 70), itertools.count(0.5, 2)]
made += [itertools.count(1, 3), itertools.repeat(part, 3), itertools.repeat(part)]
made += [itertools.repeat(itertools.repeat, 1)]
for one in made: next(one)
""")
    assert not result.unsaved
    rest = [list(itertools.islice(one, 2)) for one in result["made"]]
    assert rest == [[4, 5], [0, 1], [(1 << 70) + 1, (1 << 70) + 2], [2.5, 4.5], [4, 7], [[1], [1]], [[1], [1]], []]
    assert rest[5][0] is rest[6][0] is result["part"]
