"""`%gpu` and `%%gpu`: a notebook's GPU process, given and taken back by the node's scheduler.

Of the standard library it imports only what Python has loaded already: in a GPU process that begins, a `logging.py`
beside the notebook would be taken for it (see `gpu_process.__main__`).
"""

from __future__ import annotations

import sys

from nls_jupyter.between.errors import GpuReclaimed
from nls_jupyter.gpu_process.save_points import save_point

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["GpuReclaimed", "load_ipython_extension", "save_point"]


def _log_to_nobody() -> None:
    """Without a handler of the user's own, Python would print warnings on stderr, and so into a notebook's cell."""
    import logging

    for package in ("nls_jupyter", "nls_scheduler"):
        logging.getLogger(package).addHandler(logging.NullHandler())


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Called by IPython in every kernel: installs the names. What stands behind them comes with their first use."""
    if sys.platform != "linux":
        from nls_jupyter.notebook import elsewhere

        elsewhere.install(shell)
        return
    _log_to_nobody()
    # Not by an environment variable: a kernel that a GPU cell starts inherits those and is a kernel like any other.
    if "nls_jupyter.gpu_process.kernel" in sys.modules:
        from nls_jupyter.gpu_process import magics

        magics.install(shell)
        return
    if "GpuMagics" in shell.magics_manager.registry:
        return  # `%reload_ext`: the notebook keeps its GPU, and what has been set
    from nls_jupyter.notebook.late_interrupts import LateInterrupts
    from nls_jupyter.notebook.magics import GpuMagics

    shell.register_magics(GpuMagics)
    LateInterrupts().follow(shell)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by Jupyter Server, which knows the extension by this package's name."""
    if sys.platform != "linux":
        return []  # no daemon can run there, so that there is nothing to tell pages
    from nls_jupyter_server.app import NlsExtension

    _log_to_nobody()
    return [{"module": "nls_jupyter_server.app", "app": NlsExtension}]
