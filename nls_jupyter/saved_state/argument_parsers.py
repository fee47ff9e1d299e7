"""Parsers of command lines: argparse tells what is not to be there by one string, which it compares by identity."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """Base classes and the reducer of all their instances."""
    yield argparse.ArgumentParser, _reduce
    yield argparse.Action, _reduce


def _reduce(thing: Any) -> Any:
    reduced: tuple[Any, ...] = thing.__reduce_ex__(5)
    make, args, state = reduced[:3]
    # A copy: who holds the dict itself is counted.
    return (make, args, dict(state), None, None, fill) if isinstance(state, dict) else NotImplemented


def fill(thing: Any, state: dict[str, Any]) -> None:
    """As pickle does it, with this process's own string; called by the unpickler."""
    for name, value in state.items():
        is_the_one = type(value) is str and value == argparse.SUPPRESS
        vars(thing)[name] = argparse.SUPPRESS if is_the_one else value
