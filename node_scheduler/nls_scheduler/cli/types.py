"""What argparse has no public name for, and its `type=` of what raises ValueErrors that are sentences."""

from __future__ import annotations

import argparse
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_Value = TypeVar("_Value")


def told(parse: Callable[[str], _Value]) -> Callable[[str], _Value]:
    """`parse`, so that a user reads what its ValueError says; argparse would say "invalid parse value"."""

    @wraps(parse)
    def parsed(text: str) -> _Value:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed
