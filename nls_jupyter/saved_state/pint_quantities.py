"""Quantities and units of pint with their registry: pickle gives all of them the one of the application.

With another one they are of no use: two quantities of different registries cannot be added. Those of pint's own find
that of the new process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Pint pickles each as one of these classes, below which every registry has its own.
_OF_A_REGISTRY: Final = {"PlainQuantity": "Quantity", "PlainUnit": "Unit", "Measurement": "Measurement"}


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of what has a registry, and its reducer, if pint is imported."""
    if (util := sys.modules.get("pint.util")) is not None:
        yield util.SharedRegistryObject, _reduce


def _reduce(thing: Any) -> Any:
    registry, reduced = seams.PINT_REGISTRY_OF.of(thing), thing.__reduce__()
    match reduced:
        case (_, (type() as kind, *args)) if registry is not seams.PINT_REGISTRY.here(None):
            if (called := _OF_A_REGISTRY.get(kind.__name__)) is not None:
                return in_registry, (registry, called, *args)
    return reduced


def in_registry(registry: Any, kind: str, *args: Any) -> Any:
    """A quantity or a unit of that registry; called by the unpickler."""
    return getattr(registry, kind)(*args)
