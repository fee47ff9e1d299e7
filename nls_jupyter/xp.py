"""`from nls_jupyter import xp`: CuPy on a real GPU, a small stand-in on a simulated one.

Which of the two is decided when a name is first used, by the environment that the scheduler gave the process.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_NO_GPU_PROCESS = "xp works in the GPU process: start the cell with %%gpu, or the command with `nls run`."


class NoGpuProcessError(RuntimeError, AttributeError):
    """There is no GPU here. An AttributeError too: pickle asks every module for names, and must get on without us."""


def _masked_by_scheduler() -> bool:
    # The scheduler always masks by UUID; indices are somebody else's, such as a container's.
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-"))


def _backend() -> ModuleType:
    if os.environ.get("NLS_SIMULATION"):
        return _load("nls_jupyter.simulated_cupy", "numpy", "The simulated xp needs NumPy: pip install numpy")
    if os.environ.get("NLS_GPU_PROCESS") == "1" or _masked_by_scheduler():
        how = (
            "xp is CuPy on a real GPU, and CuPy is not installed: pip install 'nls-jupyter[cuda12]' or, "
            "with a CUDA 13 driver, 'nls-jupyter[cuda13]'."
        )
        return _load("cupy", "cupy", how)
    raise NoGpuProcessError(_NO_GPU_PROCESS)


def _load(module: str, needed: str, how: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != needed:
            raise
        raise ImportError(how) from error


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what Python itself asks of every module
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_backend(), name)


def __dir__() -> list[str]:
    try:
        return dir(_backend())
    except (RuntimeError, ImportError):  # completion in a process without a GPU has nothing to offer
        return []
