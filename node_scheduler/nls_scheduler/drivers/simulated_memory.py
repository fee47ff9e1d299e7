"""Who holds how much of a simulated Gpu: one small file per Gpu that all processes of a user share, or of all users.

Every change happens under the file's `flock`, and a record is written with one `pwrite`, so a process killed at any
moment leaves whole records behind. A record of a process that is no more counts for nothing; its place is reused.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
import threading
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model.ids import GpuUuid, ProcessId
from nls_scheduler.drivers.checkpoints import State
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

SIMULATION_VARIABLE = "NLS_SIMULATION"
_SPEC_FILE = "simulation.json"
# pid, start time, bytes held (context included), allowance (-1: none), 1 once the context exists, bytes that are in
# host memory while it is frozen, and which of LOCK_STATES it is in.
_RECORD = struct.Struct("<qqqqqqq8x")
LOCK_STATES = (State.RUNNING, State.LOCKED, State.CHECKPOINTED)
_NO_ALLOWANCE = -1


class SimulatedGpuLost(RuntimeError):  # noqa: N818 - says what happened, as `GpuReclaimed` does
    """The simulated Gpu's ledger is gone, with its daemon or alone, or is out of this process's reach."""


class SimulatedOutOfMemory(MemoryError):  # noqa: N818 - says what happened, as `GpuReclaimed` does
    """An allocation went beyond the simulated Gpu or beyond the process's allowance.

    Attributes:
        requested_bytes: what was asked for.
        used_bytes: what the process holds on this Gpu, context included.
        allowance_bytes: the process's cap, context included; `None` without one.
        free_bytes: what nobody holds.
        total_bytes: the Gpu's capacity.
        others: bytes per other live process on the Gpu.
        context_bytes: what its CUDA context needs beside that; 0 where it has one.
    """

    def __init__(
        self,
        *,
        requested_bytes: int,
        used_bytes: int,
        allowance_bytes: int | None,
        free_bytes: int,
        total_bytes: int,
        others: Mapping[ProcessId, int],
        context_bytes: int = 0,
    ) -> None:
        self.requested_bytes = requested_bytes
        self.used_bytes = used_bytes
        self.allowance_bytes = allowance_bytes
        self.free_bytes = free_bytes
        self.total_bytes = total_bytes
        self.others = dict(others)
        self.context_bytes = context_bytes
        super().__init__(self._sentence())

    def __reduce__(self) -> tuple[Callable[..., SimulatedOutOfMemory], tuple[object, ...]]:
        return _rebuild_out_of_memory, (type(self), {k: v for k, v in vars(self).items() if k != "__notes__"})

    def _sentence(self) -> str:
        used = format_bytes(self.used_bytes)
        if self.allowance_bytes is not None:
            used += f" of its allowance of {format_bytes(self.allowance_bytes)}"
        held = ", ".join(f"pid {process.pid}: {format_bytes(size)}" for process, size in self.others.items())
        context = f" and the CUDA context of {format_bytes(self.context_bytes)}" if self.context_bytes else ""
        return (
            f"Out of memory allocating {format_bytes(self.requested_bytes)} ({self.requested_bytes:,} bytes){context} "
            f"on a simulated GPU: {format_bytes(self.free_bytes)} of {format_bytes(self.total_bytes)} are free, "
            f"this process uses {used}; others: {held or 'none'}."
        )


def _rebuild_out_of_memory(kind: type[SimulatedOutOfMemory], fields: dict[str, Any]) -> SimulatedOutOfMemory:
    return kind(**fields)


@dataclass(frozen=True, slots=True)
class SimulatedGpuSpec:
    """One simulated Gpu as its directory describes it."""

    uuid: GpuUuid
    name: str
    memory_total_bytes: int


@dataclass(frozen=True, slots=True)
class OwnShare:
    """The calling process on one Gpu: all it holds, the part without its context, and its cap, in bytes."""

    held_bytes: int
    allocated_bytes: int
    allowance_bytes: int | None


@dataclass(slots=True)
class Record:
    """One process on one Gpu."""

    slot: int
    process: ProcessId
    held_bytes: int
    allowance_bytes: int
    attached: bool
    frozen_bytes: int = 0
    lock_state: int = 0

    @property
    def cap(self) -> int | None:
        """What it may hold; `None`: anything."""
        return None if self.allowance_bytes == _NO_ALLOWANCE else self.allowance_bytes

    def pack(self) -> bytes:
        """As it is in the file."""
        known = (self.process.pid, self.process.start_time, self.held_bytes, self.allowance_bytes, self.attached)
        return _RECORD.pack(*known, self.frozen_bytes, self.lock_state)

    @property
    def shown(self) -> bool:
        """Whether a driver lists it: what is frozen is on no Gpu."""
        return bool(self.attached or self.held_bytes) and not self.frozen_bytes


def process_start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat in clock ticks since boot, or `None` when the process lives no more.

    A zombie without running threads has given back its memory: it counts as dead.
    """
    try:
        with Path(f"/proc/{pid}/stat").open("rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, threads, start_time = fields[0], int(fields[17]), int(fields[19])
    if state in (b"X", b"x") or (state == b"Z" and threads <= 1):
        return None
    return start_time


def _lives(process: ProcessId) -> bool:
    return process_start_time(process.pid) == process.start_time


class _ThisProcess:
    """The identity, the lock and the deferred releases of this process; a fork starts afresh."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.deferred: deque[Callable[[], None]] = deque()
        self._identity: ProcessId | None = None
        # Held across fork(), so that a child never inherits a ledger file that another thread has locked.
        os.register_at_fork(before=self.lock.acquire, after_in_parent=self._go_on, after_in_child=self._start_afresh)

    def _go_on(self) -> None:
        self.lock.release()
        self.run_deferred()

    def _start_afresh(self) -> None:
        self._identity = None
        self.deferred.clear()
        self.lock.release()

    def identity(self) -> ProcessId:
        if self._identity is None:
            start_time = process_start_time(os.getpid())
            if start_time is None:
                raise SimulatedGpuLost("/proc does not list this process: a simulation needs /proc of its own user.")
            self._identity = ProcessId(os.getpid(), start_time)
        return self._identity

    @contextmanager
    def locked(self) -> Iterator[None]:
        """With all done that finalizers asked for before."""
        try:
            with self.lock:
                self._do_deferred()
                yield
        finally:
            self.run_deferred()

    def run_deferred(self) -> None:
        """Do what finalizers asked for, unless the lock is taken: whoever holds it comes here next."""
        while self.deferred and self.lock.acquire(blocking=False):
            try:
                self._do_deferred()
            finally:
                self.lock.release()

    def _do_deferred(self) -> None:
        while self.deferred:
            self.deferred.popleft()()


_this_process = _ThisProcess()


def current_process() -> ProcessId:
    """The calling process as the ledger knows it."""
    return _this_process.identity()


class GpuLedger:
    """The ledger file of one simulated Gpu. Every call opens the file: handles are never shared across a fork."""

    def __init__(self, directory: Path, gpu: SimulatedGpuSpec, context_memory_bytes: int) -> None:
        self.gpu = gpu
        self.context_memory_bytes = context_memory_bytes
        self.path = directory / f"{gpu.uuid}.ledger"

    def create(self) -> None:
        """Make the file if it is not there; what living processes hold stays."""
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def holders(self) -> dict[ProcessId, int]:
        """Bytes per live process that has a context or memory. Raises `SimulatedGpuLost`."""
        with _this_process.locked(), self._file(fcntl.LOCK_SH) as fd:
            records = read_records(fd)
        return {r.process: r.held_bytes for r in records if r.shown and _lives(r.process)}

    def own(self) -> OwnShare:
        """What the calling process holds and may hold."""
        with _this_process.locked(), self._file(fcntl.LOCK_SH) as fd:
            own, _ = find(read_records(fd), current_process())
        return OwnShare(own.held_bytes, self._allocated_bytes(own), own.cap)

    def allocate(self, size_bytes: int) -> None:
        """Give the calling process its context, if it has none yet, and `size_bytes`, or raise and change nothing."""
        with _this_process.locked(), self._file(fcntl.LOCK_EX) as fd:
            records = read_records(fd)
            own, others = find(records, current_process())
            asked_bytes = size_bytes + (0 if own.attached else self.context_memory_bytes)
            after_bytes = own.held_bytes + asked_bytes
            total_bytes = self.gpu.memory_total_bytes
            if after_bytes + sum(record.held_bytes for record in others) > total_bytes:
                # Only now is it worth asking who of them still lives: a look into /proc costs more than all the rest.
                others = [record for record in others if _lives(record.process)]
            others_bytes = sum(record.held_bytes for record in others)
            capped = own.cap is not None and after_bytes > own.cap
            if capped or after_bytes + others_bytes > total_bytes:
                raise SimulatedOutOfMemory(
                    requested_bytes=size_bytes or asked_bytes,
                    context_bytes=asked_bytes - size_bytes if size_bytes else 0,
                    used_bytes=own.held_bytes,
                    allowance_bytes=own.cap,
                    free_bytes=max(0, total_bytes - others_bytes - own.held_bytes),
                    total_bytes=total_bytes,
                    others={r.process: r.held_bytes for r in others if r.held_bytes and _lives(r.process)},
                )
            own.held_bytes, own.attached = after_bytes, True
            write_record(fd, own, records)

    def free(self, size_bytes: int) -> None:
        """Give back memory of the calling process. Raises `ValueError` for more than it allocated."""
        with _this_process.locked():
            self._free_locked(size_bytes)

    def free_deferred(self, size_bytes: int) -> None:
        """`free` for finalizers, which the garbage collector may run while this very thread uses the ledger."""

        def release() -> None:
            try:
                self._free_locked(size_bytes)
            except SimulatedGpuLost:
                return  # the Gpu is gone and its memory with it

        _this_process.deferred.append(release)
        _this_process.run_deferred()

    def settle(self) -> None:
        """Wait until all is free that finalizers have freed: another thread may have the ledger, as before a fork."""
        with _this_process.locked():
            pass

    def _free_locked(self, size_bytes: int) -> None:
        with self._file(fcntl.LOCK_EX) as fd:
            records = read_records(fd)
            own, _ = find(records, current_process())
            allocated_bytes = self._allocated_bytes(own)
            if size_bytes > allocated_bytes:
                raise ValueError(f"Cannot free {size_bytes} bytes: this process allocated {allocated_bytes}.")
            own.held_bytes -= size_bytes
            write_record(fd, own, records)

    def _allocated_bytes(self, record: Record) -> int:
        return record.held_bytes - (self.context_memory_bytes if record.attached else 0)

    def living_bytes(self, records: Iterable[Record]) -> int:
        """What living processes hold of those in `records`."""
        return sum(record.held_bytes for record in records if record.held_bytes and _lives(record.process))

    def set_allowance(self, allowance_bytes: int | None) -> None:
        """Cap what the calling process may hold, context included; `None` lifts the cap."""
        with _this_process.locked(), self._file(fcntl.LOCK_EX) as fd:
            records = read_records(fd)
            own, _ = find(records, current_process())
            own.allowance_bytes = _NO_ALLOWANCE if allowance_bytes is None else allowance_bytes
            write_record(fd, own, records)

    def locked_file(self) -> AbstractContextManager[int]:
        """The file, which nobody else reads or writes meanwhile. Raises `SimulatedGpuLost`."""
        return self._file(fcntl.LOCK_EX)

    @contextmanager
    def _file(self, lock: int) -> Iterator[int]:
        access = os.O_RDONLY if lock == fcntl.LOCK_SH else os.O_RDWR
        while True:
            try:
                fd = os.open(self.path, access | os.O_CLOEXEC)
            except FileNotFoundError:
                raise SimulatedGpuLost(f"Simulated GPU {self.gpu.uuid} is no more: its daemon has ended.") from None
            except OSError as error:
                done = "read" if access == os.O_RDONLY else "written"
                why = f"{self.path.parent} cannot be {done} ({error.strerror})"
                what = "make it writable here, or give its daemon another folder with --state-dir"
                raise SimulatedGpuLost(f"Simulated GPU {self.gpu.uuid} cannot be used, as {why}: {what}.") from error
            try:
                fcntl.flock(fd, lock)
                if os.fstat(fd).st_nlink == 0:  # removed between open and lock
                    continue
                try:
                    yield fd
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)
                return
            finally:
                os.close(fd)


def read_records(fd: int) -> list[Record]:
    """All that a ledger's file has."""
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    whole = memoryview(content)[: len(content) // _RECORD.size * _RECORD.size]
    return [
        Record(slot, ProcessId(pid, start_time), held_bytes, allowance_bytes, bool(attached), *frozen)
        for slot, (pid, start_time, held_bytes, allowance_bytes, attached, *frozen) in enumerate(
            _RECORD.iter_unpack(whole)
        )
    ]


def find(records: list[Record], process: ProcessId) -> tuple[Record, list[Record]]:
    """The process's record (slot -1: it has none yet) and all others."""
    own = Record(-1, process, 0, _NO_ALLOWANCE, attached=False)
    others = []
    for record in records:
        if record.process == process:
            own = record
        else:
            others.append(record)
    return own, others


def write_record(fd: int, own: Record, records: list[Record]) -> None:
    """Write `own` into a ledger's file, in its place or a free one."""
    if own.slot < 0:
        dead = (record.slot for record in records if not _lives(record.process))
        own.slot = next(dead, len(records))
    os.pwrite(fd, own.pack(), own.slot * _RECORD.size)


def write_simulation(directory: Path, gpus: tuple[SimulatedGpuSpec, ...], context_memory_bytes: int) -> None:
    """Describe a simulation for the processes that will use it; the file appears whole or not at all.

    Raises OSError with the directory's name, also where its disk is full.
    """
    description = {
        "context_memory_bytes": context_memory_bytes,
        "gpus": [{"uuid": g.uuid, "name": g.name, "memory_total_bytes": g.memory_total_bytes} for g in gpus],
    }
    draft = directory / f".{_SPEC_FILE}.{os.getpid()}"
    try:
        draft.write_text(json.dumps(description, indent=2), encoding="utf-8")
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from error
    draft.replace(directory / _SPEC_FILE)


def open_simulation(directory: Path, ledgers: tuple[GpuLedger, ...]) -> None:
    """Let the processes of all users hold memory there, as the devices of real Gpus do."""
    for ledger in ledgers:
        ledger.path.chmod(0o666)
    (directory / _SPEC_FILE).chmod(0o644)
    directory.chmod(0o755)


def read_simulation(directory: Path) -> tuple[GpuLedger, ...] | None:
    """The ledgers of a simulation in display order, or `None` where none is described.

    Raises `SimulatedGpuLost` for a description that cannot be read.
    """
    try:
        description = json.loads((directory / _SPEC_FILE).read_text(encoding="utf-8"))
        context_memory_bytes = int(description["context_memory_bytes"])
        gpus = [
            SimulatedGpuSpec(GpuUuid(str(g["uuid"])), str(g["name"]), int(g["memory_total_bytes"]))
            for g in description["gpus"]
        ]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise SimulatedGpuLost(f"{directory / _SPEC_FILE} does not describe a simulation: {error}.") from error
    return tuple(GpuLedger(directory, gpu, context_memory_bytes) for gpu in gpus)


def remove_unused_simulation(directory: Path, ledgers: tuple[GpuLedger, ...]) -> None:
    """`remove_simulation`, unless a living process is in it; none can come in meanwhile."""
    with _this_process.locked(), ExitStack() as locks:
        for ledger in ledgers:
            with suppress(SimulatedGpuLost):
                descriptor = locks.enter_context(ledger.locked_file())
                if any(_lives(record.process) for record in read_records(descriptor)):
                    return
        remove_simulation(directory, ledgers)


def remove_simulation(directory: Path, ledgers: tuple[GpuLedger, ...]) -> None:
    """Take away a simulation's files, and the directory if nothing else is in it."""
    (directory / _SPEC_FILE).unlink(missing_ok=True)
    for ledger in ledgers:
        ledger.path.unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
