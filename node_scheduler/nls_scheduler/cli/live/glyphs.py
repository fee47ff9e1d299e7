"""The characters of a bar, and of what else is drawn. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a bar, which say it all without any colour."""

    guaranteed: str
    burst: str
    unplaced: str
    free: str
    left: str
    right: str
    chosen: str
    more: str


BLOCKS: Final = Glyphs("█", "▒", "╳", "·", "▕", "▏", "▸", "…")
ASCII: Final = Glyphs("#", "+", "x", ".", "[", "]", ">", "~")


def glyphs_for(encoding: str) -> Glyphs:
    """Those that a terminal of that encoding can show."""
    try:
        "".join(getattr(BLOCKS, name) for name in Glyphs.__slots__).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return ASCII
    return BLOCKS
