"""Processes as /proc shows them, and the one place that ends what a workload left behind."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.ids import ProcessId, WorkloadId
from nls_scheduler.processes import cgroups
from nls_scheduler.processes.environments import environment_of
from nls_scheduler.processes.guardian import (
    CGROUP_TIMEOUT_S,
    HELD_PATIENCE_S,
    WORDS_LIMIT_BYTES,
    end_cgroup,
    is_guardian,
    kill,
    some_held,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from nls_scheduler.core.model.ids import GpuUuid

_LOOK_AGAIN_S: Final = 0.05
WORKLOAD_VARIABLE: Final = "NLS_WORKLOAD"
MARK_VARIABLE: Final = "NLS_WORKLOAD_MARK"
"""By which a daemon that has lost its journal tells its own workloads' ids from invented ones."""
CONTEXT_VARIABLE: Final = "NLS_CONTEXT_MEMORY"
"""What a CUDA context takes on this node, about, in bytes: a part of each allowance."""
GUARDIANS_PATIENCE_S: Final = 2.0
STOPPED: Final = frozenset("Tt")
_ZOMBIE: Final = b"Z"
_ENDED: Final = frozenset({_ZOMBIE, b"X", b"x"})
_ANCESTRY_LIMIT: Final = 256


@dataclass(frozen=True, slots=True)
class ProcessRecord:
    """One living process.

    Attributes:
        parent_pid: as of now; an orphan has been adopted.
        uid: owner of its /proc entry, the effective user.
    """

    id: ProcessId
    parent_pid: int
    uid: int


