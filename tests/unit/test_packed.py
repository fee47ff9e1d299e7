"""Variables packed for the way between the kernel and its GPU process, and unpacked."""

from __future__ import annotations

import os
import pickletools
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from gpu_simulation import simulated_gpus
from nls_jupyter import xp
from nls_jupyter.between import packed
from nls_jupyter.between.packed import CannotCopy, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    with simulated_gpus(tmp_path, monkeypatch) as driver:
        yield driver


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@dataclass
class Point:
    x: int = 1


def copied(*, tensors: bool = True, **values: Any) -> dict[str, Any]:
    descriptor = pack(values, tensors=tensors)
    try:
        return unpack(descriptor)
    finally:
        os.close(descriptor)


def test_what_is_copied_is_equal_and_another() -> None:
    values = {"number": 5, "text": "ä", "nested": {"a": [1, (2, None)]}, "point": Point(3), "empty": np.zeros(0)}
    result = copied(**values)
    assert list(result) == list(values)
    assert result["nested"] == values["nested"]
    assert result["nested"] is not values["nested"]
    assert result["point"] == Point(3)
    assert result["empty"].shape == (0,)


def test_what_two_names_share_they_share_afterwards() -> None:
    array = np.arange(10_000.0)
    result = copied(array=array, again=array, holder=[array])
    assert result["array"] is result["again"] is result["holder"][0]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["f8", "i1", "c16", "?", "M8[s]", "S5", "f2"])
def test_arrays_keep_what_they_are_and_can_be_written(dtype: str, order: Any) -> None:
    array = np.zeros((50, 200), dtype, order=order)
    result = copied(array=array)["array"]
    assert (result.dtype, result.shape, result.flags.f_contiguous) == (array.dtype, array.shape, order == "F")
    assert np.array_equal(result, array)
    result[0, 0] = result[0, 1]


def test_a_large_array_is_beside_the_pickle_and_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.ones((1000, 1000))
    for sent in (array, array.T, array[:, ::2]):
        stream, buffers = packed._dump({"array": sent}, tensors=True)
        assert [buffer.nbytes for buffer in buffers] == [sent.nbytes]
        assert stream.nbytes < 1000
        assert next(pickletools.genops(stream.tobytes()))[0].name == "PROTO"


def test_an_array_with_gaps_and_a_read_only_one_arrive() -> None:
    array = np.arange(100_000.0).reshape(100, 1000)
    array.flags.writeable = False
    result = copied(gaps=array[::3, 5:900:7], backwards=array[::-1], same=array)
    assert np.array_equal(result["gaps"], array[::3, 5:900:7])
    assert np.array_equal(result["backwards"], array[::-1])
    assert not result["same"].flags.writeable


def test_a_small_array_does_not_keep_a_large_ones_memory() -> None:
    result = copied(small=np.zeros(1000), large=np.zeros(1_000_000))
    assert result["small"].base is not None
    assert memoryview(result["small"].base).nbytes == 8000


def test_functions_and_classes_of_a_notebook_travel_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("class Mine:\n    def twice(self): return 2 * factor\nfactor = 4\ndef call(): return Mine().twice()", names)
    assert copied(call=names["call"])["call"]() == 8


@pytest.mark.usefixtures("gpu")
def test_an_array_on_a_gpu_becomes_a_numpy_array_wherever_it_is() -> None:
    array = xp.arange(10_000.0).reshape(100, 100)
    result = copied(array=array, held={"deep": [array[::2]]}, number=array.sum())
    assert [type(result[name]) for name in ("array", "number")] == [np.ndarray, np.ndarray]
    assert np.array_equal(result["array"], array.get())
    assert np.array_equal(result["held"]["deep"][0], array.get()[::2])


