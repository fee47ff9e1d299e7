"""What of CuPy's is addresses of its process: named, and kernels without what was compiled of them.

The stand-ins pickle themselves as CuPy 14.2's own classes do: Cython's `__reduce_cython__` gives the values of all
attributes of a class in `cupy/cuda/*.pxd`, addresses as numbers.
"""

from __future__ import annotations

import sys
import types

import pytest

from nls_jupyter.saved_state import libraries, reducers
from saved_state_roundtrip import Roundtrip


@pytest.fixture(autouse=True)
def no_arrays(monkeypatch):
    """The stand-ins have none."""
    monkeypatch.setattr(libraries, "_OWN", {})
    monkeypatch.setattr(libraries, "synchronize", lambda: None)


def unpickle(kind, _checksum, values):
    """As Cython's `__pyx_unpickle_...`: without a call of the class."""
    thing = kind.__new__(kind)
    vars(thing).update(zip(kind.attributes, values, strict=True))
    return thing


class OfCython:
    attributes: tuple[str, ...] = ("ptr",)

    def __init__(self, *values):
        vars(self).update(zip(self.attributes, values, strict=True))

    def __reduce__(self):
        return unpickle, (type(self), 1, tuple(vars(self)[name] for name in self.attributes))


class ElementwiseKernel(OfCython):
    attributes = ("_elementwise_kernel_memo", "_params_type_memo", "operation")


class _JitRawKernel:
    def __init__(self, func):
        self._func, self._cache, self._cached_codes = func, {}, {}


def put(monkeypatch, module, name, kind=None):
    """A class at its place in CuPy."""
    parts = module.split(".")
    for name_of_module in (".".join(parts[:length]) for length in range(1, len(parts) + 1)):
        found = sys.modules.get(name_of_module) or types.ModuleType(name_of_module)
        monkeypatch.setitem(sys.modules, name_of_module, found)
    kind = kind or type(name, (OfCython,), {})
    kind.__module__, kind.__qualname__ = module, name
    monkeypatch.setattr(sys.modules[module], name, kind, raising=False)
    return kind


CASES = [(name, what) for what, names in reducers._OF_CUPY.items() for name in names]


@pytest.mark.parametrize(("name", "what"), CASES, ids=[name for name, _ in CASES])
def test_an_address_in_the_process_is_named_and_never_read_by_another(monkeypatch, name, what):
    module, _, kind = name.rpartition(".")
    thing = put(monkeypatch, f"cupy.cuda.{module}", kind)(0x7F00)
    child = type("Child", (type(thing),), {})(0x7F00)
    result = Roundtrip({"thing": thing, "held": [thing], "child": child, "x": 1})
    assert result.unsaved == {
        "thing": f"{what} cannot be saved",
        "held": f"it holds {what}",
        "child": f"{what} cannot be saved",
    }
    assert result.namespace == {"x": 1}


def test_a_kernel_comes_back_without_what_was_compiled_of_it(monkeypatch):
    compiled = put(monkeypatch, "cupy.cuda.function", "Function")(0x7F00)
    elementwise = put(monkeypatch, "cupy", "ElementwiseKernel", ElementwiseKernel)
    jit = put(monkeypatch, "cupyx.jit._interface", "_JitRawKernel", _JitRawKernel)
    types_known = {("float32",): "its types"}
    kernel = elementwise({(0, "float32"): compiled}, types_known, "y = x")
    written = jit(len)
    written._cache[("float32",), 0] = compiled, False
    written._cached_codes["float32",] = "its code"
    result = Roundtrip({"kernel": kernel, "same": kernel, "written": written})
    assert not result.unsaved
    assert vars(result["kernel"]) == {
        "_elementwise_kernel_memo": {},
        "_params_type_memo": types_known,
        "operation": "y = x",
    }
    assert result["same"] is result["kernel"]
    assert vars(result["written"]) == {"_func": len, "_cache": {}, "_cached_codes": {("float32",): "its code"}}
    assert kernel._elementwise_kernel_memo == {(0, "float32"): compiled}, "the one that is there keeps its own"
    assert written._cache


def test_the_pool_that_cupy_itself_has_and_its_null_stream_come_back_as_those(monkeypatch):
    pool = put(monkeypatch, "cupy.cuda.memory", "MemoryPool")
    stream = put(monkeypatch, "cupy.cuda.stream", "Stream")
    stream.null = stream(0)
    default = pool(0x7F00)
    sys.modules["cupy"].get_default_memory_pool = lambda: default
    result = Roundtrip({"pool": default, "null": stream.null, "own": pool(0x7F00), "other": stream(1)})
    assert result["pool"] is default
    assert result["null"] is stream.null
    assert result.unsaved == {"own": "a memory pool cannot be saved", "other": "a CUDA stream cannot be saved"}
