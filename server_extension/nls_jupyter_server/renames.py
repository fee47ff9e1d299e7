"""Notebooks that were renamed since their kernels began: a kernel knows its first name only, and lists show names."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from nls_scheduler.processes.proc import variable_of
from nls_scheduler.wire.errors import DaemonUnreachable, Problem
from nls_scheduler.wire.protocol import as_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nls_jupyter_server.kernels import Kernels
    from nls_scheduler.client.daemon_client import DaemonClient
    from nls_scheduler.core.model.ids import WorkloadId

_SESSION: Final = "JPY_SESSION_NAME"
"""Where Jupyter Server tells a kernel the path of its notebook."""


class Renames:
    """Tells the daemon the new names. One that its user has chosen for a workload stays."""

    def __init__(self, kernels: Kernels, client: Callable[[], Awaitable[DaemonClient]]) -> None:
        self._kernels = kernels
        self._client = client
        self._told: dict[WorkloadId, str] = {}

    async def look(self, supervisors: Mapping[WorkloadId, int]) -> None:
        """`supervisors`: the pid of each workload's kernel. Without a daemon the next look tells it."""
        known = [{"id": workload} for workload in supervisors]
        places = await self._kernels.places(known, supervisors) if known else {}
        self._told = {workload: name for workload, name in self._told.items() if workload in supervisors}
        for workload, pid in supervisors.items():
            path = places[workload][1] if workload in places else None
            if path is None or (first := variable_of(pid, _SESSION)) is None:
                continue
            before, now = self._told.get(workload, _name(first)), _name(path)
            if now not in ("", before) and await self._tell(workload, before, now):
                self._told[workload] = now

    async def _tell(self, workload: WorkloadId, before: str, now: str) -> bool:
        """Whether that is settled."""
        try:
            client = await self._client()
            if (await client.explain(workload))["name"] == before:
                await client.patch(workload, name=now)
        except DaemonUnreachable:
            return False
        except Problem:
            return True  # it has ended, or is another's
        return True


def _name(path: str) -> str:
    """As kernels name their workloads."""
    return as_name(posixpath.basename(path))
