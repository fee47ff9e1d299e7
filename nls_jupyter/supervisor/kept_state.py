"""What a notebook keeps of its GPU processes: what one saved, what came back of that, and what others died of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_jupyter.saved_state import Manifest


@dataclass(frozen=True, slots=True)
class SavedState:
    """What the GPU process saved last: files without names that this kernel owns, and the list of what is in them."""

    descriptors: tuple[int, ...]
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back into a new process.

    Attributes:
        names: restored variables.
        missing: objects with `name, type_name, reason` that are gone, and `cell`, which made them, if that is known;
            each is told once.
        memory_bytes: size of the saved state.
        cell: the cell after which it was saved.
        seconds: the whole way, from the launch on.
        not_back: objects as `missing`, whose saved state is kept and tried again.
        changed: objects with `name, type_name, change` that came back otherwise than they were.
        gone: labels of completed cells that it does not hold.
        awaited: its user has asked for it.
    """

    names: Sequence[str]
    missing: Sequence[Mapping[str, Any]]
    memory_bytes: int
    cell: str | None
    seconds: float
    not_back: Sequence[Mapping[str, Any]] = ()
    changed: Sequence[Mapping[str, Any]] = ()
    gone: Sequence[str] = ()
    awaited: bool = False


class Deaths:
    """How often processes died of their own while they brought back a component; for the saved state that stands."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        """By component."""
        return dict(self._counts)

    def note(self, key: str | None) -> None:
        """A process has died while it was at this component; `None`: at none."""
        if key is not None:
            self._counts[key] = self._counts.get(key, 0) + 1

    def forget(self) -> None:
        """There is another saved state, which says itself what is not tried again."""
        self._counts.clear()
