"""What a GPU process that nobody needs yet may cost: one that stands by, or that was started with the kernel."""

from __future__ import annotations

from dataclasses import dataclass

from nls_jupyter.saved_state.room import memory_left_bytes
from nls_scheduler.units.sizes import parse_size, to_bytes

# With less than this left on the machine there is none.
LEAST_LEFT_BYTES = 1 << 30


def parse_memory(text: str) -> int | float:
    """A share of what is left as a float, or bytes; 0 turns standbys off. Raises ValueError with one sentence."""
    return 0 if text.strip() == "0" else parse_size(text)


@dataclass(frozen=True, slots=True)
class StandbySettings:
    """What a standby may cost.

    Attributes:
        memory: host memory of its own, as `parse_memory` gives it: a share of what is left, or bytes; 0: none.
        idle_s: it is ended when the notebook has run no cell for so long.
    """

    memory: int | float = 0
    idle_s: float = 3600.0

    def budget_bytes(self) -> int:
        """What a standby may take now; 0 for none."""
        left = memory_left_bytes()
        return 0 if left < LEAST_LEFT_BYTES or not self.memory else to_bytes(self.memory, left)
