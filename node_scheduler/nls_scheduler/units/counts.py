"""Numbers of things, as people say them: `1 GPU`, `8 GPUs`, `once`, `5 times`."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """The number and its word, which only takes an s."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def times(number: int) -> str:
    """How often."""
    return "once" if number == 1 else f"{number} times"
