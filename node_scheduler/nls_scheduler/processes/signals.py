"""Signals that somebody else has the first word on."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def heeded(numbers: Iterable[signal.Signals]) -> frozenset[signal.Signals]:
    """Those of `numbers` that whoever began this process has not told it to ignore, as nohup does and `&` in a script.

    Whoever waits for a blocked signal gets it even so; ask before, and leave the rest to those who ignore it.
    """
    return frozenset(number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN)
