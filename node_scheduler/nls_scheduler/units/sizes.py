"""Sizes as people write them: a fraction of a Gpu (`0.5`) or bytes (`8GiB`, `500M`)."""

from __future__ import annotations

import re
from math import ceil

_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_TOO_MANY = 2.0**63
# Digits of other scripts are no sizes: Python reads them, and nobody means them.
_BYTES = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt]i?)b?|b)\s*$", re.IGNORECASE)
_FRACTION = re.compile(r"^\s*([0-9]*\.[0-9]+|[0-9]+\.?)\s*$")
_HOW = "write a fraction of a GPU such as 0.5, or bytes such as 8GiB or 500M"


def parse_bytes(text: str) -> int:
    """Bytes for `500M` (10^6), `8GiB` or `8Gi` (2^30), `123B`. Raises ValueError with one clear sentence."""
    match = _BYTES.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size in bytes: write for example 8GiB, 500M or 4096B.")
    number, unit = match.groups()
    if (in_bytes := float(number) * _UNITS[(unit or "").lower()]) >= _TOO_MANY:
        raise ValueError(f"{text!r} is not a usable size: nothing has so much.")
    if (size := int(in_bytes)) <= 0:
        raise ValueError(f"{text!r} is not a usable size: it must be above zero.")
    return size


def parse_size(text: str) -> int | float:
    """A fraction in (0, 1] as a float, or bytes as an int. Raises ValueError with one clear sentence."""
    if _FRACTION.match(text):
        fraction = float(text)
        if not 0 < fraction <= 1:
            raise ValueError(f"{text!r} is not more than 0 and at most 1: {_HOW}.")
        return fraction
    if not _BYTES.match(text):
        raise ValueError(f"{text!r} is not a size: {_HOW}.")
    return parse_bytes(text)


def to_bytes(size: float, memory_total_bytes: int) -> int:
    """A parsed size as bytes of a Gpu with `memory_total_bytes`: floats are fractions, ints already bytes."""
    return round(size * memory_total_bytes) if isinstance(size, float) else size


def format_bytes(size_bytes: int | None) -> str:
    """A short text for people: `8 GiB`, `1.5 GiB`, `320 MiB`; `unknown` for `None`."""
    if size_bytes is None:
        return "unknown"
    factor, unit = _unit(size_bytes)
    return f"{size_bytes / factor:.1f}".removesuffix(".0") + f" {unit}"


def format_each(size_bytes: int, gpus: int) -> str:
    """As `format_bytes`, of what is so on each of several Gpus: `8 GiB`, `2 x 8 GiB`."""
    return format_bytes(size_bytes) if gpus == 1 else f"{gpus} x {format_bytes(size_bytes)}"


def format_bytes_up(size_bytes: int) -> str:
    """As `format_bytes`, to the hundredth, and never less than it is: `8 GiB`, `1.05 GiB`."""
    factor, unit = _unit(size_bytes)
    return f"{ceil(size_bytes * 100 / factor) / 100:g} {unit}"


def format_bytes_down(size_bytes: int) -> str:
    """As `format_bytes`, to the hundredth, and never more than it is: `8 GiB`, `1.04 GiB`."""
    factor, unit = _unit(size_bytes)
    return f"{size_bytes * 100 // factor / 100:g} {unit}"


def _unit(size_bytes: int) -> tuple[int, str]:
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return factor, unit
    return 1, "B"


def format_amount(gpus: float | None) -> str:
    """A number of Gpus for people: `10`, `0.5`, `unlimited` for `None`."""
    return "unlimited" if gpus is None else f"{max(0.0, gpus):.4g}"


def format_seconds(seconds: float) -> str:
    """`90 s`, `10 min`, `2 h`, `1 d`: in the largest unit that says it exactly."""
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds and seconds % unit_s == 0:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds:g} s"
