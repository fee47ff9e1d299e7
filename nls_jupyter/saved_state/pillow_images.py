"""Pillow's images with all that they have: it pickles their pixels, and of their attributes and palettes a part.

So tags of TIFF, texts of PNG, how transparent the colors of a palette are, and what cells set would be gone.
"""

from __future__ import annotations

import copyreg
import functools
import io
import mmap
import sys
import types
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import module_of, owner_of
from nls_jupyter.saved_state.looks import importable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Content = tuple[Any, tuple[Any, str] | None, dict[str, Any]]
    """What Pillow pickles, the palette with its mode, and attributes."""

_WAYS: Final = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
#: Of Pillow's own objects these consist of plain values. Others read the file.
_PLAIN: Final = frozenset({"ImagePalette", "ImageFileDirectory_v1", "ImageFileDirectory_v2"})
_WITHOUT_FILE: Final = "an image comes back without its file, as the frame that it shows"


def families(note: Callable[[str], None]) -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of images and the reducer of all of them, if Pillow's are imported."""
    if (found := sys.modules.get("PIL.Image")) is not None:
        yield found.Image, functools.partial(_reduce, note)


def _reduce(note: Callable[[str], None], image: Any) -> Any:
    kind = type(image)
    owners = (owner_of(kind, way) for way in _WAYS)
    if not all(owner is object or owner is None or module_of(owner).startswith("PIL.") for owner in owners):
        return NotImplemented  # a way of somebody's own
    image.load()  # first: an icon has its mode and size only then
    state = image.__getstate__()
    palette = (image.getpalette(None), image.im.getpalettemode()) if image.mode in {"P", "PA"} else None
    if _has_more_frames(image):
        note(_WITHOUT_FILE)
    own = {name: value for name, value in vars(image).items() if not _is_of_its_file(value)}
    return copyreg.__newobj__, (kind,), (state, palette, own), None, None, fill  # type: ignore[attr-defined]


def _has_more_frames(image: Any) -> bool:
    try:
        return bool(getattr(image, "is_animated", False))
    except Exception:  # noqa: BLE001 - its file is closed, and it has no more than it shows
        return False


def _is_of_its_file(value: Any) -> bool:
    """Whether an attribute is a file, or something of Pillow's that reads one, or the pixels.

    Its types in C claim to be Python's.
    """
    kind = type(value)
    if issubclass(kind, (io.IOBase, mmap.mmap)):
        return True
    if module_of(kind).partition(".")[0] == "PIL":
        return kind.__name__ not in _PLAIN and not issubclass(kind, sys.modules["PIL.Image"].Image)
    return module_of(kind) == "builtins" and not importable(kind) and kind not in vars(types).values()


def fill(image: Any, content: Content) -> None:
    """Give an image its pixels and attributes; called by the unpickler."""
    state, palette, attributes = content
    image.__setstate__(state)
    if palette is not None:
        image.putpalette(*palette)
        image.load()  # which gives the palette to the pixels
    vars(image).update(attributes)
