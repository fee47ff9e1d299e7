"""Freezing of processes by NVIDIA's driver, through `cuda.core.checkpoint`.

Names and behaviour are those of cuda-core 1.2.2 with cuda-bindings 13.5.0, read in their sources. It needs a driver of
CUDA 12.8 (570) or newer, and restores in place only: it is never given a map of Gpus. A process that is masked to some
Gpus cannot be given one, as a map has to name every Gpu that the kernel's driver knows.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.drivers.checkpoint_trial import known, why_it_fails
from nls_scheduler.drivers.checkpoints import CheckpointFailed, ProcessEnded, State
from nls_scheduler.processes.proc import descendants_of, look_up, variable_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.ids import ProcessId

OLDEST: Final = 12080
"""CUDA 12.8, as `cuDriverGetVersion` counts, which is the driver 570: the first that suspends and resumes in place."""
OLDEST_DRIVER: Final = 570
_DEVICE: Final = re.compile(r"/dev/nvidia\d+")
_MPS_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
_MPS_DEFAULT: Final = "/tmp/nvidia-mps"  # noqa: S108 - where NVIDIA's daemon is unless somebody says otherwise
# cuda-core says this of whatever the driver calls not supported, and most of that has nothing to do with its age.
_MISLEADS: Final = "not supported by the installed"


class CudaCheckpoints:
    """Implements `Checkpoints` for processes in this one's PID namespace, of the same user."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._process: Callable[[int], Any] | None = None

    def refusal(self, process: ProcessId | None) -> str | None:
        """See `Checkpoints`. Managed memory and handles of other processes' memory only the driver knows of."""
        try:
            self._loaded()
        except CheckpointFailed as error:
            return str(error)
        if process is None:
            return why_it_fails(self)
        if under_mps(variable_of(process.pid, _MPS_VARIABLE)):
            return "its GPU is shared by MPS"
        if (variable_of(process.pid, "CUDA_VISIBLE_DEVICES") or "").startswith("MIG-"):
            return "it runs on a slice of a GPU (MIG)"
        others = [pid for pid in descendants_of(process) if self._uses_a_gpu(pid)]
        return f"process {others[0]}, which it started, uses the GPU as well" if others else None

    def _uses_a_gpu(self, pid: int) -> bool:
        try:
            links = [str(entry.readlink()) for entry in (self._proc / str(pid) / "fd").iterdir()]
        except OSError:  # it has ended, or closed one just now
            return False
        return any(_DEVICE.fullmatch(link) for link in links)

    def state(self, process: ProcessId) -> State:
        """See `Checkpoints`. Raises CheckpointFailed also for states that cuda-core has no name for."""
        return State(self._call(process, lambda known: known.state))

    def lock(self, process: ProcessId, timeout_s: float) -> None:
        """See `Checkpoints`. To the driver 0 is no time-out at all."""
        self._call(process, lambda known: known.lock(timeout_ms=max(1, int(timeout_s * 1000))))

    def checkpoint(self, process: ProcessId) -> int | None:
        """See `Checkpoints`. The driver does not say how much it was."""
        self._call(process, lambda known: known.checkpoint())
        return None

    def restore(self, process: ProcessId) -> None:
        """See `Checkpoints`."""
        self._call(process, lambda known: known.restore())

    def unlock(self, process: ProcessId) -> None:
        """See `Checkpoints`."""
        self._call(process, lambda known: known.unlock())

    def _call(self, process: ProcessId, step: Callable[[Any], Any]) -> Any:
        record = look_up(process.pid)
        if record is None or record.id != process:
            raise ProcessEnded("the process has ended")
        kind = self._loaded()
        try:
            return step(kind(process.pid))
        except Exception as error:  # cuda-core raises RuntimeError and classes of its own that are no part of its API
            raise CheckpointFailed(_clause(error)) from error

    def _loaded(self) -> Callable[[int], Any]:
        """The library, with CUDA initialised here: without, a step can end the process that it is for.

        (NVIDIA/cuda-checkpoint, issue 25.)
        """
        if self._process is None:
            try:
                driver = importlib.import_module("cuda.bindings.driver")
                self._process = importlib.import_module("cuda.core.checkpoint").Process
            except ImportError as error:
                raise CheckpointFailed("cuda-core is not installed here, an extra of nls-jupyter") from error
            try:
                (status,) = driver.cuInit(0)
                _, version = driver.cuDriverGetVersion()
            except RuntimeError as error:  # there is no libcuda.so.1
                self._process = None
                raise CheckpointFailed(f"there is no CUDA driver: {error}") from error
            if int(status):
                self._process = None
                raise CheckpointFailed(f"CUDA cannot be initialised: {status.name}")
            if version < OLDEST:
                self._process = None
                raise CheckpointFailed("the GPU driver is older than 570")
        return self._process


def under_mps(folder: str | None) -> bool:
    """Whether a process with this CUDA_MPS_PIPE_DIRECTORY shares its Gpu by NVIDIA's MPS."""
    return Path(folder or _MPS_DEFAULT, "control").exists()


def why_none_can_be(driver_version: str | None, environ: Mapping[str, str]) -> str | None:
    """Why nothing can be frozen here, as a clause, as far as that shows without the driver's help; `None`: it may.

    `driver_version` is NVML's, `570.86.10`; `environ` what a GPU process would have.
    """
    if not _there("cuda.core") or not _there("cuda.bindings"):
        return "cuda-core is not installed in this environment"
    if driver_version is None:
        return "there is no NVIDIA driver"
    major = driver_version.partition(".")[0]
    if major.isdecimal() and int(major) < OLDEST_DRIVER:
        return f"driver {driver_version} is older than {OLDEST_DRIVER}"
    if under_mps(environ.get(_MPS_VARIABLE)):
        return "its GPUs are shared by MPS"
    result = known()
    return None if result is None else result.failed


def _there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _clause(error: Exception) -> str:
    text = " ".join(str(error).split())
    if _MISLEADS in text:
        return "the driver cannot freeze what this process uses (managed memory, for example)"
    return f"the driver says: {text[:300]}"
