"""Objects of cuDF's, on stand-ins that have its protocol as cuDF 26.10 has it, with host memory in the GPU's role.

`Serializable` is that of `cudf/core/abc.py`; buffers have as much of `cudf/core/buffer/buffer.py` as it uses.
"""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from nls_jupyter.saved_state import libraries
from nls_jupyter.saved_state.blobs import STAGING_BYTES
from saved_state_roundtrip import Roundtrip


class Serializable:
    names: dict[str, type] = {}  # noqa: RUF012 - as cuDF's

    def __init_subclass__(cls):
        cls.names[cls.__name__] = cls

    def device_serialize(self):
        header, frames = self.serialize()
        header["type-serialized-name"] = type(self).__name__
        header["is-cuda"] = [hasattr(frame, "__cuda_array_interface__") for frame in frames]
        header["lengths"] = [frame.nbytes for frame in frames]
        return header, frames

    @classmethod
    def device_deserialize(cls, header, frames):
        kind = cls.names[header["type-serialized-name"]]
        pairs = zip(header["is-cuda"], frames, strict=True)
        return kind.deserialize(header, [as_buffer(frame) if on else memoryview(frame) for on, frame in pairs])

    def __reduce_ex__(self, _):
        raise AssertionError("all of it would be copied to the host")


class Buffer(Serializable):
    __cuda_array_interface__ = None
    copied: list[int] = []  # noqa: RUF012 - of all of them

    def __init__(self, content):
        self.content = content
        self.nbytes = content.nbytes

    def __getitem__(self, part):
        return Buffer(self.content[part])

    def memoryview(self):
        self.copied.append(self.nbytes)
        return memoryview(bytes(self.content)).toreadonly()


class Series(Serializable):
    def __init__(self, data, words):
        self.data, self.words = data, words

    def serialize(self):
        return {"dtype": "u1"}, [self.data, memoryview(self.words)]

    @classmethod
    def deserialize(cls, header, frames):
        assert header["dtype"] == "u1"
        return cls(frames[0], bytes(frames[1]))


def as_buffer(frame):
    return frame if isinstance(frame, Buffer) else Buffer(np.frombuffer(frame, "u1"))


@pytest.fixture(autouse=True)
def cudf(monkeypatch):
    for name, content in {
        "cudf": {},
        "cudf.core": {},
        "cudf.core.abc": {"Serializable": Serializable},
        "cudf.core.buffer": {"as_buffer": as_buffer},
    }.items():
        module = types.ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(libraries, "synchronize", lambda: None)
    Buffer.copied.clear()


@pytest.mark.parametrize("size", [0, 5, STAGING_BYTES, 2 * STAGING_BYTES + 3])
def test_a_series_comes_back_and_crosses_the_host_piece_by_piece(size):
    series = Series(Buffer(np.arange(size).astype("u1")), b"abc")
    result = Roundtrip({"series": series, "same": [series]})
    assert not result.unsaved
    assert np.array_equal(result["series"].data.content, series.data.content)
    assert result["series"].words == b"abc"
    assert result["same"][0] is result["series"]
    assert max(Buffer.copied, default=0) <= STAGING_BYTES
    assert sum(Buffer.copied) == size
    assert result.manifest.saved[0].where == "gpu"


def test_that_it_no_longer_shares_memory_is_told():
    result = Roundtrip({"series": Series(Buffer(np.ones(5, "u1")), b"")})
    assert [(name.name, name.change) for name in result.manifest.changed] == [
        ("series", "an object of cuDF's comes back with memory of its own, apart from what shared it")
    ]
