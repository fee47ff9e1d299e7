"""How the command line talks: results on stdout, everything about it on stderr."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def say(text: str) -> None:
    """A result, on stdout."""
    print(text, flush=True)  # noqa: T201 - the command line's output


def tell(text: str) -> None:
    """A notice or an error, on stderr."""
    print(f"nls: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the command line's messages


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first row is the heading, the last column is not padded."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
