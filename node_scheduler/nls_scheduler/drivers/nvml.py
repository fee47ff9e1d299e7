"""Real Gpus, through NVIDIA's management library (package nvidia-ml-py, module `pynvml`)."""

from __future__ import annotations

import errno
import logging
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pynvml

from nls_scheduler.core.model.ids import GpuUuid, ProcessId
from nls_scheduler.daemon.ports import GpuInfo, GpuSample
from nls_scheduler.drivers.nvml_fields import devices, field, is_shareable, memory_of, name_of, why
from nls_scheduler.drivers.nvml_topology import connections, numa_node
from nls_scheduler.drivers.pids import HostPids
from nls_scheduler.drivers.selection import Numbers, Selection
from nls_scheduler.drivers.xids import verdict
from nls_scheduler.processes.cgroups import cgroup_of
from nls_scheduler.processes.guardian import read_stat
from nls_scheduler.processes.proc import alive
from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")
log = logging.getLogger(__name__)

LIST_INTERVAL_S: Final = 2.0
"""A process list takes milliseconds under a lock of the whole driver: without any sign of a change, no oftener."""
_MOST_EVENTS: Final = 100
_WHOLE_GPU: Final = 0xFFFFFFFF
_WITHOUT_MEMORY: Final = "a GPU without memory of its own (DGX Spark, Jetson) cannot be shared"


@dataclass(frozen=True, slots=True)
class _Part:
    """A discovered Gpu or MIG slice.

    Attributes:
        handle: NVML's.
        gpu: UUID of the whole Gpu: Xids name that.
        instance: of a slice, its number on its Gpu.
    """

    handle: Any
    gpu: GpuUuid
    instance: int | None


@dataclass(frozen=True, slots=True)
class _Listed:
    """A process list and what was true when it was taken."""

    processes: Mapping[ProcessId, int | None]
    living: tuple[ProcessId, ...]
    used_bytes: int | None
    at: float


