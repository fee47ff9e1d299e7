"""Saved state of `xp` arrays on a simulated Gpu; the same code saves CuPy's."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from gpu_simulation import GIB, simulated_gpus
from nls_jupyter import xp
from saved_state_roundtrip import Roundtrip, restore, saved


@pytest.fixture(autouse=True)
def simulation(tmp_path, monkeypatch):
    with simulated_gpus(tmp_path, monkeypatch) as driver:
        yield driver


def used_bytes():
    return xp.get_default_memory_pool().used_bytes()


def test_views_share_their_storage():
    base = xp.arange(12.0).reshape(3, 4)
    names = {"base": base, "back": base[::-1, 1:], "turned": base.T, "flat": base.ravel()[3:5], "alias": base}
    result = Roundtrip(names)
    for name, array in names.items():
        assert (result[name].shape, result[name].strides, result[name].dtype) == (
            array.shape,
            array.strides,
            array.dtype,
        )
        assert np.array_equal(result[name].get(), array.get())
    result["base"][...] = 7
    assert all((result[name] == 7).all() for name in names)
    assert result["alias"] is result["base"]
    assert len({id(result[name].data.mem) for name in names}) == 1


def test_gpu_memory_is_given_back_between_save_and_restore_and_counts_again():
    names = {"a": xp.ones(1 << 20)}
    names["b"] = names["a"][5:]
    with saved(names) as (descriptors, manifest):
        assert {name.where for name in manifest.saved} == {"gpu"}
        assert manifest.memory_bytes >= 8 << 20
        gc.disable()  # it must not take the collector
        try:
            names.clear()
            assert used_bytes() == 0
        finally:
            gc.enable()
        restore(descriptors, names)
    assert used_bytes() == 8 << 20
    assert float(names["b"].sum()) == (1 << 20) - 5


def test_untouched_memory_costs_nothing_to_save_and_to_restore():
    large = xp.zeros(6 * GIB, xp.uint8)
    large[3 * GIB] = 5
    namespace = {}
    with saved({"large": large}) as (descriptors, manifest):
        del large
        restore(descriptors, namespace)
        assert manifest.memory_bytes >= 6 * GIB
        assert os.fstat(descriptors[0]).st_blocks * 512 < 1 << 24
    again = namespace["large"]
    assert (int(again[3 * GIB]), int(again[3 * GIB + 1]), again.nbytes) == (5, 0, 6 * GIB)
    assert sum(end - start for start, end in again.data.mem.extents()) < 1 << 24


def test_arrays_that_no_longer_fit_are_named_and_take_nothing_with_them():
    names = {"large": xp.zeros(10 * GIB, xp.uint8), "small": xp.arange(3), "host": [1]}
    names["part"] = names["large"][:5]
    with saved(names) as (descriptors, _):
        names.clear()
        blocker = xp.zeros(8 * GIB, xp.uint8)
        report = restore(descriptors, names)
    assert set(names) == {"small", "host"}
    assert {missing.name for missing in report.missing} == {"large", "part"}
    assert all("OutOfMemoryError: Out of memory allocating 10 GiB" in missing.reason for missing in report.missing)
    assert used_bytes() == blocker.nbytes + 512


def test_arrays_come_back_on_their_device():
    with xp.cuda.Device(1):
        there = xp.arange(3)
    again = Roundtrip({"there": there})["there"]
    assert (again.device.id, again.tolist()) == (1, [0, 1, 2])


def test_streams_are_named():
    assert Roundtrip({"s": xp.cuda.Stream()}).unsaved == {"s": "a CUDA stream cannot be saved"}


def test_the_module_and_functions_that_use_it_come_back():
    result = Roundtrip({"xp": xp, "empty": xp.zeros((0, 3)), "one": xp.asarray(2.5)})
    assert result["xp"] is xp
    assert result["empty"].shape == (0, 3)
    assert result["one"].item() == 2.5
