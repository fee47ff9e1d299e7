"""Flushes of the kernel's streams that would find nothing.

Around each cell ipykernel flushes both streams twice. A flush hands two things to the publishing thread and waits for
them, whether or not anything was printed: together that takes as long as a short cell does.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from ipykernel.iostream import OutStream

from nls_jupyter.between.seams import FLUSH_PENDING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def leave_out_idle_flushes(streams: Iterable[Any]) -> None:
    """Have those of the streams that are a kernel's flush only what was written since they last did. Idempotent.

    What the publishing thread takes out of a stream it sends before all that it is handed later: the order of outputs
    stays as it was.
    """
    for stream in streams:
        if isinstance(stream, OutStream) and not isinstance(stream.flush, functools.partial):
            stream.flush = functools.partial(_flush, stream, stream.flush, os.getpid())  # type: ignore[method-assign]


def _flush(stream: Any, flush: Callable[[], None], owner: int) -> None:
    # A forked child has no thread that would note what it writes.
    if FLUSH_PENDING.of(stream, None) is not False or os.getpid() != owner:
        flush()
