"""What machine a benchmark ran on, and how its results are kept."""

from __future__ import annotations

import json
import os
import platform
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """The hardware and versions that a figure depends on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": " ".join(sys.version.partition("(")[2].replace(")", "").split()),
    }


def require_gpu(*modules: str) -> None:
    """End with one sentence where there is no GPU to measure on, or a package of `modules` is missing."""
    from nls_scheduler.drivers.nvml import NvmlDriver

    if missing := [module for module in modules if find_spec(module) is None]:
        sys.exit(f"This measures with {' and '.join(missing)}, which this environment lacks: install it first.")
    with closing(NvmlDriver()) as driver:
        if not driver.discover():
            sys.exit(f"This measures on a GPU. {driver.trouble()}")


def resident_kib(pid: int) -> int:
    """What of a process is in memory, shared pages too."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return int(text.partition("VmRSS:")[2].split()[0])


def report(name: str, figures: dict[str, Any], where: dict[str, Any]) -> None:
    """Print the figures; with `--keep` on the command line's end (NLS_KEEP=1) also write results/NAME.json."""
    result = {"benchmark": name, "figures": figures, "machine": where}
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    if os.environ.get("NLS_KEEP") == "1":
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
