"""By what memory of a GPU is allocated: set again before arrays come back, or named.

The stand-ins have what CuPy 14.2 (`cupy/cuda/memory.pyx`), RMM 26.10 (`rmm/mr`) and PyTorch 2.13 answer.
"""

from __future__ import annotations

import functools
import sys
import types

import pytest

from nls_jupyter.saved_state import Interpreter


class Pool:
    def malloc(self, size):
        pass


def of_rmm(size):
    """As `rmm.allocators.cupy.rmm_cupy_allocator`, which cuDF sets when it is imported."""


def put(monkeypatch, name, **content):
    module = types.ModuleType(name)
    vars(module).update(content)
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.fixture
def cupy(monkeypatch):
    pool = Pool()
    now = [pool.malloc]
    cuda = types.SimpleNamespace(get_allocator=lambda: now[0], set_allocator=lambda given: now.__setitem__(0, given))
    put(monkeypatch, "cupy.random", _generator=types.SimpleNamespace(_random_states={}))
    return put(monkeypatch, "cupy", cuda=cuda, get_default_memory_pool=lambda: pool, random=sys.modules["cupy.random"])


def named(name):
    """What the user reads of it; nothing where nothing is lost."""
    return [missing.reason for missing in Interpreter().capture()[1] if missing.name == name]


def test_what_cupy_allocates_by_is_set_before_its_arrays_come_back(cupy):
    cupy.cuda.set_allocator(of_rmm)
    stored, _ = Interpreter().capture()
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    assert Interpreter().apply(stored, early=True) == []
    assert cupy.cuda.get_allocator() is of_rmm


@pytest.mark.parametrize("given", [Pool().malloc, functools.partial(of_rmm), lambda size: of_rmm(size)])
def test_what_nobody_can_make_again_for_cupy_is_named(cupy, given):
    assert named("CuPy's allocator") == []
    cupy.cuda.set_allocator(given)
    (reason,) = named("CuPy's allocator")
    assert "nobody can make again what cupy.cuda.set_allocator was given: run its cell again" in reason


def test_a_resource_of_rmms_is_named_unless_an_accelerator_sets_it_again(monkeypatch):
    plain, pool = type("CudaMemoryResource", (), {}), type("PoolMemoryResource", (), {})
    now = [plain()]
    put(
        monkeypatch,
        "rmm",
        mr=types.SimpleNamespace(CudaMemoryResource=plain, get_current_device_resource=lambda: now[0]),
    )
    assert named("RMM's memory resource") == []
    now[0] = pool()
    (reason,) = named("RMM's memory resource")
    assert "RMM does not tell what it was initialized with: run that cell again" in reason
    put(monkeypatch, "cudf.pandas", LOADED=True)
    assert named("RMM's memory resource") == []


@pytest.mark.parametrize("backend", ["native", "pluggable"])
def test_pytorchs_is_named(monkeypatch, backend):
    is_on = types.SimpleNamespace(is_initialized=lambda: True, get_allocator_backend=lambda: backend)
    put(monkeypatch, "torch", cuda=is_on)
    assert named("PyTorch's allocator") == (
        ["nobody can ask which one it is: tensors come back by PyTorch's own"] if backend == "pluggable" else []
    )
