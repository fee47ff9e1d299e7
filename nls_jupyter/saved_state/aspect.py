"""One thing that is kept of a process beside the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Aspect:
    """One thing to keep.

    Attributes:
        name: for the user.
        capture: its value now; `None` for nothing to keep.
        apply: the inverse, in a new process.
        module: whose state it is; without it being imported there is none.
        early: needed before objects are made.
    """

    name: str
    capture: Callable[[], Any]
    apply: Callable[[Any], Any]
    module: str | None = None
    early: bool = False
