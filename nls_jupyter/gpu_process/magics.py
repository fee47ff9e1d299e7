"""`%gpu` inside the GPU process itself, where the notebook's kernel has to be asked."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from IPython.core.interactiveshell import InteractiveShell  # noqa: TC002 - traitlets reads it
from IPython.core.magic import Magics, cell_magic, line_cell_magic, magics_class

from nls_jupyter.between import errors
from nls_jupyter.between.cell_result import CellResult
from nls_jupyter.between.errors import GpuUsageError
from nls_jupyter.between.seams import RUN_AST_NODES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_CELL_MAGIC = re.compile(r"\s*%%gpu\s*$")


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
    def gpu(self, line: str, cell: str | None = None) -> CellResult | None:
        """%%gpu is a plain cell here; a %gpu line is carried out by the notebook's kernel."""
        if cell is None:
            try:
                return _shown(self.shell.kernel.ask_notebook(line))  # type: ignore[attr-defined]
            except KeyboardInterrupt as interrupt:
                errors.show_as_sentence(interrupt)
                raise
        if line.strip():
            raise GpuUsageError(
                "%%gpu with options must be the first line of its cell: this one runs in the GPU process already."
            )
        # Only below another cell magic; a first line is taken away before.
        self.shell.run_cell(cell).raise_error()  # type: ignore[no-untyped-call]
        return None

    @cell_magic
    def local(self, line: str, cell: str) -> None:
        """%%local is for cells of the notebook's kernel, and must be a cell's first line."""
        del line, cell
        raise GpuUsageError("%%local must be the first line of its cell: this one runs in the GPU process already.")


def _shown(answer: dict[str, Any]) -> CellResult | None:
    """Show what the kernel printed, and return or raise what came of the line."""
    sys.stdout.write(answer["printed"])
    if "ename" in answer:
        raise getattr(errors, answer["ename"])(answer["evalue"])
    return CellResult(answer["data"], answer["metadata"]) if "data" in answer else None


def _without_cell_magic(lines: list[str]) -> list[str]:
    """A cell that begins with %%gpu alone is a plain one, or one of the magic that comes next."""
    while lines and _CELL_MAGIC.match(lines[0]):
        lines = lines[1:]
    return lines


def _leave_usage_errors_to_the_kernel(shell: InteractiveShell) -> None:
    """IPython prints a UsageError instead of raising it; the kernel, to which the cell's goes, prints it too."""
    show = shell.show_usage_error

    def show_usage_error(error: BaseException) -> None:
        if sum(frame.f_code.co_name == RUN_AST_NODES.name for frame in _frames()) != 1:
            show(error)  # type: ignore[no-untyped-call]

    shell.show_usage_error = show_usage_error  # type: ignore[method-assign]


def _frames() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
