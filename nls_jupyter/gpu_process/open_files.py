"""What cells have written to files, and Python still holds: it is to reach them before the process ends."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import stat
import sys
from typing import Any

_BUFFERED = (io.BufferedIOBase, io.TextIOBase)


def flush() -> None:
    """Whoever has opened them. Pipes and terminals are left alone, as nobody may read them."""
    _flush_all()
    logger: Any = getattr(sys.modules.get("loguru"), "logger", None)
    if logger is not None:  # threads of its sinks may have some left; last, as who gets it may never return
        logger.complete()
        _flush_all()


def _flush_all() -> None:
    # TensorBoard's keep what they are given for up to two minutes.
    writer: Any = getattr(sys.modules.get("torch.utils.tensorboard.writer"), "SummaryWriter", ())
    for each in gc.get_objects():
        if issubclass(type(each), writer):
            with contextlib.suppress(Exception):  # as below
                each.flush()
        if issubclass(type(each), _BUFFERED):
            with contextlib.suppress(Exception):  # it is closed, no file at all, or its disk is full
                if each.writable() and stat.S_ISREG(os.fstat(each.fileno()).st_mode):
                    each.flush()
