"""Which kernel, and which notebook, of this server a workload belongs to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nls_jupyter_server.page_state import is_own
from nls_scheduler.processes.proc import ancestors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from jupyter_server.services.kernels.kernelmanager import MappingKernelManager
    from jupyter_server.services.sessions.sessionmanager import SessionManager

    from nls_jupyter_server.page_state import Place
    from nls_scheduler.core.model.ids import WorkloadId


class Kernels:
    """The kernels that this server runs on this machine. A kernel elsewhere (a gateway's) has no pid here."""

    def __init__(self, kernel_manager: MappingKernelManager, session_manager: SessionManager) -> None:
        self._kernels = kernel_manager
        self._sessions = session_manager

    def by_pid(self) -> dict[int, str]:
        """Kernel ids by the pid of the process that the server started."""
        found = {}
        for kernel_id in self._kernels.list_kernel_ids():
            pid = getattr(getattr(self._kernels.get_kernel(kernel_id), "provisioner", None), "pid", None)
            if isinstance(pid, int):
                found[pid] = kernel_id
        return found

    def pulse(self) -> tuple[object, ...]:
        """Differs from the last one when a kernel came, went, or turned busy or idle."""
        manager = self._kernels
        return tuple((k, getattr(manager.get_kernel(k), "execution_state", None)) for k in manager.list_kernel_ids())

    async def places(self, workloads: Iterable[Mapping[str, Any]], found: Mapping[WorkloadId, int]) -> dict[str, Place]:
        """Kernel and notebook by workload id, of those that belong to a kernel of this server.

        Of several notebooks that share a kernel it is the first one that is still there; a console only without any.

        Args:
            workloads: the daemon's status entries. Its pids are of its own pid namespace.
            found: by workload id, the pid of a supervisor that was found here.
        """
        kernels = self.by_pid()
        if not kernels:
            return {}  # a gateway would be asked about each of its sessions
        sessions: list[dict[str, Any]] = await self._sessions.list_sessions()
        sessions.sort(key=lambda session: session.get("type") != "notebook")
        paths = {s["kernel"]["id"]: s["path"] for s in reversed(sessions) if s.get("kernel")}
        places: dict[str, Place] = {}
        for workload in workloads:
            pid = found.get(workload["id"]) or _told_pid(workload)
            # A kernelspec may start the kernel through a shell, so that the server knows only an ancestor of it.
            kernel_id = next((kernels[a.id.pid] for a in ancestors(pid) if a.id.pid in kernels), None) if pid else None
            if kernel_id is not None:
                places[workload["id"]] = (kernel_id, paths.get(kernel_id))
        return places


def _told_pid(workload: Mapping[str, Any]) -> int | None:
    """Its supervisor's or its own, which may be another process here: nobody else's is a kernel of this server."""
    return (workload.get("supervisor_pid") or workload["pid"]) if is_own(workload, os.geteuid()) else None
