"""Time zones of dateutil: `gettz` has one object for each name, by which moments are told to be of one zone.

Those of two objects are subtracted in UTC, which is another difference where the clock is set in between.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The class of zones that are read from a file and the reducer of all of them, if dateutil is imported."""
    if (found := sys.modules.get("dateutil.tz")) is not None:
        yield found.tzfile, _reduce


def _reduce(zone: Any) -> Any:
    name = next((name for name in _names(zone) if sys.modules["dateutil.tz"].gettz(name) is zone), None)
    return NotImplemented if name is None else (zone_called, (name,))


def _names(zone: Any) -> list[str]:
    """What its file may be called: `America/Argentina/Ushuaia` of `tzfile('/usr/share/zoneinfo/…')`."""
    try:
        (file,) = ast.parse(repr(zone), mode="eval").body.args  # type: ignore[attr-defined]
        parts = PurePath(ast.literal_eval(file)).parts
    except (AttributeError, SyntaxError, TypeError, ValueError):
        return []  # made by hand, of an open file
    return ["/".join(parts[-count:]) for count in range(1, min(3, len(parts)) + 1)]


def zone_called(name: str) -> Any:
    """The one that `gettz` has; called by the unpickler. Raises ValueError where there is none (any more)."""
    if (zone := importlib.import_module("dateutil.tz").gettz(name)) is None:
        raise ValueError(f"there is no time zone {name} on this machine")
    return zone
