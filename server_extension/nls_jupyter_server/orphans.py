"""Ends GPU processes whose kernel has ended: a way of its own, beside the guardian's and the daemon's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.processes.proc import alive, ancestors, end_all, left_of, look_up, workload_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from nls_scheduler.core.model.ids import ProcessId, WorkloadId
    from nls_scheduler.processes.proc import ProcessRecord

END_TIMEOUT_S: Final = 5.0
_MODULE: Final = b"nls_jupyter.gpu_process"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A GPU process that was seen below a kernel of this server.

    Attributes:
        supervisor: the process that looks after it: the kernel.
        gpu_process: the process itself.
    """

    supervisor: ProcessId
    gpu_process: ProcessId


class Orphanage:
    """Remembers which GPU process is whose. A process that was never seen below a kernel of ours is never ended.

    Both methods block; one helper thread calls them, one after the other.
    """

    def __init__(self) -> None:
        self._seen: dict[WorkloadId, Sighting] = {}

    @property
    def supervisors(self) -> dict[WorkloadId, int]:
        """The pid of each workload's supervisor, by workload id."""
        return {workload: sighting.supervisor.pid for workload, sighting in tuple(self._seen.items())}

    def look(self, kernel_pids: Collection[int]) -> dict[WorkloadId, int]:
        """Remember the GPU processes below these kernels; the supervisor's pid of each that was not known before."""
        before = self.supervisors
        for record in _gpu_processes() if kernel_pids else ():
            workload = workload_of(record.id.pid)
            if workload is None:
                continue
            above = [a for a in ancestors(record.id.pid) if workload_of(a.id.pid) != workload]
            if above and any(a.id.pid in kernel_pids for a in above):
                self._seen[workload] = Sighting(above[0].id, record.id)
        return {workload: pid for workload, pid in self.supervisors.items() if workload not in before}

    def end_orphans(self) -> list[WorkloadId]:
        """End what is left of those whose kernel has ended; the workloads of which something was left."""
        ended = []
        for workload, sighting in tuple(self._seen.items()):
            if alive(sighting.supervisor):
                continue
            # Its own children too: they name the workload as it does.
            known = [sighting.gpu_process]
            if left_of(workload, os.geteuid(), known):
                ended.append(workload)
                if not end_all(workload, os.geteuid(), known, END_TIMEOUT_S):
                    continue  # stuck in the driver; the next round tries again
            del self._seen[workload]
        return ended


def _gpu_processes() -> Iterator[ProcessRecord]:
    for entry in os.scandir("/proc"):
        try:
            # Most are others', and every user's server looks.
            if not entry.name.isdigit() or entry.stat().st_uid != os.geteuid():
                continue
            words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if b"-m" in words and _MODULE in words and (record := look_up(int(entry.name))) is not None:
            yield record
