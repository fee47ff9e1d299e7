"""A GPU process that was started ahead: it has imported what all of them need, and nothing of the user's."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

from nls_jupyter.between import ahead
from nls_jupyter.gpu_process import warm_imports

if TYPE_CHECKING:
    from collections.abc import Mapping


def wait_for_order() -> None:
    """Until the kernel says what this process is for; ends the process where the kernel is gone."""
    try:
        environment, cwd = ahead.await_order()
    except OSError:
        sys.exit()
    _name_in_first_environment(environment)
    warm_imports.become(environment, cwd)


def _name_in_first_environment(environment: Mapping[str, str | None]) -> None:
    """As if this process had begun with it: by what /proc tells of that, others know whose a process is."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    room = libc.getenv(ahead.VARIABLE.encode())
    ctypes.memmove(room, ahead.as_first_environment(environment), ahead.ROOM_BYTES)
    del os.environ[ahead.VARIABLE]
