"""`%gpu` inside the GPU process itself, where the notebook's GPU is not at hand."""

from __future__ import annotations

from IPython.core.interactiveshell import InteractiveShell  # noqa: TC002 - traitlets reads it
from IPython.core.magic import Magics, line_cell_magic, magics_class

from nls_jupyter.errors import GpuUsageError


@magics_class
class InnerGpuMagics(Magics):
    """What `%gpu` and `%%gpu` mean in a cell that runs in the GPU process already."""

    shell: InteractiveShell

    @line_cell_magic
    def gpu(self, line: str, cell: str | None = None) -> None:
        """%%gpu is a plain cell here; %gpu belongs into a cell of its own."""
        if cell is None:
            raise GpuUsageError(f"this cell runs in the GPU process: put %gpu {line} in a cell of its own.")
        self.shell.run_cell(cell)  # type: ignore[no-untyped-call]
