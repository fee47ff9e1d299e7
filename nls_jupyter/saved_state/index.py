"""The index of a committed state: a JSON part that the kernel reads, and the table of all chunks."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.arena import Arena, SavedStateDamagedError
from nls_jupyter.saved_state.blobs import chunks_of
from nls_jupyter.saved_state.manifest import Manifest
from nls_jupyter.saved_state.room import MachineRoom

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_jupyter.saved_state.blobs import Chunk, Table
    from nls_jupyter.saved_state.extents import Extent

_LENGTHS = struct.Struct("<QQ")  # of the JSON part and of the table


def to_bytes(content: Mapping[str, Any], table: Table) -> bytes:
    """An index to be committed; `content` refers to the rows of `table`."""
    text, rows = json.dumps(content).encode(), table.to_bytes()
    return _LENGTHS.pack(len(text), len(rows)) + text + rows


def read(arena: Arena) -> tuple[Extent, dict[str, Any], list[Chunk]]:
    """Where the committed index lies, its content and its chunks. Raises SavedStateDamagedError."""
    extent, content = arena.index()
    try:
        text_bytes, table_bytes = _LENGTHS.unpack_from(content)
        text = content[_LENGTHS.size : _LENGTHS.size + text_bytes]
        table = content[_LENGTHS.size + text_bytes :][:table_bytes]
        return extent, json.loads(text), chunks_of(table)
    except (struct.error, ValueError) as error:
        raise SavedStateDamagedError(f"The saved state's index cannot be read: {error}") from error


def read_manifest(descriptors: Sequence[int]) -> Manifest:
    """The manifest of a saved state. Nothing is unpickled. Raises SavedStateDamagedError."""
    arena = Arena.adopt(descriptors, MachineRoom())
    try:
        return Manifest.from_json(read(arena)[1]["manifest"])
    finally:
        arena.close()
