"""Models of pydantic with a type filled in: `Page[int]` is one class, however often it is asked for."""

from __future__ import annotations

import operator
from typing import Any

from nls_jupyter.saved_state.kinds import content_of


def reduce(kind: type) -> Any:
    """How `Page[int]` is made of `Page`; `None` for all other classes."""
    known = content_of(kind).get("__pydantic_generic_metadata__")
    if not isinstance(known, dict) or known.get("origin") is None:
        return None
    origin, args = known["origin"], known["args"]
    return (operator.getitem, (origin, args)) if origin[args] is kind else None
