"""Text that came from outside, as it is shown."""

from __future__ import annotations

from itertools import accumulate
from unicodedata import category, east_asian_width


def printable(text: str, besides: str = "") -> str:
    r"""`text` without what a terminal or a log would obey: `\x1b` for an escape. What is in `besides` stays."""
    return "".join(c if c.isprintable() or c in besides else c.encode("unicode_escape").decode("ascii") for c in text)


def columns(text: str) -> int:
    """How many a terminal needs for `text`: two for each Chinese, Japanese or Korean letter, none for an accent."""
    return sum(map(_columns_of, text))


def within(text: str, most: int) -> str:
    """As much of `text` as fits into so many columns."""
    return text[: sum(width <= most for width in accumulate(map(_columns_of, text)))]


def _columns_of(letter: str) -> int:
    return 0 if category(letter) in ("Mn", "Me") else 2 if east_asian_width(letter) in "WF" else 1
