"""Ends the processes of workloads that nobody looks after any more, or whose supervisor does not obey a stop."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model.events import ProcessExited, SupervisorLost
from nls_scheduler.processes.guardian import kill
from nls_scheduler.processes.proc import end_all, look_up, some_left_of
from nls_scheduler.units.clock import awake_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.commands import EndProcess
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.ids import ProcessId, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.core.model.workload import Workload

END_TIMEOUT_S: Final = 10.0
AGAIN_S: Final = 1.0
REMAINS_PATIENCE_S: Final = 1.0
log = logging.getLogger(__name__)


class Reaper:
    """The daemon's own way to end processes; each end comes back as an event."""

    def __init__(self, apply: Callable[[Event], None]) -> None:
        self._apply = apply
        self._look: asyncio.Task[set[WorkloadId]] | None = None
        self._to_look_for: dict[WorkloadId, tuple[int, list[ProcessId]]] = {}
        self._turn = asyncio.Lock()
        self._remains: frozenset[ProcessId] = frozenset()

    def end_remains(self, state: NodeState) -> None:
        """End what the driver still shows of a workload whose GPU process is said to be gone, with all it started.

        What left its guardians' and its cgroup's reach is known by its memory alone.
        """
        late = {r for gpu in state.gpus.values() for r in gpu.releasing if state.at > r.since + REMAINS_PATIENCE_S}
        for releasing in late:
            workload, record = state.workloads.get(releasing.workload), look_up(releasing.process.pid)
            if workload is None or record is None or record.id != releasing.process:
                continue
            if workload.process == releasing.process:
                continue  # it lives, or stands still and does not let go of what is the driver's
            if workload.spec.owner not in (0, record.uid):
                continue
            if record.id not in self._remains:
                log.warning("%s of %s (%s) has outlived its GPU process", record.id, workload.spec.name, workload.id)
            kill(record.id.pid, record.id.start_time)
        self._remains = frozenset(r.process for r in late)

    async def end_abandoned(self, workload: Workload) -> None:
        """The lease has ended: nothing of the workload may go on, and only then is its Gpu free.

        Whoever looked after hundreds loses them all at once: one look tells which of them have left anything, and
        between the events others get their answers.
        """
        known = [] if workload.process is None else [workload.process]
        if not await self._ended(workload, known):
            log.warning("processes of %s (%s) do not end", workload.spec.name, workload.id)
        async with self._turn:
            self._apply(SupervisorLost(awake_s(), workload.id, "the process that looked after it has ended"))
            await asyncio.sleep(0)

    async def _ended(self, workload: Workload, known: list[ProcessId]) -> bool:
        """Whether nothing is left of it, once the machine has room to look: a file and a thread more."""
        while True:
            try:
                return workload.id not in await self._some_left(workload, known) or await asyncio.to_thread(
                    end_all, workload.id, workload.spec.owner, known, END_TIMEOUT_S
                )
            except (OSError, RuntimeError) as error:
                log.warning("what is left of %s (%s) is looked for again: %s", workload.spec.name, workload.id, error)
                await asyncio.sleep(AGAIN_S)

    async def _some_left(self, workload: Workload, known: list[ProcessId]) -> set[WorkloadId]:
        """Of which of those that are asked about in this moment, `workload` among them, something is left."""
        self._to_look_for[workload.id] = workload.spec.owner, known
        if self._look is None:
            self._look = asyncio.create_task(self._look_for_all())
        return await asyncio.shield(self._look)

    async def _look_for_all(self) -> set[WorkloadId]:
        await asyncio.sleep(0)
        self._look, sought, self._to_look_for = None, self._to_look_for, {}
        return await asyncio.to_thread(some_left_of, sought)

    async def end_disobedient(self, workload: Workload, command: EndProcess) -> None:
        """The supervisor did not obey a stop: end the GPU process without it."""
        known = [] if command.process is None else [command.process]
        if await asyncio.to_thread(end_all, workload.id, workload.spec.owner, known, END_TIMEOUT_S):
            self._apply(ProcessExited(awake_s(), workload.id, command.process, command.reason))
        else:
            record = None if command.process is None else look_up(command.process.pid)
            others = record is not None and workload.spec.owner not in (0, record.uid)
            why = "is another user's by now, and not ended" if others else "does not end"
            log.warning("process %s of %s (%s) %s", command.process, workload.spec.name, workload.id, why)
