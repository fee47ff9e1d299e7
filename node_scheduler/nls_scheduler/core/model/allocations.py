"""Allocations that have failed within their limits, and the answers to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_scheduler.core.model.ids import GpuUuid
    from nls_scheduler.core.model.reasons import Why


@dataclass(frozen=True, slots=True)
class Wanted:
    """An allocation that has failed within the limit, until it is answered.

    Attributes:
        number: its supervisor's; the answer names it.
        gpu: where.
        bytes: what was to be allocated.
        held_bytes: what the process holds there already, context included.
        asked_at: when the daemon heard of it.
        deadline_at: it is answered by then.
        shown: a sample has been taken since.
    """

    number: int
    gpu: GpuUuid
    bytes: int
    held_bytes: int
    asked_at: float
    deadline_at: float
    shown: bool = False

    @property
    def needed_bytes(self) -> int:
        """What its process would hold there with it."""
        return self.held_bytes + self.bytes


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """Whether the allocation of that number is worth another try; `reason` is for the user."""

    number: int
    granted: bool
    reason: Why
