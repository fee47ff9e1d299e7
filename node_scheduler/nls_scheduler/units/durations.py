"""Durations as people write them: `90s`, `10min`, `2h`, `1d`."""

from __future__ import annotations

import re
from math import isfinite

_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)


def parse_duration(text: str) -> float:
    """Seconds, above zero; parts add up (`1h30min`). Raises ValueError with one clear sentence."""
    parts = _DURATION.findall(text)
    units_known = all(unit.lower() in _SECONDS for _, unit in parts)
    if not parts or not units_known or _DURATION.sub("", text).strip():
        raise ValueError(f"{text!r} is not a duration: write for example 90s, 10min, 2h or 1d.")
    seconds = sum(float(number) * _SECONDS[unit.lower()] for number, unit in parts)
    if seconds <= 0:
        raise ValueError(f"{text!r} is no time at all: write for example 90s, 10min, 2h or 1d.")
    if not isfinite(seconds):
        raise ValueError(f"{text!r} is no time that ever ends: write for example 90s, 10min, 2h or 1d.")
    return seconds