class NvmlDriver:
    """The node's Gpus and MIG slices; implements `nls_scheduler.daemon.ports.Driver` for the daemon.

    A field that the driver does not give is `None`; a Gpu that has fallen off the bus is missing from the sample.
    """

    simulated = False
    # 518 MiB on an H100 with driver 580, before any library (benchmarks/results); less on smaller Gpus.
    context_memory_bytes = 520 * 2**20

    def __init__(self, selection: Selection | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is opened yet: a machine without a driver is found out by `discover`. `clock` counts seconds."""
        self._selection = selection or Selection()
        self._numbers = Numbers()
        self._clock = clock
        self._pids = HostPids.from_environment(os.environ)
        self._initialised = False
        self._parts: dict[GpuUuid, _Part] = {}
        self._left_out: frozenset[GpuUuid] = frozenset()
        self._listed: dict[GpuUuid, _Listed] = {}
        self._start_times: dict[int, int] = {}
        self._xids = _XidWatch()
        self._unhealthy: dict[GpuUuid, str] = {}
        self._trouble: str | None = None

    def discover(self) -> Sequence[GpuInfo]:
        """All selected Gpus by UUID; MIG slices stand in the place of the Gpu that is cut into them.

        NVML counts anew when a Gpu has gone; here each keeps the index under which it was first seen.
        """
        found: list[GpuInfo] = []
        unsized: list[str] = []
        parts: dict[GpuUuid, _Part] = {}
        try:
            if not self._initialised:
                pynvml.nvmlInit()
                self._initialised = True
            for position, (handle, whole) in enumerate(devices()):
                info = None if handle is None else _info(handle, whole, position)
                if info is not None and info.uuid in parts:
                    log.warning("GPU %d has the UUID of another one, %s, and is left out", position, info.uuid)
                elif info is not None:
                    instance = None if info.parent is None else field(pynvml.nvmlDeviceGetGpuInstanceId, handle)
                    parts[info.uuid] = _Part(handle, info.parent or info.uuid, instance)
                    found.append(info)
                elif handle is not None:
                    unsized.append(f"GPU {position} ({name_of(handle)})")
            found = _connected(self._numbers.of(found), parts)
        except pynvml.NVMLError as error:
            self._trouble = why(error)
            self.close()
            return ()
        return self._select(found, parts, unsized)

    def _select(
        self, found: Sequence[GpuInfo], parts: Mapping[GpuUuid, _Part], unsized: Sequence[str]
    ) -> Sequence[GpuInfo]:
        self._selection = self._selection.pinned(found)
        selected = self._selection.of(found)
        self._parts = {info.uuid: parts[info.uuid] for info in selected}
        self._left_out = frozenset(parts.keys() - self._parts.keys())
        self._listed = {uuid: listed for uuid, listed in self._listed.items() if uuid in self._parts}
        self._xids.watch(self._parts.values())
        none = "The NVIDIA driver works, but shows no GPU: check `nvidia-smi -L`."
        if unsized:
            none = f"The NVIDIA driver tells no memory of {' and '.join(unsized)}: {_WITHOUT_MEMORY}."
        self._trouble = (self._selection.unmet(found) or self._unshareable(selected)) if found else none
        return selected

    def _unshareable(self, selected: Sequence[GpuInfo]) -> str | None:
        """One sentence where the compute mode of some Gpus keeps a second process out, else `None`."""
        indexes = [str(info.index) for info in selected if not is_shareable(self._parts[info.uuid].handle)]
        if not indexes:
            return None
        return (
            f"The compute mode of GPU {' and GPU '.join(indexes)} keeps a second process out that does not come "
            f"through MPS: `nvidia-smi -i {','.join(indexes)} -c DEFAULT`, as root, lets several in."
        )

    def left_out(self) -> frozenset[GpuUuid]:
        """Those that the driver shows, and that are not selected."""
        return self._left_out

    def trouble(self) -> str | None:
        """The last discovery's reason for not finding all."""
        return self._trouble

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Memory, processes and utilisation of the discovered Gpus, field by field."""
        samples = {}
        for uuid, part in self._parts.items():
            try:
                samples[uuid] = self._sample(uuid, part.handle)
            except pynvml.NVMLError as error:
                log.warning("%s has vanished: %s", uuid, error)
                self._listed.pop(uuid, None)
        listed = {process for one in self._listed.values() for process in one.processes}
        self._start_times = {process.pid: process.start_time for process in listed}
        return samples

    def use_by_process(self) -> Mapping[ProcessId, float]:
        """Which part of the time processes kept a Gpu's multiprocessors busy of late; those that the driver names."""
        use: dict[ProcessId, float] = {}
        for part in self._parts.values():
            for entry in field(pynvml.nvmlDeviceGetProcessUtilization, part.handle, 0, missing=True) or ():
                process = self._identity(entry.pid)
                use[process] = max(use.get(process, 0.0), entry.smUtil / 100)
        return use

    def health(self) -> Mapping[GpuUuid, str]:
        """Gpus with Xids that are no application's own error, since the start or their return to service."""
        for gpu, instance, xid in self._xids.reported():
            hit = [uuid for uuid, part in self._parts.items() if _is_hit(part, gpu, instance)]
            why = verdict(xid)
            log.log(logging.INFO if why is None else logging.ERROR, "Xid %d on %s", xid, ", ".join(hit) or gpu)
            if why is not None:
                self._unhealthy |= dict.fromkeys(hit, why)
        return {uuid: why for uuid, why in self._unhealthy.items() if uuid in self._parts}

    def return_to_service(self, gpu: GpuUuid) -> None:
        """Forget the Gpu's Xids."""
        self._unhealthy.pop(gpu, None)

    def limits_supported(self) -> bool:
        """Whether driver (r615 and newer), nvidia-ml-py, cgroup v2 and our rights are all there."""
        ask = getattr(pynvml, "nvmlDeviceGetMemoryLimits_v1", None)
        whole = next((part.handle for part in self._parts.values() if part.instance is None), None)
        cgroup = cgroup_of(os.getpid())
        if ask is None or whole is None or cgroup is None:
            return False
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
        limits.nameSpace = os.fsencode(cgroup)
        return field(lambda: ask(whole, limits) or True, missing=True) is not None

    def limit_memory(self, gpu: GpuUuid, cgroup: Path, request_bytes: int, limit_bytes: int | None) -> None:
        """Set the cgroup's soft limit (guaranteed) and hard limit (cap). Raises OSError; see `limits_supported`."""
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace = os.fsencode(cgroup)
        limits.softLimit = 0 if limit_bytes is None else request_bytes
        limits.hardLimit = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX if limit_bytes is None else limit_bytes
        try:
            pynvml.nvmlDeviceSetMemoryLimits_v1(self._parts[gpu].handle, limits)
        except pynvml.NVMLError as error:
            raise OSError(errno.ENOTSUP, f"the NVIDIA driver does not limit {cgroup} on {gpu}: {error}") from error

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """CUDA's own mask; by UUID it holds whatever order CUDA or the driver count in."""
        return {VISIBLE_VARIABLE: ",".join(gpus), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def close(self, *, in_use: bool = False) -> None:
        """Give the library back, which nobody else uses. Idempotent."""
        del in_use
        self._parts, self._listed = {}, {}
        self._xids.close()
        if self._initialised:
            self._initialised = False
            field(pynvml.nvmlShutdown)

    def _sample(self, uuid: GpuUuid, handle: Any) -> GpuSample:
        memory = memory_of(handle)
        used_bytes = None if memory is None else memory[1]
        rates = field(pynvml.nvmlDeviceGetUtilizationRates, handle)
        return GpuSample(
            memory_used_bytes=used_bytes,
            processes=self._processes(uuid, handle, used_bytes),
            utilisation=None if rates is None else rates.gpu / 100,
        )

    def _processes(self, uuid: GpuUuid, handle: Any, used_bytes: int | None) -> Mapping[ProcessId, int | None] | None:
        """The list as of now, or the last one where nothing speaks for a change."""
        last, now = self._listed.get(uuid), self._clock()
        if last is not None and used_bytes is not None and last.used_bytes == used_bytes:
            fresh = now - last.at < LIST_INTERVAL_S
            # One that was ending may have been listed although its memory was free already.
            if fresh and all(alive(process) for process in last.living):
                return last.processes
        processes = self._list(handle)
        if processes is None:
            self._listed.pop(uuid, None)
            return None
        self._listed[uuid] = _Listed(processes, tuple(p for p in processes if alive(p)), used_bytes, now)
        return processes

    def _list(self, handle: Any) -> dict[ProcessId, int | None] | None:
        compute = field(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if compute is None:
            return None
        graphics = field(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or []
        processes: dict[ProcessId, int | None] = {}
        for entry in (*compute, *graphics):
            process, size = self._identity(entry.pid), entry.usedGpuMemory
            # A process that computes and draws is in both lists with the same total.
            if process not in processes or processes[process] is None:
                processes[process] = size
        return processes

    def _identity(self, host_pid: int) -> ProcessId:
        pid = self._pids.local(host_pid)
        if pid is None:
            return ProcessId(host_pid, 0)
        stat = read_stat(pid)
        # What has just ended may still be listed; it is the same process as before. 0: it cannot be seen from here.
        return ProcessId(pid, stat[1] if stat is not None else self._start_times.get(pid, 0))


class _XidWatch:
    """The driver's queue of Xids, asked without waiting, in the same thread as everything else."""

    def __init__(self) -> None:
        self._queue: Any = None
        self._watched: set[GpuUuid] = set()

    def watch(self, parts: Iterable[_Part]) -> None:
        """Listen to the whole Gpus behind `parts`; one that cannot be listened to is said so once."""
        gpus = {part.gpu for part in parts}
        for uuid in sorted(gpus - self._watched):
            try:
                handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                if self._queue is None:
                    self._queue = pynvml.nvmlEventSetCreate()
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._queue)
            except pynvml.NVMLError as error:
                log.warning("%s does not tell Xids (%s): its health is known from its memory only", uuid, error)
        self._watched = gpus

    def reported(self) -> Iterator[tuple[GpuUuid | None, int, int]]:
        """Gpu (`None`: the driver does not say which), its MIG instance, and Xid of what has happened since."""
        for _ in range(_MOST_EVENTS if self._queue is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._queue, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    log.warning("the driver's events cannot be read: %s", error)
                return
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                uuid = field(pynvml.nvmlDeviceGetUUID, event.device, missing=True)
                yield None if uuid is None else GpuUuid(uuid), event.gpuInstanceId, event.eventData

    def close(self) -> None:
        """Idempotent."""
        if self._queue is not None:
            field(pynvml.nvmlEventSetFree, self._queue, missing=True)
        self._queue, self._watched = None, set()


def _is_hit(part: _Part, gpu: GpuUuid | None, instance: int) -> bool:
    if gpu is not None and gpu != part.gpu:
        return False
    return part.instance is None or instance in (_WHOLE_GPU, part.instance)


def _info(handle: Any, whole: Any, position: int) -> GpuInfo | None:
    """A Gpu without a UUID or a size cannot be scheduled; the log says so."""
    uuid = field(pynvml.nvmlDeviceGetUUID, handle, missing=True)
    memory = field(memory_of, handle, missing=True)
    if uuid is None or memory is None or memory[0] <= 0:
        log.warning("GPU %d gives no UUID or no memory size and is left out", position)
        return None
    parent = None if whole is None else field(pynvml.nvmlDeviceGetUUID, whole, missing=True)
    return GpuInfo(GpuUuid(uuid), position, name_of(handle), memory[0], None if parent is None else GpuUuid(parent))


def _connected(found: Sequence[GpuInfo], parts: Mapping[GpuUuid, _Part]) -> list[GpuInfo]:
    """`found` with how they are connected; a slice is next to the memory that its whole Gpu is next to."""
    whole = {info.uuid: parts[info.uuid].handle for info in found if info.parent is None}
    links = connections(whole, field)
    nodes: dict[GpuUuid, int | None] = {}
    for info in found:
        gpu = info.parent or info.uuid
        if gpu not in nodes:
            handle = whole.get(gpu) or field(pynvml.nvmlDeviceGetHandleByUUID, gpu, missing=True)
            nodes[gpu] = None if handle is None else numa_node(handle, field)
    return [replace(i, numa_node=nodes[i.parent or i.uuid], links=links.get(i.uuid, {})) for i in found]
