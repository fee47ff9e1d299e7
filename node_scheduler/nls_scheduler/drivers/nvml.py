"""Real Gpus, through NVIDIA's management library. The only module that imports `pynvml` (package nvidia-ml-py)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from nls_scheduler.guardian import read_stat
from nls_scheduler.model import GpuUuid, ProcessId
from nls_scheduler.ports import GpuInfo, GpuSample

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")
log = logging.getLogger(__name__)

_LOST: Final = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND)
_WHY: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "There is no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found): install one, or, in a container, "
        "start it with access to the GPUs."
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "The NVIDIA driver is installed but not loaded: `modprobe nvidia`, or restart the machine."
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "The NVIDIA driver's library and kernel module have different versions: restart the machine."
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "This user may not talk to the NVIDIA driver: check the rights of /dev/nvidia*.",
}


class NvmlDriver:
    """The node's Gpus and MIG slices; implements `nls_scheduler.ports.Driver` for the daemon.

    A field that the driver does not give is `None`; a Gpu that has fallen off the bus is missing from the sample.
    """

    simulated = False

    def __init__(self) -> None:
        """Nothing is opened yet: a machine without a driver is found out by `discover`."""
        self._initialised = False
        self._handles: dict[GpuUuid, Any] = {}
        self._start_times: dict[int, int] = {}
        self._why_none: str | None = None

    def discover(self) -> Sequence[GpuInfo]:
        """All Gpus by UUID; MIG slices stand in the place of the Gpu that is cut into them."""
        self._handles = {}
        found: list[GpuInfo] = []
        try:
            if not self._initialised:
                pynvml.nvmlInit()
                self._initialised = True
            for handle in _devices():
                info = _info(handle, len(found))
                if info is not None:
                    self._handles[info.uuid] = handle
                    found.append(info)
        except pynvml.NVMLError as error:
            self._why_none = _WHY.get(error.value, f"The NVIDIA driver does not work: {error}.")
            self.close()
            return ()
        self._why_none = None if found else "The NVIDIA driver works, but shows no GPU: check `nvidia-smi -L`."
        return tuple(found)

    def why_none(self) -> str | None:
        """The last discovery's reason for finding nothing."""
        return self._why_none

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Memory, processes and utilisation of the discovered Gpus, field by field."""
        seen: dict[int, int] = {}
        samples = {}
        for uuid, handle in self._handles.items():
            try:
                samples[uuid] = self._sample(handle, seen)
            except pynvml.NVMLError as error:
                log.warning("%s has vanished: %s", uuid, error)
        self._start_times = seen
        return samples

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """CUDA's own mask; by UUID it holds whatever order CUDA or the driver count in."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def close(self) -> None:
        """Give the library back. Idempotent."""
        self._handles = {}
        if self._initialised:
            self._initialised = False
            _field(pynvml.nvmlShutdown)

    def _sample(self, handle: Any, seen: dict[int, int]) -> GpuSample:
        memory = _memory(handle)
        processes = self._processes(handle, seen)
        rates = _field(pynvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuSample(
            # Used memory that nobody can be found for must not look like memory that nobody uses.
            memory_used_bytes=None if memory is None or processes is None else memory[1],
            processes=processes or {},
            utilisation=None if rates is None else rates.gpu / 100,
        )

    def _processes(self, handle: Any, seen: dict[int, int]) -> dict[ProcessId, int | None] | None:
        compute = _field(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if compute is None:
            return None
        graphics = _field(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or []
        processes: dict[ProcessId, int | None] = {}
        for entry in (*compute, *graphics):
            stat = read_stat(entry.pid)
            # What has just ended may still be listed; it is the same process as before. 0: it cannot be seen from here.
            start_time = stat[1] if stat is not None else self._start_times.get(entry.pid, 0)
            seen[entry.pid] = start_time
            process, size = ProcessId(entry.pid, start_time), entry.usedGpuMemory
            # A process that computes and draws is in both lists with the same total.
            if process not in processes or processes[process] is None:
                processes[process] = size
        return processes


def _devices() -> Iterator[Any]:
    """Handles of all Gpus, those in MIG mode replaced by their slices."""
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _field(pynvml.nvmlDeviceGetHandleByIndex, index, missing=True)
        if handle is None:
            continue
        mode = _field(pynvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            yield handle
            continue
        for slot in range(_field(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = _field(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot, missing=True)
            if part is not None:
                yield part


def _info(handle: Any, index: int) -> GpuInfo | None:
    """A Gpu without a UUID or a size cannot be scheduled; the log says so."""
    uuid = _field(pynvml.nvmlDeviceGetUUID, handle, missing=True)
    memory = _field(_memory, handle, missing=True)
    if uuid is None or memory is None:
        log.warning("GPU %d gives no UUID or no memory size and is left out", index)
        return None
    name = _field(pynvml.nvmlDeviceGetName, handle, missing=True)
    return GpuInfo(GpuUuid(uuid), index, name or "NVIDIA GPU", memory[0])


def _memory(handle: Any) -> tuple[int, int] | None:
    """Bytes that can be handed out, and bytes in use; neither counts what the driver reserves where it says that."""
    exact = _field(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if exact is not None:
        return exact.total - exact.reserved, exact.used
    rough = _field(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if rough is None else (rough.total, rough.used)


def _field(ask: Callable[..., T], *arguments: Any, missing: bool = False) -> T | None:
    """What the driver answers, or `None` where it does not. Raises NVMLError for a lost Gpu unless `missing`."""
    try:
        return ask(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _LOST and not missing:
            raise
        log.debug("the driver did not say: %s", error)
        return None
