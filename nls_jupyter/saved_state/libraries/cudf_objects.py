"""Objects of cuDF's, by its own protocol (`Serializable`), but piece by piece where that copies all of one to the host.

A frame of 40 GiB on the GPU would be 40 GiB of host memory before anybody asks whether there is room. Seen in the
sources of cuDF 26.10 (`cudf/core/abc.py`, `cudf/core/buffer/buffer.py`); never run on a GPU.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import CUDF_BUFFER, CUDF_SERIALIZABLE
from nls_jupyter.saved_state.blobs import STAGING_BYTES, pieces_of
from nls_jupyter.saved_state.kinds import below
from nls_jupyter.saved_state.regions import Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.regions import Regions
    from nls_jupyter.saved_state.store import Reader


def library(_: ModuleType, regions: Regions) -> CudfObjects:
    """CuDF for one save."""
    return CudfObjects(regions)


class CudfObjects:
    """Reduces all that has the protocol: frames, series, indexes, columns, buffers, types."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        protocol = CUDF_SERIALIZABLE.here(None)
        return {} if protocol is None else dict.fromkeys(below(protocol), self._reduce)

    def lookers(self) -> Mapping[type, Looker]:
        """Only its pickle tells whether an object has changed."""
        return {}

    def prepare(self, values: list[Any]) -> None:
        """Nothing needs to be known beforehand."""

    def _reduce(self, thing: Any) -> Any:
        header, frames = thing.device_serialize()
        if any(header["is-cuda"]):
            self._regions.note("an object of cuDF's comes back with memory of its own, apart from what shared it")
        kept = [self._kept(*each, thing) for each in zip(frames, header["is-cuda"], strict=True)]
        return load, (type(thing), header, kept)

    def _kept(self, frame: Any, is_on_device: bool, thing: Any) -> Any:  # noqa: FBT001 - as cuDF tells it
        if not is_on_device:
            return sys.modules["numpy"].asarray(frame)
        return Storage(self._regions.add(Frame(frame), None, thing), load_frame, ())


class Frame:
    """A buffer of cuDF's as a `store.Source`."""

    where: Where = "gpu"

    def __init__(self, buffer: Any) -> None:
        self._buffer = buffer
        self.size_bytes: int = buffer.nbytes

    def memory(self) -> None:
        """See `Source`."""

    def pieces(self) -> Iterator[memoryview]:
        """See `Source`."""
        for start in range(0, self.size_bytes, STAGING_BYTES):
            yield from pieces_of(self._buffer[start : min(start + STAGING_BYTES, self.size_bytes)].memoryview())


def load_frame(reader: Reader, region: int) -> Any:
    """A buffer of cuDF's with a region's content, as `host_deserialize` makes them."""
    content = memoryview(bytearray(reader.size_bytes(region)))
    reader.read_into(region, content)
    return CUDF_BUFFER.here()(content)


def load(kind: Any, header: dict[str, Any], frames: list[Any]) -> Any:
    """An object of what `device_serialize` gave."""
    return kind.device_deserialize(
        header,
        [each if on_device else memoryview(each) for each, on_device in zip(frames, header["is-cuda"], strict=True)],
    )