def look_up(pid: int) -> ProcessRecord | None:
    """The living process of that pid; `None` when it is gone, a zombie, or hidden from us.

    One whose first thread has ended is a zombie to look at; it lives as long as another one runs and holds its memory.
    """
    directory = Path(f"/proc/{pid}")
    try:
        uid = directory.stat().st_uid
        fields = (directory / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    state, threads = fields[0], int(fields[17])
    if state in _ENDED and not (state == _ZOMBIE and threads > 1):
        return None
    return ProcessRecord(ProcessId(pid, int(fields[19])), int(fields[1]), uid)


def status_of(directory: Path) -> dict[str, list[str]]:
    """What `status` in a process's folder of /proc says: the words of each line, by its name. Raises OSError.

    A line feed alone ends a line: the kernel writes none in the name that a process gives itself, but all else.
    """
    lines = (directory / "status").read_bytes().decode("ascii", "replace").split("\n")
    return {name: words.split() for name, _, words in (line.partition(":") for line in lines)}


def is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process; one that has gone is not."""
    try:
        return status_of(Path(f"/proc/{pid}"))["State"][0] in STOPPED
    except OSError:
        return False


def alive(process: ProcessId) -> bool:
    """Whether exactly this process still lives."""
    record = look_up(process.pid)
    return record is not None and record.id == process


def ancestors(pid: int) -> Iterator[ProcessRecord]:
    """The process itself, its parent, and so on up to the first one that cannot be seen, or has another's number."""
    born = math.inf
    for _ in range(_ANCESTRY_LIMIT):
        record = look_up(pid)
        if record is None or record.id.start_time > born:
            return
        yield record
        pid, born = record.parent_pid, record.id.start_time


def workload_of(pid: int) -> WorkloadId | None:
    """The workload that the process's first environment names; `None` where it names none or may not be read."""
    return _workload_in(_environment(pid))


def variable_of(pid: int, name: str) -> str | None:
    """A variable of the process's first environment; `None` where it is not set, or may not be read."""
    return _variable(_environment(pid), name)


def descendants_of(process: ProcessId) -> list[int]:
    """The living processes that it started, and those that these have started."""
    records = dict(_living())
    return sorted(_with_descendants([process.pid], records) - {process.pid}) if process.pid in records else []


def command_line(workload: WorkloadId, pid: int) -> str | None:
    """What the process runs, if it names `workload`: the number may be that of another namespace."""
    return b" ".join(words_of(pid)).decode("utf-8", "replace").strip() if workload_of(pid) == workload else None


def words_of(pid: int) -> list[bytes]:
    """What the process was started with; nothing where it has gone, or may not be read."""
    try:
        with Path(f"/proc/{pid}/cmdline").open("rb") as words:
            return words.read(WORDS_LIMIT_BYTES).split(b"\0")
    except OSError:
        return [b""]


def _environment(pid: int) -> bytes:
    return environment_of(pid, WORDS_LIMIT_BYTES)


def _workload_in(environment: bytes) -> WorkloadId | None:
    named = _variable(environment, WORKLOAD_VARIABLE)
    return None if named is None else WorkloadId(named)


def _variable(environment: bytes, name: str) -> str | None:
    # Not by taking it apart: what others have written there may have a million parts.
    _, found, after = (b"\0" + environment).partition(f"\0{name}=".encode())
    return after.partition(b"\0")[0].decode("utf-8", "replace") if found else None


def workloads_on(gpus: Collection[GpuUuid]) -> set[tuple[WorkloadId, str]]:
    """The workloads of the living processes that were started on one of `gpus`, each with its mark.

    As their first environments tell, in which anybody may write anything.
    """
    masks = [gpu.encode() for gpu in gpus]
    found = set()
    for pid, _ in _living():
        environment = _environment(pid)
        if any(mask in environment for mask in masks) and (named := _workload_in(environment)) is not None:
            found.add((named, _variable(environment, MARK_VARIABLE) or ""))
    return found


def named_like(workload: WorkloadId) -> list[ProcessRecord]:
    """The living processes whose first environments name `workload`, from the one that began first on."""
    named = (record for pid, record in _living() if workload_of(pid) == workload)
    return sorted(named, key=lambda record: record.id.start_time)


def left_of(workload: WorkloadId, owner: int, known: Collection[ProcessId]) -> dict[int, ProcessId]:
    """The living processes of an ended workload by pid.

    They are those in its cgroups, and of its owner's (root's are all) the known ones, all that name it, and their
    descendants. Never the caller.
    """
    records = dict(_living())
    in_cgroups = {pid for place in cgroups.made_for(workload, owner) for pid in cgroups.members(place)}
    members = {p.pid for p in known if p.pid in records and records[p.pid].id == p}
    members |= {pid for pid, record in records.items() if record.uid == owner and workload_of(pid) == workload}
    family = {pid for pid in _with_descendants(members, records) if owner in (0, records[pid].uid)}
    family |= in_cgroups & records.keys()
    return {pid: records[pid].id for pid in family - {1, os.getpid()}}


def some_left_of(ended: Mapping[WorkloadId, tuple[int, Collection[ProcessId]]]) -> set[WorkloadId]:
    """Of which ended workloads anything may be left: one look for however many they are.

    `ended`: the owner of each and its known processes. What `left_of` finds of one is found here as well. Only the
    owners' processes are read: nobody's end waits for what another user's say of themselves.
    """
    records = dict(_living())
    lives = {record.id for record in records.values()}
    owners = {owner for owner, _ in ended.values()}
    named = {workload_of(pid) for pid, record in records.items() if record.uid in owners}
    in_cgroups = cgroups.named_like(ended)
    return {w for w, (_, known) in ended.items() if w in named or w in in_cgroups or not lives.isdisjoint(known)}


def end_all(workload: WorkloadId, owner: int, known: Collection[ProcessId], timeout_s: float) -> bool:
    """SIGKILL what is left of a workload until nothing is, or `timeout_s` has passed. True when nothing is left.

    A known process that is not its owner's by now (sudo) is not ours to end: as long as it lives, something is left.
    Guardians come last: they end with their family, remove its files, and are all that holds it together. Blocks; for a
    helper thread. A process that is stuck in the driver is not waited for beyond the time. While a driver may have one
    locked, none is killed, not even who is about to unlock it: that takes `HELD_PATIENCE_S` more at most.
    """
    patience_ends = time.monotonic() + HELD_PATIENCE_S
    while some_held(lambda: _start_times(left_of(workload, owner, known))) and time.monotonic() < patience_ends:
        time.sleep(_LOOK_AGAIN_S)
    began = time.monotonic()
    deadline = began + timeout_s
    pause_s = 0.002
    while left := left_of(workload, owner, known):
        guardians = {pid for pid in left if is_guardian(pid)}
        waited_s = time.monotonic() - began
        patient = waited_s < GUARDIANS_PATIENCE_S
        for place in () if patient else cgroups.made_for(workload, owner):
            end_cgroup(str(place), 0)
        spared = patient or (len(guardians) < len(left) and waited_s < timeout_s / 2)
        for pid in left.keys() - (guardians if spared else set()):
            kill(pid, left[pid].start_time)
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(0.1, pause_s * 2)
    if any(alive(process) for process in known):
        return False
    # Guardians that were killed could not delete them. An empty one that we may not delete is its owner's.
    places = cgroups.made_for(workload, owner)
    return all(end_cgroup(str(place), CGROUP_TIMEOUT_S) or not cgroups.members(place) for place in places)


def _start_times(processes: Mapping[int, ProcessId]) -> dict[int, int]:
    return {pid: process.start_time for pid, process in processes.items()}


def _living() -> Iterator[tuple[int, ProcessRecord]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (record := look_up(int(entry.name))) is not None:
            yield record.id.pid, record


def _with_descendants(roots: Collection[int], records: Mapping[int, ProcessRecord]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, record in records.items():
        children.setdefault(record.parent_pid, []).append(pid)
    family, waiting = set(roots), list(roots)
    while waiting:
        parent = waiting.pop()
        for child in children.get(parent, ()):
            # Nobody is older than who adopts an orphan: that one had a parent whose number was given out again.
            if child not in family and records[child].id.start_time >= records[parent].id.start_time:
                family.add(child)
                waiting.append(child)
    return family
