"""A component in the arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nls_jupyter.saved_state.encoder import Encoded
    from nls_jupyter.saved_state.store import Stored


@dataclass(slots=True)
class Part:
    """What one save wrote, and the next one may find unchanged.

    Attributes:
        held: keeps what the digest is made of.
        stored: where it lies.
        encoded: which names it holds.
    """

    held: list[Any]
    stored: Stored
    encoded: Encoded
