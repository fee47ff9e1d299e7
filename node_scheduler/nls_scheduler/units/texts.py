"""Text that came from outside, as it is shown."""

from __future__ import annotations


def printable(text: str, besides: str = "") -> str:
    r"""`text` without what a terminal or a log would obey: `\x1b` for an escape. What is in `besides` stays."""
    return "".join(c if c.isprintable() or c in besides else c.encode("unicode_escape").decode("ascii") for c in text)
