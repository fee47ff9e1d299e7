"""Memory of Python's own buffers that arrays and tensors show stays shared, or is named."""

from __future__ import annotations

import array
import contextlib
import ctypes
import mmap

import numpy as np
import pytest

from nls_jupyter.saved_state import Saver
from saved_state_roundtrip import Roundtrip, check_in_a_new_process, restore

OWNERS = {
    "bytearray": lambda: bytearray(range(64)),
    "array": lambda: array.array("q", range(8)),
    "large bytearray": lambda: bytearray(range(256)) * 1024,
}
SHOWN = {
    "frombuffer": lambda owner: np.frombuffer(owner, np.uint8),
    "an offset": lambda owner: np.frombuffer(owner, np.int16, offset=6),
    "a memory view": lambda owner: np.asarray(memoryview(owner)),
    "part of a memory view": lambda owner: np.frombuffer(memoryview(owner).cast("B")[8:32], np.uint8),
    "ndarray": lambda owner: np.ndarray((4, 2), np.int8, buffer=owner, strides=(8, 2)),
    "a view of it": lambda owner: np.frombuffer(owner, np.uint8)[8:40:3],
}


@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("shown", SHOWN)
def test_an_array_over_a_buffer_goes_on_showing_it(owner, shown):
    buffer = OWNERS[owner]()
    names = {"shown": SHOWN[shown](buffer), "buffer": buffer}
    result = Roundtrip(names)
    assert not result.unsaved
    assert not result.manifest.changed
    for namespace in (names, result.namespace):
        memoryview(namespace["buffer"]).cast("B")[8] ^= 0xFF
    again = result["shown"]
    assert (again.dtype, again.strides, again.flags.writeable) == (
        names["shown"].dtype,
        names["shown"].strides,
        names["shown"].flags.writeable,
    )
    assert np.array_equal(again, names["shown"])
    again[...] = 0
    names["shown"][...] = 0
    assert bytes(result["buffer"]) == bytes(buffer)


def test_an_array_over_bytes_is_read_only_again():
    content = bytes(range(100)) * 100
    result = Roundtrip({"content": content, "shown": np.frombuffer(content, np.uint8)})
    assert bytes(result["shown"]) == content
    assert not result["shown"].flags.writeable


def test_sharing_between_names_of_different_cells_is_kept_and_changes_are_seen():
    buffer = bytearray(100_000)
    names = {"buffer": buffer}
    with contextlib.closing(Saver()) as saver:
        saver.save(names, cell="1")
        names["shown"] = np.frombuffer(buffer, np.uint8)
        saver.save(names, cell="2")
        buffer[7] = 9
        saver.save(names, cell="3")
        namespace = {}
        restore(saver.descriptors(), namespace)
    assert namespace["shown"][7] == 9
    namespace["shown"][8] = 4
    assert namespace["buffer"][8] == 4


def test_a_tensor_over_a_bytearray_goes_on_showing_it():
    torch = pytest.importorskip("torch")
    buffer = bytearray(range(200))
    names = {
        "tensor": torch.frombuffer(buffer, dtype=torch.int16, offset=8),
        "shown": np.frombuffer(buffer, np.uint8),
        "buffer": buffer,
    }
    result = Roundtrip(names)
    assert torch.equal(result["tensor"], names["tensor"])
    result["buffer"][8:10] = b"\1\1"
    assert result["tensor"][0] == 257
    assert result["shown"][9] == 1


def test_an_array_that_shows_another_through_a_memory_view_stays_a_view_of_it():
    base = np.arange(10.0)
    result = Roundtrip({"shown": np.asarray(memoryview(base))[2:], "base": base})
    result["base"][3] = -1
    assert result["shown"][1] == -1


@pytest.mark.parametrize(
    ("owner", "kind"),
    [(lambda: mmap.mmap(-1, 4096), "mmap"), (lambda: (ctypes.c_uint8 * 100)(), "c_ubyte_Array_100")],
    ids=["mmap", "ctypes"],
)
def test_an_array_over_memory_that_is_not_kept_is_named(owner, kind):
    shown = np.frombuffer(owner(), np.uint8)
    shown[5] = 3
    result = Roundtrip({"shown": shown})
    assert result["shown"][5] == 3
    assert result["shown"].flags.writeable
    assert [(changed.name, changed.change) for changed in result.manifest.changed] == [
        ("shown", f"an array over the memory of a {kind} comes back with memory of its own")
    ]


def test_a_memory_mapped_array_says_that_its_file_is_left_behind(tmp_path):
    mapped = np.memmap(tmp_path / "data", np.float32, "w+", shape=(10,))
    mapped[:] = 2
    result = Roundtrip({"mapped": mapped})
    assert (result["mapped"] == 2).all()
    assert "without its file" in result.manifest.changed[0].change


def test_arrays_with_gaps_that_were_restored_once_are_not_named_the_next_time():
    gaps = np.zeros((4, 4, 4)).transpose(1, 0, 2)
    result = Roundtrip(Roundtrip({"gaps": gaps}).namespace)
    assert result["gaps"].strides == gaps.strides
    assert not result.manifest.changed


OF_CTYPES = """
import ctypes
three, text = (ctypes.c_int * 3)(1, 2, 3), ctypes.create_string_buffer(b"hi")
Square, square = ctypes.c_double * 2 * 2, ((ctypes.c_double * 2) * 2)((1, 2), (3, 4))
To, Call = ctypes.POINTER(ctypes.c_int * 3), ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double)
class Count(ctypes.c_int):
    def next(self):
        return self.value + 1
count, counts = Count(3), (Count * 2)(1, 2)
swapped, pair = ctypes.c_int.__ctype_be__(258), (ctypes.c_short.__ctype_be__ * 2)(1, 2)
"""


def test_arrays_of_ctypes_come_back_and_are_of_the_types_that_ctypes_knows():
    check_in_a_new_process(
        OF_CTYPES,
        """
assert type(three) is ctypes.c_int * 3 and list(three) == [1, 2, 3]
assert type(text) is ctypes.c_char * 3 and text.value == b"hi"
assert Square is type(square) is ctypes.c_double * 2 * 2 and [list(row) for row in square] == [[1, 2], [3, 4]]
assert To is ctypes.POINTER(ctypes.c_int * 3) and Call is ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_double)
assert type(count) is Count and count.next() == 4
assert type(swapped) is ctypes.c_int.__ctype_be__ and bytes(swapped) == b"\\0\\0\\1\\2" and list(pair) == [1, 2]
assert type(counts) is Count * 2 and [one.next() for one in counts] == [2, 3]
""",
    )


def test_what_ctypes_shares_and_classes_of_its_arrays_are_named():
    buffer = bytearray(8)
    square = (ctypes.c_int * 2 * 2)()

    class Two(ctypes.Array):
        _type_, _length_ = ctypes.c_int, 2

    names = {"buffer": buffer, "over": (ctypes.c_int * 2).from_buffer(buffer), "square": square, "row": square[1]}
    result = Roundtrip(names | {"alone": ctypes.c_int(3), "own": Two()})
    assert {changed.name for changed in result.manifest.changed} == {"over", "row"}
    assert result.unsaved == {"own": "it holds a class of arrays of ctypes"}
