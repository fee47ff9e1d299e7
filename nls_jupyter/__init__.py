"""`%gpu` and `%%gpu`: a notebook's GPU process, given and taken back by the node's scheduler."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython in every kernel: installs the magics. Nothing else is imported or started before their use."""
    if os.environ.get("NLS_GPU_PROCESS"):
        from nls_jupyter.inner_magics import InnerGpuMagics

        shell.register_magics(InnerGpuMagics)
        return
    from nls_jupyter.magics import GpuMagics

    shell.register_magics(GpuMagics)
