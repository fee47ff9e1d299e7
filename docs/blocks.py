"""Parts of the documents that are written from the code, between `<!-- begin NAME -->` and `<!-- end NAME -->`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def updated(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with each block's content replaced. Raises ValueError when a block has no place in it."""
    for name, content in blocks.items():
        place = re.compile(rf"(<!-- begin {re.escape(name)} -->\n).*?(<!-- end {re.escape(name)} -->)", re.DOTALL)
        if len(place.findall(text)) != 1:
            raise ValueError(f"The document needs one pair of marks for {name!r}.")
        text = place.sub(lambda found, content=content: f"{found[1]}\n{content.strip()}\n\n{found[2]}", text)  # type: ignore[misc]
    return text


def rewrite(document: Path, blocks: Mapping[str, str]) -> None:
    """Bring `document` up to date."""
    text = document.read_text(encoding="utf-8")
    new = updated(text, blocks)
    if new != text:
        document.write_text(new, encoding="utf-8")
        print(f"{document} is updated")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what would end a cell is escaped."""
    lines = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
