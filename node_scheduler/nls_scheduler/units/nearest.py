"""What somebody may have meant who wrote a name that there is not."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def nearest(name: str, known: Sequence[str]) -> str | None:
    """That of `known` which is most like `name`; `None`: none is like it."""
    return next(iter(difflib.get_close_matches(name, known, n=1)), None)
