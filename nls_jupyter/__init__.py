"""`%gpu` and `%%gpu`: a notebook's GPU process, given and taken back by the node's scheduler."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from nls_jupyter.reclaim import GpuReclaimed
from nls_jupyter.save_points import save_point

if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuReclaimed", "load_ipython_extension", "save_point"]

# Without a handler of the user's own, Python would print warnings on stderr, and so into a notebook's cell.
for _package in ("nls_jupyter", "nls_scheduler"):
    logging.getLogger(_package).addHandler(logging.NullHandler())


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython in every kernel: installs the magics. Nothing else is imported or started before their use."""
    # Not by an environment variable: a kernel that a GPU cell starts inherits those and is a kernel like any other.
    if "nls_jupyter.gpu_kernel" in sys.modules:
        from nls_jupyter import inner_magics

        inner_magics.install(shell)
        return
    from nls_jupyter.late_interrupts import LateInterrupts
    from nls_jupyter.magics import GpuMagics

    shell.register_magics(GpuMagics)
    LateInterrupts().follow(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by Jupyter Server, which knows the extension by this package's name."""
    from nls_jupyter_server.app import NlsExtension

    return [{"module": "nls_jupyter_server.app", "app": NlsExtension}]
