"""What Python's own parser of arguments takes for what nobody meant, and its numbers, told in plain words."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class ArgumentParser(argparse.ArgumentParser):
    """Python's, in each version of which the value in `--name=--` is refused."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Up to 3.12 it makes an empty list of it, which no command expects.
        if action.option_strings and action.nargs is None and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected one argument")
        return super()._get_values(action, arg_strings)


def whole(what: str, least: int = 1, most: int | None = None) -> Callable[[str], int]:
    """For `type=`: whole numbers from `least` to `most`; `what` they are, for the user of one that is none."""
    allowed = f"from {least} on" if most is None else f"from {least} to {most}"

    def parsed(text: str) -> int:
        with suppress(ValueError):  # nor has Python a number of thousands of digits
            if text.isascii() and text.isdecimal() and least <= (number := int(text)) <= (most or number):
                return number
        raise argparse.ArgumentTypeError(f"{text!r:.60} is no {what}: write a whole number {allowed}")

    return parsed


def seconds(text: str) -> float:
    """For `type=`: a time that ends, or none at all."""
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= found < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return found
