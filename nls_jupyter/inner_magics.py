"""`%gpu` inside the GPU process itself, where the notebook's GPU is not at hand."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from IPython.core.interactiveshell import InteractiveShell  # noqa: TC002 - traitlets reads it
from IPython.core.magic import Magics, line_cell_magic, magics_class

from nls_jupyter.errors import GpuUsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_CELL_MAGIC = re.compile(r"\s*%%gpu\b")


def install(shell: InteractiveShell) -> None:
    """Make `shell` that of a GPU process. Called by IPython when it loads the extension."""
    shell.register_magics(InnerGpuMagics)
    shell.input_transformers_cleanup.append(_without_cell_magic)
    _leave_usage_errors_to_the_kernel(shell)


@magics_class
class InnerGpuMagics(Magics):
    """What `%gpu` and `%%gpu` mean in a cell that runs in the GPU process already."""

    shell: InteractiveShell

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> None:
        """%%gpu is a plain cell here; %gpu belongs into a cell of its own."""
        if cell is None:
            raise GpuUsageError(
                f"this cell runs in the GPU process: put %gpu {line}".rstrip() + " in a cell of its own."
            )
        # Only below another cell magic; a first line is taken away before.
        self.shell.run_cell(cell).raise_error()  # type: ignore[no-untyped-call]


def _without_cell_magic(lines: list[str]) -> list[str]:
    """A cell that begins with %%gpu is a plain one, or one of the magic that comes next."""
    while lines and _CELL_MAGIC.match(lines[0]):
        lines = lines[1:]
    return lines


def _leave_usage_errors_to_the_kernel(shell: InteractiveShell) -> None:
    """IPython prints a UsageError instead of raising it; the kernel, to which the cell's goes, prints it too."""
    show = shell.show_usage_error

    def show_usage_error(error: BaseException) -> None:
        if sum(frame.f_code.co_name == "run_ast_nodes" for frame in _frames()) != 1:
            show(error)  # type: ignore[no-untyped-call]

    shell.show_usage_error = show_usage_error  # type: ignore[method-assign]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
