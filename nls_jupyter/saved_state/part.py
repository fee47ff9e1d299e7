"""A component in the arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nls_jupyter.saved_state.encoder import Encoded
    from nls_jupyter.saved_state.graph import Component
    from nls_jupyter.saved_state.store import Stored


@dataclass(slots=True)
class Part:
    """What one save wrote, and the next one may find unchanged.

    Attributes:
        component: whose names these are; keeps what its digest is made of.
        stored: where it lies.
        encoded: which names it holds.
    """

    component: Component
    stored: Stored
    encoded: Encoded
