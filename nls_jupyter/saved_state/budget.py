"""How much more memory a save may take: asked of the system now and then, and counted in between."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Protocol

from nls_scheduler.units.clock import monotonic_s

if TYPE_CHECKING:
    from collections.abc import Callable

PLENTY_BYTES: Final = 1 << 30
"""So much is not gone within the time that an answer about what is left holds; less may be."""
_ANSWER_HOLDS_S: Final = 1.0
_SHORT_ANSWER_HOLDS_S: Final = 0.05


class Room(Protocol):
    """How much more each file may hold; see `room.MachineRoom`."""

    why_no_spill: str

    def memory_bytes(self, held_bytes: int) -> int:
        """What memory has left at this moment for somebody who holds `held_bytes` of it."""

    def open_spill(self) -> int | None:
        """A new, nameless file on disk; `None` without one, then `why_no_spill` says why."""

    def spill_bytes(self, fd: int) -> int:
        """What the spill file's disk has left."""


class Budget:
    """Of one file in memory. Several threads may `give_back` at once, while one at a time does anything else.

    An answer of a moment ago holds while it is far more than others take in a moment: asking costs as much as a small
    save.

    Attributes:
        left_bytes: what may still be taken; negative where more was taken than there was.

    Args:
        room: is asked.
        held_bytes: what the file takes by now.
    """

    def __init__(self, room: Room, held_bytes: Callable[[], int]) -> None:
        self._room = room
        self._held_bytes = held_bytes
        self._asked_at = float("-inf")
        self._counting = threading.Lock()
        self.left_bytes = 0

    def begin(self) -> None:
        """A new save. Raises OSError."""
        now = monotonic_s()
        if not self.is_plenty or now - self._asked_at > _ANSWER_HOLDS_S:
            self.left_bytes, self._asked_at = self.now_bytes(), now

    @property
    def is_plenty(self) -> bool:
        """Whether nobody has to look at every byte."""
        return self.left_bytes >= PLENTY_BYTES

    def now_bytes(self) -> int:
        """What the system says to be left at this moment. Raises OSError."""
        return self._room.memory_bytes(self._held_bytes())

    def look_again(self) -> None:
        """Others take memory while a save is written, such as the cell beside which a copy of the process saves."""
        now = monotonic_s()
        if now - self._asked_at > (_ANSWER_HOLDS_S if self.is_plenty else _SHORT_ANSWER_HOLDS_S):
            now_bytes, self._asked_at = self.now_bytes(), now
            with self._counting:
                self.left_bytes = min(self.left_bytes, now_bytes)

    def take(self, size_bytes: int) -> None:
        """So much is to be written."""
        with self._counting:
            self.left_bytes -= size_bytes

    def give_back(self, size_bytes: int) -> None:
        """So much is free again."""
        with self._counting:
            self.left_bytes += size_bytes
