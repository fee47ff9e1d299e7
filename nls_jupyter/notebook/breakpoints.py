"""Breakpoints in `%%gpu` cells, which the debugger of the notebook's own kernel promises and never comes to."""

from __future__ import annotations

from typing import Any

UNREACHED = (
    "the breakpoints in this cell are not reached: it runs in the GPU process, and the debugger is that of the "
    "notebook's kernel. In auto mode (%gpu auto on) it is the GPU process's."
)


def are_unreached(kernel: Any) -> bool:
    """Whether the debugger of `kernel` is to stop in the cell that runs now."""
    debugger = getattr(kernel, "debugger", None)
    if debugger is None or not debugger.is_started:
        return False
    from ipykernel.compiler import get_file_name

    code = kernel.get_parent("shell").get("content", {}).get("code", "")
    return bool(debugger.breakpoint_list.get(get_file_name(code)))  # type: ignore[no-untyped-call]
