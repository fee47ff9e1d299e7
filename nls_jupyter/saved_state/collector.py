"""The garbage collector waits while a save looks at objects.

All that a walk makes is in use until the walk is over: the collector would go through it again and again, and run
finalizers of the user's in between.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_collections() -> Iterator[None]:
    """None in the block, unless somebody asks for one; where the user has turned it off, it stays off."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
