"""`%gpu` where there is no Linux: one sentence, and nothing else of the notebook changes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from IPython.core.error import UsageError

if TYPE_CHECKING:
    from typing import NoReturn

    from IPython.core.interactiveshell import InteractiveShell


def install(shell: InteractiveShell) -> None:
    """Called while a kernel starts: it must not fail, as nobody there has asked for a GPU."""
    shell.register_magic_function(_gpu, "line_cell", "gpu")  # type: ignore[arg-type]  # annotated for bound methods


def _gpu(line: str, cell: str | None = None) -> NoReturn:
    del line, cell
    raise UsageError(sentence())


def sentence() -> str:
    """What is missing."""
    return f"nls_jupyter needs Linux, and this kernel runs on {sys.platform}: there is no GPU process here."
