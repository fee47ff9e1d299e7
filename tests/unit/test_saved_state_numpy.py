"""Saved state of NumPy arrays: views stay views, restored memory is ordinary and writable."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pytest

from nls_jupyter.saved_state import Saver, user_names
from saved_state_processes import carried_on
from saved_state_roundtrip import Roundtrip, cells, restore


def views_of(base):
    yield base[1:]
    yield base[::-1]
    yield base.T
    yield base[..., ::-2]
    yield base.reshape(-1)[3:9]
    yield base.view(np.uint8)
    yield base[None, :0]
    yield base[1:][::-1].T[1:]
    yield np.broadcast_to(base, (2, *base.shape))
    yield np.lib.stride_tricks.sliding_window_view(base, 2, axis=0)


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_of_one_array_stay_views_of_it(order):
    base = np.array(np.arange(24.0).reshape(2, 3, 4), order=order)
    views = dict(enumerate(views_of(base))) if order == "C" else {0: base[1], 1: base.T[::-1], 2: base[:, ::-2]}
    names = {"base": base, **{f"view{number}": view for number, view in views.items()}}
    result = Roundtrip(names)
    base[...] = result["base"][...] = 7
    for name, view in names.items():
        again = result[name]
        assert (again.dtype, again.shape, again.strides) == (view.dtype, view.shape, view.strides)
        assert np.array_equal(again, view), name
        assert again.flags.writeable == view.flags.writeable
    assert result["base"].flags.owndata
    assert all(result[f"view{number}"].base is result["base"] for number in views)


def test_views_with_gaps_are_views_without_what_numpy_has_only_since_its_second_version(monkeypatch):
    monkeypatch.delattr(np.lib, "array_utils", raising=False)
    base, over = np.arange(12.0).reshape(3, 4), bytearray(24)
    result = Roundtrip({"base": base, "view": base[:, ::-2], "over": over, "shown": np.frombuffer(over, "i4")[::-3]})
    assert not result.manifest.missing
    assert np.shares_memory(result["base"], result["view"])
    result["base"][0, 3], result["over"][20] = 7, 5
    assert (result["view"][0, 0], result["shown"][0]) == (7, 5)


def test_a_view_whose_base_has_no_name_stays_a_view():
    base = np.arange(10)
    result = Roundtrip({"low": base[:5], "all": base[:]})
    result["all"][0] = 99
    assert result["low"][0] == 99


def test_a_view_keeps_its_base_inside_containers():
    base = np.arange(4)
    result = Roundtrip({"a": [base, {"view": base[2:]}]})
    result["a"][0][:] = 5
    assert result["a"][1]["view"].tolist() == [5, 5]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)),
        np.float32(2.5),
        np.array(3),
        np.array([1, "two", [3]], dtype=object),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        np.zeros(2, dtype=[("a", "i4"), ("b", "f8", (2,))]),
        np.array([], dtype="S"),
        np.arange(4, dtype=">i4"),
        np.array([1 + 2j]),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.rec.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(24).reshape(2, 3, 4).transpose(1, 2, 0).copy(order="K"),
        np.array(["pear", "a long string that does not fit"], dtype=np.dtypes.StringDType()),
    ],
    ids=lambda array: f"{type(array).__name__}-{array.dtype}-{array.shape}",
)
def test_kinds_of_arrays(array):
    again = Roundtrip({"a": array})["a"]
    assert (type(again), again.dtype, again.shape, again.strides) == (
        type(array),
        array.dtype,
        array.shape,
        array.strides,
    )
    assert np.array_equal(again, array, equal_nan=array.dtype.kind in "Mc")


def test_restored_arrays_are_writable_and_do_not_keep_the_memfd_mapped():
    namespace = Roundtrip({"a": np.arange(1000), "b": np.frombuffer(bytearray(8), np.uint8)}).namespace
    namespace["a"][:] = 1
    namespace["b"][:] = 1
    namespace["a"].resize(2000, refcheck=False)
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        assert "nls-saved-state" not in maps.read()


def test_a_read_only_array_stays_read_only():
    array = np.arange(3)
    array.flags.writeable = False
    assert not Roundtrip({"a": array})["a"].flags.writeable


class Own(np.ndarray):
    """As cells may define one."""


@pytest.mark.parametrize(
    "first", ["np.arange(3.0)", "np.frombuffer(bytearray(24))", "np.array([1, 2, 3], dtype=object)"]
)
def test_arrays_that_numpy_warns_of_when_they_are_written_to_are_saved_without_a_word(first):
    made = cells(f"import numpy as np\nfirst = {first}\nx, y = np.broadcast_arrays(first, [[1], [2]])")
    result = Roundtrip(user_names(made, {}))
    assert not result.unsaved
    assert result["x"].strides == (0, 8)
    assert np.shares_memory(result["x"], result["first"])
    assert result["y"].tolist() == [[1] * 3, [2] * 3]


@pytest.mark.parametrize("view", [lambda a: a[1:], lambda a: a[::2].T, lambda a: a.view("u1"), lambda a: a.view(Own)])
def test_a_view_may_be_written_to_though_its_array_was_made_read_only_after_it_was_taken(view):
    array = np.zeros(4)
    names = {"a": array, "v": view(array), "w": view(array)}
    array.flags.writeable = names["w"].flags.writeable = False
    result = Roundtrip(names)
    assert [result[name].flags.writeable for name in "avw"] == [False, True, False]
    result["v"].fill(3)
    assert result["a"].any()
    assert np.array_equal(result["v"], result["w"])


def test_views_of_an_array_of_objects_stay_views():
    base = np.array([[1, "a"], [None, [2]]], dtype=object)
    result = Roundtrip({"base": base, "view": base[::-1, 1], "again": base.T})
    result["view"][0] = "new"
    assert result["base"][1, 1] == "new"
    second = Roundtrip(result.namespace)
    second["base"][1, 1] = "newer"
    assert second["view"][0] == second["again"][1, 1] == "newer"


def test_an_array_of_objects_may_hold_itself():
    array = np.empty(1, dtype=object)
    array[0] = array
    again = Roundtrip({"a": array})["a"]
    assert again[0] is again


def test_an_array_of_objects_may_hold_a_view_of_itself():
    array = np.empty(3, dtype=object)
    array[0], array[1] = array[1:], array.view(Own)
    again = Roundtrip({"a": array})["a"]
    again[2] = "new"
    assert again[0].tolist()[1] == again[1][2] == "new"


@pytest.mark.parametrize("dtype", [object, "i4,O"])
def test_read_only_arrays_of_objects_and_views_stay_read_only(dtype):
    array = np.zeros(3, dtype)
    names = {"a": array, "v": array[1:], "w": array[1:]}
    array.flags.writeable = names["w"].flags.writeable = False
    result = Roundtrip(names)
    assert [result[name].flags.writeable for name in "avw"] == [False, True, False]
    assert np.shares_memory(result["a"], result["v"])


def test_a_field_of_a_structured_array_stays_a_view():
    table = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    result = Roundtrip({"table": table, "column": table["b"]})
    result["column"][:] = 4
    assert result["table"]["b"].tolist() == [4, 4, 4]


def test_a_large_array_counts_with_its_bytes_and_its_view_with_none():
    base = np.zeros(1 << 20)
    saved = {name.name: name.memory_bytes for name in Roundtrip({"base": base, "view": base[5:]}).manifest.saved}
    assert saved["base"] >= base.nbytes
    assert saved["view"] < 1000


def test_memory_with_gaps_is_saved_by_value():
    gaps = np.frombuffer(bytes(range(32)), np.uint8)[::2]  # a view of memory that is not an array's
    again = Roundtrip({"a": gaps})["a"]
    assert again.tolist() == list(range(0, 32, 2))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize(
    ("source", "view", "check"),
    [
        ("x = np.matrix([[1.0, 2], [3, 4]])", "x.T", "type(y) is np.matrix and y[1, 0] == 7"),
        ("x = np.matrix([[1.0, 2], [3, 4]])", "np.asarray(x)", "type(y) is np.ndarray and y[0, 1] == 7"),
        (
            "x = np.ma.masked_array([[1.0, 2]], [[True, False]])",
            "x.data",
            "y[0, 1] == 7 and x.mask.tolist() == [[1, 0]]",
        ),
        ("x = np.ma.masked_array([[1.0, 2]], fill_value=5)", "x[:, 1:]", "y[0, 0] == 7 and y.fill_value == 5"),
        ("x = np.rec.array([(1, 2.0), (3, 4.0)], names='a,b')\nx = x.reshape(1, 2)", "x.b", "y[0, 1] == 7"),
        (
            "class Noted(np.ndarray): pass\nx = np.ones((2, 2)).view(Noted)\nx.note = [x]",
            "x[0]",
            "type(y) is Noted and y[1] == 7 and x.note[0] is x",
        ),
        (
            "class Owns(np.ndarray): pass\nx = Owns((2, 2)); x[:] = 1",
            "x[0].view(np.ndarray)",
            "y[1] == 7 and type(x) is Owns",
        ),
        ("x = np.rec.fromarrays([np.array(['a', None], object), [1, 2]], names='a,b')[None]", "x.a", "x.b[0, 1] == 7"),
        ("x = np.matrix([[1, None]], dtype=object).copy()", "np.asarray(x)", "y[0, 1] == 7"),
        ("x = np.ma.masked_array([[1, None]], [[1, 0]], object).copy()", "x.data", "x.mask.tolist() == [[1, 0]]"),
        (
            "class Noted(np.ndarray): pass\nx = np.full((2, 2), None).view(Noted)\nx.note = [x]",
            "x[0]",
            "type(y) is Noted and y[1] == 7 and x.note[0] is x",
        ),
    ],
)
def test_views_of_arrays_of_subclasses_go_on_sharing_their_memory(source, view, check):
    names = cells(f"import numpy as np\n{source}\n")
    names["y"] = eval(view, names)
    with contextlib.closing(Saver()) as saver:
        saver.save(user_names(names, {}), cell=None, function_globals=names)
        field = names["x"].b if names["x"].dtype.names else names["x"]
        field[0, 1] = 7
        manifest = saver.save(user_names(names, {}), cell=None, function_globals=names)
        assert not manifest.missing
        assert not manifest.changed
        again = {}
        assert not restore(saver.descriptors(), again).missing
    assert type(again["x"]).__name__ == type(names["x"]).__name__
    assert eval(check, again)
    assert np.shares_memory(np.asarray(again["x"]), again["y"])
    assert np.array_equal(np.asarray(again["x"]), np.asarray(names["x"]))


def test_a_class_of_a_module_that_nobody_imported_comes_back_as_the_library_s_own():
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(sys.modules, "numpy.rec", raising=False)
        table = np.zeros(4, dtype=[("name", "U10"), ("age", "i4")]).view(np.recarray)
        result = Roundtrip({"table": table})
    assert type(result["table"]) is np.recarray
    assert list(result["table"].age) == [0, 0, 0, 0]


def test_functions_of_cells_that_numpy_calls_for_each_element_are_called_in_the_next_process():
    before = (
        "import numpy as np\nseen = []\n"
        "def step(a, b=1):\n    seen.append(a)\n    return a * 2 + b\n"
        "ufunc = np.frompyfunc(step, 2, 1, identity=7)\nplain = np.frompyfunc(step, 1, 1)\n"
        "every = np.vectorize(step, otypes=[float], excluded={1}, cache=True)\nshown = every([1, 2])\n"
        "signed = np.vectorize(step, signature='()->()')\nshown2 = signed([1, 2])\nadd = np.add"
    )
    after = (
        "assert ufunc(1, 2) == 4 and ufunc.identity == 7 and ufunc.reduce([]) == 7 and ufunc.nin == 2, ufunc\n"
        "assert plain.identity is None and list(plain([1, 2])) == [3, 5]\n"
        "assert every([1, 2]).tolist() == shown.tolist() and every([1, 2]).dtype == float\n"
        "assert every.pyfunc is step and seen[-1] == 2 and signed([1, 2]).tolist() == shown2.tolist() and add is np.add"
    )
    assert carried_on(before, after) == []
