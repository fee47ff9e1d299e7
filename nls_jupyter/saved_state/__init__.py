"""Saved state: a notebook's variables outside its GPU process, in shared memory that the kernel owns.

The GPU process calls `save` and hands the file descriptor over; a new GPU process gets it back and calls `restore`.
The kernel between them only ever reads the manifest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import libraries
from nls_jupyter.saved_state.decoder import RestoreReport, decode
from nls_jupyter.saved_state.encoder import Encoder
from nls_jupyter.saved_state.manifest import Manifest, MissingName, SavedName, user_names
from nls_jupyter.saved_state.store import Reader, SavedStateDamagedError, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Manifest",
    "MissingName",
    "RestoreReport",
    "SavedName",
    "SavedStateDamagedError",
    "read_manifest",
    "restore",
    "save",
    "user_names",
]


def save(
    namespace: Mapping[str, Any], *, cell: str | None, function_globals: Mapping[str, Any] | None = None
) -> tuple[int, Manifest]:
    """Save names with all that they share; those that cannot be saved are in the manifest with their reasons.

    Args:
        namespace: the user's names (see `user_names`).
        cell: the cell after which this is, for the manifest.
        function_globals: the namespace of functions defined in cells, when it is neither `__main__`'s nor `namespace`.

    Returns:
        A sealed memfd, closed on exec and the caller's to close, and its manifest.

    Raises:
        OSError: no memory for it.
        Exception: what a Gpu library raised while it was waited for or copied from.
    """
    libraries.synchronize()
    with Writer() as writer:
        encoder = Encoder(writer, namespace, function_globals)
        encoder.encode()
        manifest = encoder.manifest(cell)
        index = {"manifest": manifest.to_json(), "buffers": encoder.regions.buffers}
        return writer.finish(encoder.regions.sources, index), manifest


def read_manifest(fd: int) -> Manifest:
    """The manifest in a saved state. Raises `SavedStateDamagedError`."""
    return Manifest.from_json(Reader(fd).index["manifest"])


def restore(fd: int, namespace: dict[str, Any]) -> RestoreReport:
    """Put the saved names into `namespace`, which becomes the globals of functions that were defined in cells.

    Names that cannot be restored are left out and reported. The descriptor stays the caller's. Raises
    `SavedStateDamagedError`.
    """
    reader = Reader(fd)
    return decode(reader, namespace, Manifest.from_json(reader.index["manifest"]).saved)
