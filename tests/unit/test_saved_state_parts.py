"""What shows a part of something goes on showing it: views of dicts, of arrays with fields and objects, records."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from saved_state_roundtrip import Roundtrip, saved

FIELDS = np.dtype([("a", object), ("b", "i4"), ("c", "i4", (2,))])
PLAIN = np.dtype([("a", "i8"), ("b", "i4")])


def rows(dtype: np.dtype) -> np.ndarray:
    found = np.zeros((3, 2), dtype)
    found["b"] = np.arange(6).reshape(3, 2)
    if dtype.hasobject:
        found["a"] = [[[n], n] for n in range(3)]
    return found


VIEWS = {
    "a field of objects": (FIELDS, lambda whole: whole["a"]),
    "a field of numbers": (FIELDS, lambda whole: whole["b"]),
    "a field of several numbers": (FIELDS, lambda whole: whole["c"]),
    "rows": (FIELDS, lambda whole: whole[1:]),
    "backwards": (FIELDS, lambda whole: whole[::-1, 1]["b"]),
    "a column of a field": (FIELDS, lambda whole: whole["a"][:, 1]),
    "nothing": (FIELDS, lambda whole: whole["a"][3:]),
    "plain": (PLAIN, lambda whole: whole["b"]),
}


@pytest.mark.parametrize("which", VIEWS)
def test_views_of_arrays_with_fields_show_the_same_memory(which):
    dtype, part = VIEWS[which]
    whole = rows(dtype)
    result = Roundtrip({"part": part(whole), "whole": whole})
    assert not result.manifest.changed
    assert repr(result["whole"]) == repr(whole)
    result["whole"]["b"] += 10
    if dtype.hasobject:
        result["whole"]["a"][1] = "new"
        result["whole"]["c"] += 5
    assert repr(result["part"]) == repr(part(result["whole"]))


@pytest.mark.parametrize("kind", ["plain", "recarray"])
def test_a_record_shows_its_row(kind):
    whole = rows(PLAIN)[:, 0]
    whole = whole.view(np.recarray) if kind == "recarray" else whole
    result = Roundtrip({"record": whole[1], "whole": whole})
    assert not result.manifest.changed
    assert type(result["record"]) is type(whole[1])
    result["whole"]["b"][1] = 77
    assert result["record"]["b"] == 77
    result["record"]["a"] = 5
    assert result["whole"]["a"].tolist() == [0, 5, 0]


def test_a_record_of_its_own_and_one_with_objects_come_back_and_the_second_is_named():
    own = np.array((1, 2), PLAIN)[()].copy()
    with_objects = rows(FIELDS)
    result = Roundtrip({"own": own, "record": with_objects[0, 0], "whole": with_objects})
    assert result["own"].item() == (1, 2)
    assert [changed.name for changed in result.manifest.changed] == ["record"]
    assert result["record"]["a"] is result["whole"]["a"][0, 0]


def test_what_shows_a_part_that_has_no_name_is_named():
    nested = np.zeros(3, [("x", [("a", object), ("b", "i4")])])
    result = Roundtrip({"part": nested["x"]["a"], "whole": nested})
    assert [changed.name for changed in result.manifest.changed] == ["part"]
    assert result["part"].tolist() == nested["x"]["a"].tolist()


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("way", ["keys", "values", "items"])
def test_views_of_dicts_follow_them(kind, way):
    owner = kind(a=1)
    result = Roundtrip({"view": getattr(owner, way)(), "owner": owner})
    result["owner"]["b"] = 2
    assert list(result["view"]) == list(getattr(result["owner"], way)())
    assert type(result["view"]) is type(getattr(owner, way)())
    assert not result.manifest.changed


def test_a_view_of_a_module_s_names_is_a_list_of_them_and_named():
    result = Roundtrip({"names": vars(collections).keys()})
    assert set(result["names"]) == set(vars(collections))
    assert [changed.name for changed in result.manifest.changed] == ["names"]


def test_a_view_that_nobody_looked_at_is_not_saved_again():
    owner = {"a": 1}
    names = {"view": owner.items(), "record": rows(PLAIN)[0, 0]}
    with saved(names) as (_, first), saved(names) as (_, second):
        assert first == second
