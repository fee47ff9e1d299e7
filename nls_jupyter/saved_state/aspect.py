"""One thing that is kept of a process beside the names: a value that can be read, and set in another process."""

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
        capture: its value now; `None` for nothing to keep. What it raises is what the user reads of it.
        apply: the inverse, in a new process.
        module: whose state it is; without it being imported there is none.
        early: needed before objects are made.
        again: once more when they are made, as what they import changes it.
        always: kept also when it is as it was when the process started, or as the module's import left it.
    """

    name: str
    capture: Callable[[], Any]
    apply: Callable[[Any], Any]
    module: str | None = None
    early: bool = False
    again: bool = False
    always: bool = False
