"""Priorities as people write them: a name of KAI Scheduler's, or a number. Pure."""

from __future__ import annotations

from typing import Final

from nls_scheduler.core.model.queues import FIRM_FROM, PRIORITIES

PRIORITY_LIMIT: Final = 10**9


def parse_priority(value: object) -> int:
    """The number of `train`, `build`, `inference` or of a number (also as text). Raises ValueError with one clause."""
    if isinstance(value, str):
        if value in PRIORITIES:
            return PRIORITIES[value]
        digits = value.removeprefix("-")
        if digits.isdecimal() and digits.isascii() and len(digits) <= len(str(PRIORITY_LIMIT)):
            value = int(value)
    if type(value) is not int or not -PRIORITY_LIMIT <= value <= PRIORITY_LIMIT:
        names = ", ".join(PRIORITIES)
        raise ValueError(f"a whole number from {-PRIORITY_LIMIT} to {PRIORITY_LIMIT}, or one of {names}.")
    return value


def priority_word(priority: int) -> str:
    """For people: `50 (train)`, `110, not preemptible`."""
    name = next((f" ({name})" for name, number in PRIORITIES.items() if number == priority), "")
    return f"{priority}{name}" + (", not preemptible" if priority >= FIRM_FROM else "")
