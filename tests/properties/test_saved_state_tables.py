"""Tables of pandas that share memory: what a write changes, and what it copies, is the same after a restore."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from saved_state_roundtrip import Roundtrip

pd = pytest.importorskip("pandas")

OF_FRAMES = [
    lambda frame: frame[frame.columns[0]],
    lambda frame: frame[[frame.columns[-1]]],
    lambda frame: frame.iloc[1:],
    lambda frame: frame.copy(deep=False),
    lambda frame: frame.rename(columns=lambda name: f"{name}'"),
    lambda frame: frame.assign(more=1.0),
    lambda frame: frame.set_index(frame.columns[0], drop=False),
    lambda frame: frame.reset_index(drop=True),
    lambda frame: frame.copy(),
    lambda frame: frame.T,
]
OF_SERIES = [
    lambda series: series.iloc[:2],
    lambda series: series.rename("renamed"),
    lambda series: series.to_frame(),
    lambda series: pd.Series(pd.Index(series)),
    lambda series: series.copy(),
]


def tables_of(steps, kept):
    """Tables that are made of one another, some of which nobody has any more."""
    made = [pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})]
    for source, way in steps:
        table = made[source % len(made)]
        ways = OF_FRAMES if table.ndim == 2 else OF_SERIES
        made.append(ways[way % len(ways)](table))
    return {f"table{number}": table for number, table in enumerate(made) if number in kept or number + 1 == len(made)}


def columns_of(table):
    """NumPy's arrays that a table shows, without anybody who knows of it."""
    manager = table._mgr
    return [manager.iget_values(column) for column in range(table.shape[1])] if table.ndim == 2 else [manager.array]


def addresses(names):
    """Where each column of each table is."""
    return [array.__array_interface__["data"][0] for table in names.values() for array in columns_of(table)]


NUMBERS = st.integers(0, 9)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=6),
    st.sets(NUMBERS),
    st.lists(st.tuples(NUMBERS, st.floats(10, 99)), min_size=1, max_size=4),
)
def test_writes_to_tables_change_and_copy_what_they_would_have(steps, kept, writes):
    names = tables_of(steps, kept)
    restored = Roundtrip(names).namespace
    for which, value in writes:
        name = sorted(names)[which % len(names)]
        before = [addresses(each) for each in (names, restored)]
        for each in (names, restored):
            each[name].iloc[(0,) * each[name].ndim] = value
        after = [addresses(each) for each in (names, restored)]
        copied = [[one != other for one, other in zip(*pair, strict=True)] for pair in zip(before, after, strict=True)]
        assert copied[0] == copied[1]
        assert {key: repr(table) for key, table in restored.items()} == {
            key: repr(table) for key, table in names.items()
        }
