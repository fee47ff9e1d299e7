"""Freezing of processes on simulated Gpus: SIGSTOP, SIGCONT, and a ledger in which their memory is the host's."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.drivers.checkpoints import CheckpointFailed, ProcessEnded, State
from nls_scheduler.drivers.simulated_memory import (
    LOCK_STATES,
    SimulatedGpuLost,
    find,
    read_records,
    read_simulation,
    write_record,
)
from nls_scheduler.processes.proc import ancestors, look_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.core.model.ids import ProcessId
    from nls_scheduler.drivers.simulated_memory import GpuLedger, Record

_LOOK_AGAIN_S: Final = 0.002
FAULT_FILE: Final = "checkpoint-fault"
"""In the simulation's directory: the name of a step (`lock`, `checkpoint`, `restore`, `unlock`) that fails while the
file is there, or `late`, with which a checkpoint takes a second: a test's way to break the driver."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A process's record in one Gpu's ledger, whose file is locked, beside everybody's."""

    ledger: GpuLedger
    ledger_fd: int
    record: Record
    everybody: list[Record]

    @property
    def free_bytes(self) -> int:
        return self.ledger.gpu.memory_total_bytes - self.ledger.living_bytes(self.everybody)

    def write(self, state: State) -> None:
        self.record.lock_state = LOCK_STATES.index(state)
        write_record(self.ledger_fd, self.record, self.everybody)


class SimulatedCheckpoints:
    """Implements `Checkpoints` for the simulation in `directory`.

    A process that is locked is stopped whole, where a real one goes on until its next call of the driver.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def refusal(self, process: ProcessId | None) -> str | None:
        """A process without a context, or with another one of its family that has one."""
        if process is None:
            return None if self._ledgers() else "there are no simulated GPUs any more"
        with self._entries(process) as entries:
            if not any(entry.record.attached for entry in entries):
                return "it has no CUDA context yet"
            others = [other.process for entry in entries for other in entry.everybody if other.attached]
        family = [other.pid for other in others if other != process and self._is_below(other, process)]
        return f"process {family[0]}, which it started, uses the GPU as well" if family else None

    def _is_below(self, other: ProcessId, process: ProcessId) -> bool:
        record = look_up(other.pid)
        return record is not None and record.id == other and any(a.id == process for a in ancestors(other.pid))

    def state(self, process: ProcessId) -> State:
        """As the ledger has it."""
        _check_there(process)
        with self._entries(process) as entries:
            return LOCK_STATES[max((entry.record.lock_state for entry in entries), default=0)]

    def lock(self, process: ProcessId, timeout_s: float) -> None:
        """Stop it, while nobody holds a lock of the ledger that it could take along."""
        self._fail_at("lock")
        with self._entries(process) as entries:
            _signal(process, signal.SIGSTOP)
            deadline = time.monotonic() + timeout_s
            while not _is_stopped(process):
                if time.monotonic() > deadline:
                    _signal(process, signal.SIGCONT)
                    raise CheckpointFailed(f"the process did not stop within {timeout_s:.1f} s")
                time.sleep(_LOOK_AGAIN_S)
            for entry in entries:
                entry.write(State.LOCKED)

    def checkpoint(self, process: ProcessId) -> int:
        """Its memory is the host's."""
        self._fail_at("checkpoint")
        if self._fault() == "late":
            time.sleep(1.0)
        frozen_bytes = 0
        with self._in_state(process, State.LOCKED) as entries:
            for entry in entries:
                record = entry.record
                frozen_bytes += record.held_bytes
                record.frozen_bytes, record.held_bytes = record.held_bytes, 0
                entry.write(State.CHECKPOINTED)
        return frozen_bytes

    def restore(self, process: ProcessId) -> None:
        """Its memory is the Gpu's again, if that has as much."""
        self._fail_at("restore")
        with self._in_state(process, State.CHECKPOINTED) as entries:
            for entry in entries:
                if entry.record.frozen_bytes > entry.free_bytes:
                    raise CheckpointFailed(f"out of memory on {entry.ledger.gpu.uuid}")
            for entry in entries:
                record = entry.record
                record.held_bytes, record.frozen_bytes = record.frozen_bytes, 0
                entry.write(State.LOCKED)

    def unlock(self, process: ProcessId) -> None:
        """It goes on."""
        self._fail_at("unlock")
        with self._in_state(process, State.LOCKED) as entries:
            for entry in entries:
                entry.write(State.RUNNING)
            _signal(process, signal.SIGCONT)

    def _ledgers(self) -> tuple[GpuLedger, ...]:
        try:
            return read_simulation(self._directory) or ()
        except SimulatedGpuLost as error:
            raise CheckpointFailed(str(error)) from error

    @contextmanager
    def _entries(self, process: ProcessId) -> Iterator[list[_Entry]]:
        """Of each ledger, all of them locked: its file, the process's record, and everybody's."""
        _check_there(process)
        found = []
        try:
            with ExitStack() as locks:
                for ledger in self._ledgers():
                    ledger_fd = locks.enter_context(ledger.locked_file())
                    records = read_records(ledger_fd)
                    own, _ = find(records, process)
                    if own.slot >= 0:
                        found.append(_Entry(ledger, ledger_fd, own, records))
                yield found
        except SimulatedGpuLost as error:
            raise CheckpointFailed(str(error)) from error

    @contextmanager
    def _in_state(self, process: ProcessId, state: State) -> Iterator[list[_Entry]]:
        with self._entries(process) as entries:
            now = {LOCK_STATES[entry.record.lock_state] for entry in entries}
            if now != {state}:
                raise CheckpointFailed(f"the process is {' and '.join(sorted(now))}, not {state}")
            yield entries

    def _fault(self) -> str:
        try:
            return (self._directory / FAULT_FILE).read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    def _fail_at(self, step: str) -> None:
        if self._fault() == step:
            raise CheckpointFailed(f"the simulated driver was told to fail at {step}")


def _check_there(process: ProcessId) -> None:
    record = look_up(process.pid)
    if record is None or record.id != process:
        raise ProcessEnded("the process has ended")


def _signal(process: ProcessId, number: signal.Signals) -> None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        raise ProcessEnded("the process has ended") from None
    try:
        _check_there(process)
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError) as error:
        raise CheckpointFailed(f"the process cannot be signalled: {error}") from error
    finally:
        os.close(descriptor)


def _is_stopped(process: ProcessId) -> bool:
    """Whether each of its threads has stopped."""
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        try:
            state = (task / "stat").read_bytes().rpartition(b") ")[2][:1]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in (b"T", b"t", b"Z", b"X"):
            return False
    return True
