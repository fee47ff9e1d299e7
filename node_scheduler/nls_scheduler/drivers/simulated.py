"""Simulated Gpus: memory per process, out of memory and release on exit, without any hardware.

The daemon uses `SimulatedDriver`; a process on a simulated Gpu uses `SimulatedGpu`. Both meet in the ledger.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.topology import Link
from nls_scheduler.daemon.ports import GpuInfo, GpuSample
from nls_scheduler.drivers.selection import Selection
from nls_scheduler.drivers.simulated_memory import (
    SIMULATION_VARIABLE,
    GpuLedger,
    SimulatedGpuLost,
    SimulatedGpuSpec,
    SimulatedOutOfMemory,
    current_process,
    open_simulation,
    read_simulation,
    remove_simulation,
    remove_unused_simulation,
    write_simulation,
)
from nls_scheduler.drivers.topology_file import MOST_GPUS, read_topology
from nls_scheduler.processes.whose_files import make_private
from nls_scheduler.units.sizes import format_bytes, parse_bytes
from nls_scheduler.wire.protocol import VISIBLE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.core.model.ids import ProcessId

__all__ = [
    "SIMULATION_VARIABLE",
    "SimulatedDriver",
    "SimulatedGpu",
    "SimulatedGpuLost",
    "SimulatedOutOfMemory",
    "SimulationSpec",
]

log = logging.getLogger(__name__)

_SPEC = re.compile(r"^\s*(\d+)\s*[x×]\s*(\S.*?)\s*$")
_GPUS_PER_NUMA_NODE = 4


@dataclass(frozen=True, slots=True)
class SimulationSpec:
    """How many Gpus to simulate, and how much memory each of them has.

    `described`: what a topology file says of each of them; without one they get UUIDs of the simulation's own.
    """

    count: int
    memory_bytes: int
    described: tuple[SimulatedGpuSpec, ...] = ()

    @classmethod
    def parse(cls, text: str) -> SimulationSpec:
        """`2x16GiB`: count x size; or the path of a topology file. Raises ValueError with one sentence for the user."""
        match = _SPEC.match(text)
        if match is None and ("/" in text or text.endswith((".yml", ".yaml", ".json"))):
            described = read_topology(Path(text))
            return cls(len(described), described[0].memory_total_bytes, described)
        if match is None:
            raise ValueError(
                f"{text!r} does not describe simulated GPUs: write COUNTxSIZE, for example 2x16GiB, or the path of a "
                "topology file."
            )
        count, memory_bytes = int(match[1]), parse_bytes(match[2])
        if not 1 <= count <= MOST_GPUS:
            raise ValueError(f"Cannot simulate {count} GPUs: choose 1 to {MOST_GPUS}.")
        return cls(count, memory_bytes)


class SimulatedDriver:
    """The node's Gpus as a ledger in a directory; implements `nls_scheduler.daemon.ports.Driver` for the daemon.

    The same directory gives the same UUIDs again, so a restarted daemon finds the processes of the one before.
    """

    simulated = True

    def __init__(
        self,
        directory: Path,
        spec: SimulationSpec,
        context_memory_bytes: int,
        selection: Selection | None = None,
        *,
        for_everybody: bool = False,
    ) -> None:
        """Make or take over the simulation in `directory`: of this user's processes only, or `for_everybody`.

        In the latter case each user's processes can also write that others hold memory: it is for trying things out.
        Raises ValueError when the context does not fit, or when living processes use a different simulation there.
        """
        if not 0 <= context_memory_bytes < spec.memory_bytes:
            raise ValueError(
                f"A CUDA context of {format_bytes(context_memory_bytes)} does not fit on a simulated GPU of "
                f"{format_bytes(spec.memory_bytes)}: choose a smaller --context-memory."
            )
        self._selection = selection or Selection()
        self._directory = directory.absolute()
        make_private(self._directory)
        gpus = spec.described or tuple(
            SimulatedGpuSpec(_uuid(self._directory, index), "Simulated GPU", spec.memory_bytes)
            for index in range(spec.count)
        )
        self.context_memory_bytes = context_memory_bytes
        self._ledgers = tuple(GpuLedger(self._directory, gpu, context_memory_bytes) for gpu in gpus)
        self._take_over(context_memory_bytes)
        for ledger in self._ledgers:
            ledger.create()
        write_simulation(self._directory, gpus, context_memory_bytes)
        if for_everybody:
            open_simulation(self._directory, self._ledgers)
        self._closed = False

    def _take_over(self, context_memory_bytes: int) -> None:
        before = read_simulation(self._directory)
        if before is None:
            return
        same = [ledger.gpu for ledger in before] == [ledger.gpu for ledger in self._ledgers] and all(
            ledger.context_memory_bytes == context_memory_bytes for ledger in before
        )
        if same:
            return
        holders = sorted({process.pid for ledger in before for process in _holders(ledger) or ()})
        if holders:
            raise ValueError(
                f"{self._directory} holds another simulation that living processes use (pid "
                f"{', '.join(map(str, holders))}): simulate the same GPUs again, or end them first."
            )
        remove_simulation(self._directory, before)
        self._directory.mkdir(mode=0o700, exist_ok=True)

    def discover(self) -> Sequence[GpuInfo]:
        """The selected simulated Gpus whose ledgers are there."""
        return self._selection.of(self._there())

    def _there(self) -> Sequence[GpuInfo]:
        return tuple(
            GpuInfo(
                ledger.gpu.uuid,
                index,
                ledger.gpu.name,
                ledger.gpu.memory_total_bytes,
                numa_node=index // _GPUS_PER_NUMA_NODE,
                links=self._links(index),
            )
            for index, ledger in enumerate(self._ledgers)
            if ledger.path.exists()
        )

    def _links(self, index: int) -> dict[GpuUuid, Link]:
        """NVLink within pairs, a PCIe switch for each four, which are a NUMA node as well."""
        return {
            ledger.gpu.uuid: Link.NVLINK if other // 2 == index // 2 else Link.SWITCH
            for other, ledger in enumerate(self._ledgers)
            if other != index and other // _GPUS_PER_NUMA_NODE == index // _GPUS_PER_NUMA_NODE
        }

    def left_out(self) -> frozenset[GpuUuid]:
        """Those whose ledgers are there, and which are not selected."""
        there = self._there()
        return frozenset(gpu.uuid for gpu in there).difference(gpu.uuid for gpu in self._selection.of(there))

    def trouble(self) -> str | None:
        """A simulation has all of its Gpus unless somebody removed the ledgers or selected others."""
        gone = f"The simulated GPUs' ledgers in {self._directory} are gone: start the daemon again."
        return self._selection.unmet(there) if (there := self._there()) else gone

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Memory of the live processes, CUDA contexts included."""
        samples = {}
        selected = {gpu.uuid for gpu in self.discover()}
        for ledger in self._ledgers:
            processes = _holders(ledger) if ledger.gpu.uuid in selected else None
            if processes is not None:
                samples[ledger.gpu.uuid] = GpuSample(sum(processes.values()), dict(processes))
        return samples

    def health(self) -> Mapping[GpuUuid, str]:
        """What the files `unhealthy-UUID` in the simulation's directory say: a test's way to break a Gpu."""
        reasons = {}
        for ledger in self._ledgers:
            try:
                reasons[ledger.gpu.uuid] = self._fault(ledger.gpu.uuid).read_text(encoding="utf-8").strip()
            except FileNotFoundError:
                continue
        return reasons

    def return_to_service(self, gpu: GpuUuid) -> None:
        """Mend it."""
        self._fault(gpu).unlink(missing_ok=True)

    def limits_supported(self) -> bool:
        """A ledger knows no cgroups."""
        return False

    def limit_memory(self, gpu: GpuUuid, cgroup: Path, request_bytes: int, limit_bytes: int | None) -> None:
        """Raises OSError."""
        del request_bytes, limit_bytes
        raise OSError(errno.ENOTSUP, f"a simulated GPU does not limit {cgroup} on {gpu}")

    def _fault(self, gpu: GpuUuid) -> Path:
        return self._directory / f"unhealthy-{gpu}"

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """Masks a process to `gpus` and leads it to the ledger."""
        return {VISIBLE_VARIABLE: ",".join(gpus), SIMULATION_VARIABLE: str(self._directory)}

    def close(self, *, in_use: bool = False) -> None:
        """Remove the simulation's files unless it is `in_use`, or living processes are in them. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for ledger in self._ledgers:
            self.return_to_service(ledger.gpu.uuid)
        if not in_use:
            remove_unused_simulation(self._directory, self._ledgers)


def _uuid(directory: Path, index: int) -> GpuUuid:
    """Stable for a directory, and different for two simulations on one machine."""
    where = hashlib.sha256(os.fsencode(directory)).hexdigest()
    return GpuUuid(f"GPU-51000000-{where[:4]}-{where[4:8]}-{where[8:12]}-{index:012x}")


def _holders(ledger: GpuLedger) -> Mapping[ProcessId, int] | None:
    try:
        return ledger.holders()
    except SimulatedGpuLost:
        return None


class SimulatedGpu:
    """A simulated Gpu as a process on it sees it: thread-safe, and after a fork the child counts as its own process.

    Memory belongs to the process that allocated it: a forked child can neither use nor free its parent's.
    """

    def __init__(self, ledger: GpuLedger) -> None:
        self._ledger = ledger

    @classmethod
    def visible(cls, environ: Mapping[str, str]) -> tuple[SimulatedGpu, ...] | None:
        """The Gpus that `CUDA_VISIBLE_DEVICES` shows, in its order, or `None` outside a simulation.

        As in CUDA, an unset variable shows all, and an unknown entry hides itself and those behind it. Raises
        `SimulatedGpuLost` when the simulation is no more.
        """
        if not environ.get(SIMULATION_VARIABLE):
            return None
        directory = Path(environ[SIMULATION_VARIABLE])
        ledgers = read_simulation(directory)
        if ledgers is None:
            raise SimulatedGpuLost(f"No simulated GPUs in {directory}: the daemon that simulated them has ended.")
        mask = environ.get(VISIBLE_VARIABLE)
        if mask is None:
            return tuple(cls(ledger) for ledger in ledgers)
        by_name = {str(index): ledger for index, ledger in enumerate(ledgers)}
        by_name |= {ledger.gpu.uuid: ledger for ledger in ledgers}
        shown = []
        for entry in mask.split(","):
            ledger = by_name.get(entry.strip())
            if ledger is None:
                break
            shown.append(cls(ledger))
        return tuple(shown)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SimulatedGpu | None:
        """The process's first visible Gpu; `None` outside a simulation, or when no Gpu is visible."""
        gpus = cls.visible(environ)
        return gpus[0] if gpus else None

    @property
    def uuid(self) -> GpuUuid:
        """The Gpu's UUID."""
        return self._ledger.gpu.uuid

    @property
    def name(self) -> str:
        """The Gpu's product name."""
        return self._ledger.gpu.name

    @property
    def process(self) -> ProcessId:
        """The calling process: what is allocated now belongs to it."""
        return current_process()

    def attach(self) -> None:
        """Create the CUDA context if this process has none here yet. Raises `SimulatedOutOfMemory`."""
        self._ledger.allocate(0)

    def allocate(self, size_bytes: int) -> None:
        """Take memory, and the context with the first of it, or raise `SimulatedOutOfMemory` and take nothing."""
        if size_bytes < 0:
            raise ValueError(f"Cannot allocate {size_bytes} bytes.")
        self._ledger.allocate(size_bytes)

    def free(self, size_bytes: int) -> None:
        """Give memory back; the context stays until the process ends. Raises ValueError for more than it has."""
        self._ledger.free(size_bytes)

    def free_deferred(self, size_bytes: int) -> None:
        """`free` for `__del__` and finalizers: never blocks and never raises for a Gpu that is gone."""
        self._ledger.free_deferred(size_bytes)

    def settle(self) -> None:
        """Return when what was freed so is free: now and then another thread has yet to do it."""
        self._ledger.settle()

    def used_bytes(self) -> int:
        """What this process holds here, context included."""
        return self._ledger.own().held_bytes

    def allocated_bytes(self) -> int:
        """What this process allocated here, without its context."""
        return self._ledger.own().allocated_bytes

    def allowance_bytes(self) -> int | None:
        """This process's cap, or `None`."""
        return self._ledger.own().allowance_bytes

    def set_allowance(self, allowance_bytes: int | None) -> None:
        """Cap this process here, context included; memory it already holds beyond stays. `None` lifts the cap."""
        self._ledger.set_allowance(allowance_bytes)

    def others(self) -> Mapping[ProcessId, int]:
        """What every other live process holds here, context included."""
        own = current_process()
        return {process: held for process, held in self._ledger.holders().items() if process != own}

    def memory_info(self) -> tuple[int, int]:
        """Free and total bytes of the Gpu, whoever uses it."""
        total_bytes = self._ledger.gpu.memory_total_bytes
        return max(0, total_bytes - sum(self._ledger.holders().values())), total_bytes