def test_cpu_tensors_stay_tensors() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3), requires_grad=False)
    result = copied(
        plain=torch.arange(10_000).reshape(100, 100).T,
        half=torch.ones(3, dtype=torch.bfloat16),
        wanted=torch.ones(2, requires_grad=True),
        weight=weight,
        empty=torch.zeros(0, 3, dtype=torch.bool),
        scalar=torch.tensor(5),
    )
    assert torch.equal(result["plain"], torch.arange(10_000).reshape(100, 100).T)
    assert result["half"].dtype is torch.bfloat16
    assert result["wanted"].requires_grad
    assert isinstance(result["weight"], torch.nn.Parameter)
    assert not result["weight"].requires_grad
    assert (result["empty"].shape, result["empty"].dtype) == ((0, 3), torch.bool)
    assert int(result["scalar"]) == 5
    result["plain"][0, 0] = 9


def test_cpu_tensors_become_arrays_where_nobody_uses_torch() -> None:
    result = copied(tensors=False, tensor=torch.ones(2, 3, requires_grad=True) * 2, held=[torch.ones(1)])
    assert type(result["tensor"]) is np.ndarray
    assert result["tensor"].tolist() == [[2, 2, 2], [2, 2, 2]]
    assert type(result["held"][0]) is np.ndarray
    with pytest.raises(CannotCopy, match=r"half \(Tensor\) cannot be copied: NumPy has no bfloat16; use float\(\)\."):
        copied(tensors=False, half=torch.ones(2, dtype=torch.bfloat16))


def test_a_tensor_with_a_history_arrives_without_it() -> None:
    tensor = torch.ones(2, requires_grad=True) * 2
    result = copied(tensor=tensor)["tensor"]
    assert (result.grad_fn, result.requires_grad) == (None, False)


def test_a_device_tensor_becomes_an_array_and_its_module_is_refused() -> None:
    """With the only device beside the CPU that needs no hardware; its tensors have no memory at all."""
    module = torch.nn.Linear(2, 2, device="meta")
    with pytest.raises(
        CannotCopy, match=r"model \(Linear\) cannot be copied: Linear has weights on the GPU; copy its st"
    ):
        copied(model=module)
    assert copied(model=torch.nn.Linear(2, 2).requires_grad_(False))["model"].weight.shape == (2, 2)


def test_unknown_memory_on_a_gpu_is_refused() -> None:
    class DeviceArray:
        __cuda_array_interface__ = None

    with pytest.raises(CannotCopy, match=r"array \(DeviceArray\) cannot be copied: DeviceArray is memory on a GPU"):
        copied(array=DeviceArray())


def test_what_cannot_be_pickled_is_named() -> None:
    with pytest.raises(CannotCopy, match=r"^bad \(generator\) cannot be copied: TypeError: cannot pickle 'generator'"):
        copied(good=1, bad=(i for i in "ab"))
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(CannotCopy, match=r"^deep \(list\) cannot be copied: "):
        copied(deep=deep)


def test_what_cannot_be_rebuilt_is_told() -> None:
    class Fails:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    with pytest.raises(CannotCopy, match="cannot be rebuilt: ValueError: invalid literal"):
        copied(fails=Fails())


def test_what_is_no_packed_file_or_a_short_one_is_refused() -> None:
    descriptor = os.memfd_create("test")
    try:
        os.write(descriptor, b"x" * 100)
        with pytest.raises(CannotCopy, match="no packed variables"):
            unpack(descriptor)
        whole = pack({"array": np.zeros(10_000)}, tensors=True)
        content = os.pread(whole, 1 << 20, 0)
        os.close(whole)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content[:-1], 0)
        with pytest.raises(CannotCopy, match="ends too early"):
            unpack(descriptor)
    finally:
        os.close(descriptor)


def test_the_file_is_sealed_and_nothing_stays_open() -> None:
    before = open_files()
    descriptor = pack({"array": np.zeros(10_000)}, tensors=True)
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    unpack(descriptor)
    os.close(descriptor)
    for bad in ((i for i in "a"), sys._getframe()):
        with pytest.raises(CannotCopy):
            pack({"bad": bad}, tensors=True)
    assert open_files() == before


def test_no_memory_for_the_file_is_an_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    before = open_files()
    monkeypatch.setattr(packed.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        pack({"a": 1}, tensors=True)
    assert open_files() == before
