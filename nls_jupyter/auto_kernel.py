"""The kernel of "Python 3 (GPU)": an IPython kernel that begins in auto mode.

Its kernelspec names the class on the command line, which no child process inherits. A kernel that cannot have `%gpu`
does not start: run as an ordinary one, the notebook would compute on no GPU without a word.
"""

from __future__ import annotations

import sys
from typing import Any

from ipykernel.ipkernel import IPythonKernel

EXTENSION = "nls_jupyter"


class AutoKernel(IPythonKernel):
    """What it does that IPython's does not is in `notebook.auto`, and can be switched off."""

    def start(self) -> None:
        """Called by ipykernel once the user's own extensions are loaded."""
        if sys.platform != "linux":
            from nls_jupyter.notebook.elsewhere import sentence

            raise RuntimeError(f"{sentence()} Choose another kernel.")
        shell: Any = self.shell
        shell.extension_manager.load_extension(EXTENSION)  # the environment's configuration may have done so
        magics = shell.magics_manager.registry["GpuMagics"]
        magics.auto = True
        magics.start_ahead()
        super().start()  # type: ignore[no-untyped-call]
