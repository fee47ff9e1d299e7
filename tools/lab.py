"""Opens JupyterLab on the examples: with this machine's GPUs, or, where none is idle, with two simulated ones."""

import os
import sys
from pathlib import Path

from nls_scheduler.demo.stage import idle_gpus
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable

EXAMPLES = Path(__file__).parent.parent / "examples"
# Room for a CUDA context and for arrays to play with; what a notebook really writes to is this machine's own memory.
SIMULATION = "2x2GiB"


def which_gpus() -> dict[str, str]:
    """Says on which GPUs the notebooks will run, and returns the variable that a new daemon needs for that."""
    try:
        print(f"JupyterLab uses the daemon that serves {locate.find()} already.", flush=True)  # noqa: T201
    except DaemonUnreachable:
        idle, about = idle_gpus()
        if not idle and locate.SIMULATE_VARIABLE not in os.environ:
            simulated = f"JupyterLab opens with two SIMULATED GPUs ({SIMULATION})."
            print(f"{about} {simulated}", flush=True)  # noqa: T201 - simulation is never chosen silently
            return {locate.SIMULATE_VARIABLE: SIMULATION}
    return {}


# Terminals and `!` cells in JupyterLab find `nls` without an activated environment.
path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
environment = {**os.environ, **which_gpus(), "PATH": path}
arguments = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={EXAMPLES}"]
arguments += [*sys.argv[1:], str(EXAMPLES / "tour.ipynb")]
os.execve(sys.executable, arguments, environment)  # noqa: S606 - becomes JupyterLab, so that Ctrl-C reaches it
