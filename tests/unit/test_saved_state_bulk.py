"""Big containers are looked at all at once: what changes in them is seen, and so is who else has a part of them."""

from __future__ import annotations

import contextlib
import math
from types import SimpleNamespace

import pytest

from nls_jupyter.saved_state import Saver, SaveStoppedError, graph
from nls_jupyter.saved_state.bulk import Bulk
from saved_state_roundtrip import Roundtrip, restore

COUNT = graph._MANY + 1
ROWS = {
    "dicts": lambda: [{"number": n, "text": str(n), "part": n / 3} for n in range(COUNT)],
    "dicts, by name": lambda: {str(n): {"number": n, 3: None} for n in range(COUNT)},
    "lists": lambda: [[n, str(n)] for n in range(COUNT)],
    "tuples": lambda: tuple((n, -n) for n in range(COUNT)),
    "numbers": lambda: [n / 7 for n in range(COUNT)],
    "texts": lambda: {n: str(n) for n in range(COUNT)},
}
OTHERS = {
    "rows in rows": lambda: [[[n]] for n in range(COUNT)],
    "one row again and again": lambda: [[1]] * COUNT,
    "bytearrays": lambda: [{"b": bytearray(b"x")} for n in range(COUNT)],
    "instances": lambda: [{"i": SimpleNamespace(n=n)} for n in range(COUNT)],
    "rows of two kinds": lambda: [[n] if n % 2 else {n: n} for n in range(COUNT)],
    "tuples as keys": lambda: {(n, n): {} for n in range(COUNT)},
}


def look(container):
    return Bulk(int, set()).digest_of(container)


@pytest.mark.parametrize("make", ROWS.values(), ids=ROWS)
def test_plain_rows_are_told_by_what_they_hold(make):
    assert look(make()) == look(make()) is not None


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_all_others_are_left_to_the_walk_and_come_back(make):
    rows = make()
    assert look(rows) is None
    assert str(Roundtrip({"rows": rows})["rows"]) == str(rows)


@pytest.mark.parametrize("other", [1, 1.0, True, "1", b"1", None, -0.0, math.nan, 10**30, "\ud800"])
def test_values_that_look_alike_are_told_apart(other):
    for value in (0, 1, 1.5, False, "", b"", 0.0):
        different = repr(value) != repr(other) or type(value) is not type(other)
        assert (look([{"v": value}]) != look([{"v": other}])) == different


def test_what_changes_in_a_row_is_saved_and_what_does_not_is_not_pickled_again(monkeypatch):
    rows = ROWS["dicts"]()
    with contextlib.closing(Saver()) as saver:
        saver.save({"rows": rows}, cell=None)
        saver.save({"rows": rows}, cell=None)
        part = saver._last[0]
        saver.save({"rows": rows}, cell=None)
        assert saver._last[0].encoded is part.encoded
        rows[7]["number"] = "seven"
        saver.save({"rows": rows}, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["rows"] == rows


def test_a_row_that_another_name_has_stays_shared_also_if_that_comes_later():
    rows = ROWS["dicts"]()
    names = {"rows": rows}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell=None)
        names["row"] = rows[5]
        saver.save(names, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["row"] is found["rows"][5]
        rows[9] = rows[8]
        del names["row"]
        saver.save(names, cell=None)
        restore(saver.descriptors(), found)
        assert found["rows"][9] is found["rows"][8]


def test_a_row_that_becomes_its_equal_twin_is_not_taken_for_the_same():
    rows = [{"n": 1} for _ in range(COUNT)]
    with contextlib.closing(Saver()) as saver:
        saver.save({"rows": rows}, cell=None)
        rows[1] = rows[0]
        saver.save({"rows": rows}, cell=None)
        found = {}
        restore(saver.descriptors(), found)
        assert found["rows"][1] is found["rows"][0]
        rows[1] = {"n": 1}
        saver.save({"rows": rows}, cell=None)
        restore(saver.descriptors(), found)
        assert found["rows"][1] is not found["rows"][0]


def test_nobodys_code_runs_in_a_look():
    class Loud:
        def __reduce__(self):
            raise AssertionError

    rows = ROWS["dicts"]()
    bulk = Bulk(int, set())
    assert bulk.digest_of(rows) is not None
    rows[3]["number"] = Loud()
    assert bulk.digest_of(rows) is None


def test_a_look_can_be_stopped():
    def stop():
        raise SaveStoppedError("stop")

    with pytest.raises(SaveStoppedError):
        Bulk(stop, set()).digest_of(ROWS["dicts"]())
