"""Opens JupyterLab on the examples: with this machine's GPUs, or, where it has none, with two simulated ones."""

import os
import sys
from pathlib import Path

from nls_scheduler.demo.stage import SIMULATION, idle_gpus
from nls_scheduler.locate import SIMULATE_VARIABLE

EXAMPLES = Path(__file__).parent.parent / "examples"

idle, about = idle_gpus()
environment = dict(os.environ)
if not idle and SIMULATE_VARIABLE not in environment:
    print(f"{about} JupyterLab opens with two SIMULATED GPUs ({SIMULATION}).", flush=True)  # noqa: T201 - said first
    environment[SIMULATE_VARIABLE] = SIMULATION
arguments = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={EXAMPLES}", *sys.argv[1:], "tour.ipynb"]
os.execve(sys.executable, arguments, environment)  # noqa: S606 - becomes JupyterLab, so that Ctrl-C reaches it
