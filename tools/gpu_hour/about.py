"""Prints what machine this is: versions, what imports take, what the driver says of its GPUs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch cupy-cuda12x cupy-cuda13x cuda-core cuda-bindings jax numpy nvidia-ml-py nls-jupyter ipykernel ipython "
    "jupyter-client jupyter-server pyzmq"
)
FIELDS = (
    "name,driver_version,memory.total,memory.reserved,memory.used,persistence_mode,mig.mode.current,"
    "pcie.link.gen.current,pcie.link.width.current"
)


def version(package: str) -> str | None:
    """Of an installed package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def import_s(library: str) -> float | None:
    """Seconds of a process that imports it; the first time from a disk that may be cold. `None`: it is not there."""
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", f"import {library}"], capture_output=True, check=False)
    return None if done.returncode else round(time.monotonic() - began, 2)


def gpus() -> list[str]:
    """As nvidia-smi has them; none without a driver."""
    command = ["nvidia-smi", f"--query-gpu={FIELDS}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    except OSError:  # not there, or not to be started
        return []


def memory(field: str) -> int:
    """MiB of the host, by /proc/meminfo."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1]) // 1024


def about() -> dict[str, Any]:
    """All of it."""
    return {
        "gpus": dict(zip(FIELDS.split(","), gpus()[0].split(", "), strict=True)) if gpus() else None,
        "count": len(gpus()),
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in PACKAGES.split()},
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": memory("MemTotal"),
        "memory_available_mib": memory("MemAvailable"),
        "first_import_s": {library: import_s(library) for library in ("torch", "cupy", "jax")},
        "second_import_s": {library: import_s(library) for library in ("torch", "cupy", "jax")},
        "variables": {
            name: value for name, value in os.environ.items() if name.startswith(("CUDA_V", "PYTORCH", "XLA"))
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(about()) + "\n")
