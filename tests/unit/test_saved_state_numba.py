"""Saved state of functions that Numba compiles: compiled again when they are called, and not walked through."""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
import pytest

from nls_jupyter.saved_state import Saver, user_names
from saved_state_roundtrip import Roundtrip, cells, restore

pytest.importorskip("numba")

SETUP = """
import numba, numpy as np
factor = 2
@numba.njit
def add(a, b): return a + b
@numba.njit
def twice(a): return add(a, a) * factor
@numba.vectorize
def scaled(a): return a * 2
out = twice(3), scaled(np.arange(3))
"""


@pytest.fixture(scope="module")
def shell():
    """Compiled once: that takes seconds."""
    return cells(SETUP)


def test_they_come_back_and_compile_again(shell):
    with contextlib.closing(Saver()) as saver:
        manifest = saver.save(user_names(shell, {}), cell=None, function_globals=shell)
        again = {}
        report = restore(saver.descriptors(), again)
    assert not report.missing
    assert not manifest.missing
    assert again["twice"](3) == 12
    assert again["scaled"](np.arange(3)).tolist() == [0, 2, 4]


def test_a_save_does_not_walk_through_the_compiler(shell):
    calls = 0

    def count(*_):
        nonlocal calls
        calls += 1

    with contextlib.closing(Saver()) as saver:
        saver.save(user_names(shell, {}), cell=None, function_globals=shell)
        sys.setprofile(count)
        try:
            saver.save(user_names(shell, {}), cell=None, function_globals=shell)
        finally:
            sys.setprofile(None)
    assert calls < 20_000


def test_what_was_compiled_since_is_seen(shell):
    with contextlib.closing(Saver()) as saver:
        saver.save(user_names(shell, {}), cell=None, function_globals=shell)
        exec("@numba.vectorize\ndef scaled(a): return a * 3", shell)
        shell["scaled"](np.arange(3.0))
        shell["scaled"].disable_compile()
        saver.save(user_names(shell, {}), cell=None, function_globals=shell)
        again = {}
        restore(saver.descriptors(), again)
    assert again["scaled"](np.arange(3.0)).tolist() == [0.0, 3.0, 6.0]
    assert again["scaled"]._frozen


def test_what_numba_has_on_a_gpu_is_named_and_no_address_comes_back():
    """Without a context; what somebody else owns, as `cuda.as_cuda_array` shows it, has no finalizer either."""
    driver = pytest.importorskip("numba.cuda.cudadrv.driver")
    devicearray, drvapi = sys.modules["numba.cuda.cudadrv.devicearray"], sys.modules["numba.cuda.cudadrv.drvapi"]

    def array(**whose):
        memory = driver.MemoryPointer(types.SimpleNamespace(), drvapi.cu_device_ptr(0x7F00), 8, **whose)
        return devicearray.DeviceNDArray((8,), (1,), "u1", gpu_data=memory)

    own, foreign = array(finalizer=len), array(owner=bytearray(8))
    own.gpu_data._finalizer.detach()
    stream = driver.Stream(None, drvapi.cu_stream(0x7F00), None)
    result = Roundtrip({"own": own, "foreign": foreign, "pointer": foreign.gpu_data, "stream": stream, "x": 1})
    assert result.namespace == {"x": 1}
    assert result.unsaved == {
        "own": "an array of numba.cuda's cannot be saved",
        "foreign": "an array of numba.cuda's cannot be saved",
        "pointer": "memory of a GPU without an array cannot be saved",
        "stream": "a CUDA stream cannot be saved",
    }
