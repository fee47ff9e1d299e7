"""`%gpu` lines of a cell that runs in the GPU process, carried out by the notebook's kernel while the cell waits.

The GPU process asks with an `nls_command_request` (`line`) on the stdin channel, whether or not the frontend allows
input, and the `nls_reply` holds `printed`, and either `data` and `metadata` of a result or `ename` and
`evalue`.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from nls_jupyter.between.errors import GpuError, GpuUsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_jupyter.notebook.status_view import GpuStatus
    from nls_jupyter.supervisor.pending import Message

# They wait for the end of the running cell, which waits for them.
_REFUSED = frozenset({"forget", "recompute", "release", "restart", "restore", "resume", "save", "suspend"})


def carry_out(command: Callable[[str], GpuStatus | None], line: str) -> Message:
    """The content of the reply to a line.

    Args:
        command: `Commands.line`; returns what is to be displayed.
        line: what follows `%gpu`.
    """
    printed = io.StringIO()
    try:
        name = (line.split() or ["status"])[0]
        if name in _REFUSED:
            raise GpuUsageError(f"%gpu {name} would wait for the end of the cell that it stands in; give it its own.")
        with contextlib.redirect_stdout(printed):
            result = command(line)
    except GpuError as error:
        return {"printed": printed.getvalue(), "ename": type(error).__name__, "evalue": str(error)}
    return {"printed": printed.getvalue(), **_displayed(result)}


def _displayed(result: GpuStatus | None) -> Message:
    return {} if result is None else {"data": result._repr_mimebundle_(), "metadata": {}}
