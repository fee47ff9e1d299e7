"""The daemon's one loop: it owns the state, applies events one by one, and carries out what `step` commands."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import EndProcess, SetTimer, WorkloadCommand
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.step import step
from nls_scheduler.daemon.connected import Connected
from nls_scheduler.daemon.journal import boot_id
from nls_scheduler.daemon.passports import Passports
from nls_scheduler.daemon.peers import Leases
from nls_scheduler.daemon.poller import Poller
from nls_scheduler.daemon.reaper import Reaper
from nls_scheduler.daemon.state_folder import KEY_NAME
from nls_scheduler.daemon.watch import Watch
from nls_scheduler.processes.proc import workloads_on
from nls_scheduler.requests import adoption
from nls_scheduler.units.clock import awake_s, go_on_after
from nls_scheduler.units.counts import counted
from nls_scheduler.views.entries import as_record, entry_view, restored
from nls_scheduler.views.history import History, Recorder
from nls_scheduler.views.metrics import Metrics
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.ids import WorkloadId
    from nls_scheduler.daemon.cluster import Cluster
    from nls_scheduler.daemon.journal import Journal
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.daemon.ports import Driver
    from nls_scheduler.daemon.settings import DaemonSettings
    from nls_scheduler.views.entries import Entry

# After these a Gpu's memory has changed, and somebody may wait for what the driver shows.
_WORTH_A_SAMPLE: Final = (
    events.MemoryTrimmed,
    events.MemoryWanted,
    events.ProcessExited,
    events.ProcessFrozen,
    events.ProcessReady,
    events.ProcessSuspended,
    events.ProcessThawed,
    events.StartFailed,
    events.SupervisorLost,
    events.ThawFailed,
    events.WorkloadAdopted,
    events.WorkloadSubmitted,
)
# Nobody's deadline is so near that less would matter.
_LATE_S: Final = 0.5
log = logging.getLogger(__name__)


class Loop:
    """What happens, one event after another; nobody asks for anything here. All methods run in the loop's thread.

    Attributes:
        active_at: when somebody last asked for something; the idle exit counts from it.
        recovered_at: when the daemon before this one was heard of last, by `awake_s`; `None`: it left nothing.
    """

    def __init__(self, driver: Driver, settings: DaemonSettings, journal: Journal, cluster: Cluster | None) -> None:
        """`cluster`: whose scheduler decides on homes here."""
        self.state = NodeState(policy=settings.policy)
        self.history = History()
        self.active_at = awake_s()
        self.access = settings.access
        self.metrics = Metrics(lambda: self.state)
        self.recovered_at: float | None = None
        self._watch = Watch(self.metrics)
        self._journal = journal
        self._passports = Passports(journal.path.with_name(KEY_NAME))
        self._recorder = Recorder()
        self._connected = Connected()
        self._leases = Leases(self._on_holder_ended)
        self._reaper = Reaper(self.apply_or_tell)
        self._timer: asyncio.TimerHandle | None = None
        self._due_at: float | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._poller = Poller(driver, settings.rates, lambda: self.state, self.apply_or_tell)
        self._poller.on_poll = self.metrics.polled
        self._cluster = cluster
        if cluster is not None:
            self._poller.tell_tenants_by(cluster.tenant_of)
        self._defect: str | None = None

    async def start(self) -> None:
        """Recover what the journal knows, find the Gpus, take the first sample, and go on sampling."""
        self._recover()
        await self._poller.poll()
        await self._notice_who_is_forgotten()
        self._spawn(self._poller.run())

    async def close(self) -> None:
        """End the daemon's own work. No GPU process is touched."""
        self.history.close()
        self._leases.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._poller.close()
        self._journal.close()

    def apply(self, event: events.Event) -> None:
        """One event, one step. Raises Problem when `step` failed: the state is then as before."""
        if (late_s := self._take_late_s()) >= _LATE_S:
            self._apply(events.DaemonStoodStill(awake_s(), late_s))
        self._apply(event)

    def _take_late_s(self) -> float:
        """How long this process has waited for its journal's disk, or has not run at all past its timer's time."""
        overslept_s = 0.0 if self._due_at is None else awake_s() - self._due_at
        if overslept_s > 0:
            self._due_at = None  # it counts once
        return max(self._journal.slowness.take_late_s(), overslept_s)

    def _apply(self, event: events.Event) -> None:
        before, began = self.state, time.perf_counter()
        try:
            self.state, commands = step(before, event)
        except Exception as error:
            log.exception("DEFECT: this event could not be applied and is ignored: %r", event)
            # Everybody reads this, and the error's own text may be about whose it is: the log has it.
            self._defect = f"A defect of the daemon, please report it with its log: {type(error).__name__}"
            raise Problem(500, "Defect of the daemon", self._defect, "server") from error
        self.metrics.stepped(before, self.state, commands, time.perf_counter() - began)
        # In the journal before anybody hears of them.
        self._journal.record(event, before, self.state, commands)
        for command in commands:
            self._carry_out(command)
        told: dict[str | None, str] = {}
        for entry in self._recorder.entries(before, event, self.state, commands):
            self._tell(entry)
            if entry.event == "released" and not entry.why.who:
                told[entry.workload] = entry.why.text
        for ended in before.workloads.keys() - self.state.workloads.keys():
            self._forget(ended, told.get(ended, ""))
        self._connected.show(self.state, awake_s(), self.access)
        if self._cluster is not None:
            self._cluster.stepped()
        if isinstance(event, _WORTH_A_SAMPLE) and not self._waits_anyway(event):
            self._poller.hurry()
        if isinstance(event, events.MemorySampled):
            self._reaper.end_remains(self.state)
        self._watch.look(event, before, self.state, commands)

    def _waits_anyway(self, event: events.Event) -> bool:
        """Whether a newcomer has to wait on a node that is sampled often as it is."""
        if not isinstance(event, events.WorkloadSubmitted) or len(self.state.workloads) == 1:
            return False
        entry = self.state.plan.get(event.workload)
        return entry is not None and not entry.home

    def _tell(self, entry: Entry) -> None:
        view = entry_view(entry)
        whose = "%(name)s" if entry.workload is None else "%(name)s (%(workload)s)"
        log.info(f"{whose} %(event)s: %(reason)s", view)
        self.history.add(entry)
        self.metrics.told(view)
        self._journal.record_history(as_record(entry))
        if self._cluster is not None and entry.workload is not None:
            self._cluster.told(view, entry.about.tenant)

    def apply_or_tell(self, event: events.Event) -> None:
        """`apply` for callers that have nobody to tell a problem to; the log and the status have it."""
        try:
            self.apply(event)
        except Problem as problem:
            log.warning("ignored: %s", problem)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, SetTimer):
            self._arm(command.at)
        elif isinstance(command, EndProcess):
            self._spawn(self._reaper.end_disobedient(self.state.workloads[command.workload], command))
        elif isinstance(command, WorkloadCommand):
            self._connected.order(command)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at - awake_s())
        self._due_at = at
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer, at)

    def _on_timer(self, at: float) -> None:
        # The loop's clock may round: too early is armed again, too late is fine.
        if awake_s() < at:
            self._arm(at)
        else:
            self.apply_or_tell(events.TimerFired(awake_s()))

    def _forget(self, workload_id: WorkloadId, why: str) -> None:
        self.active_at = awake_s()
        self._drop_lease(workload_id)
        self._connected.end(workload_id, why)

    def _on_holder_ended(self, workload_id: WorkloadId) -> None:
        workload = self.state.workloads.get(workload_id)
        if workload is not None:
            self._spawn(self._reaper.end_abandoned(workload))

    def _recover(self) -> None:
        """Begin where the daemon before this one ended; after a boot none of its processes lives."""
        recovered, boot = self._journal.recover(), boot_id()
        entries = [] if recovered is None else list(restored(recovered.history))
        if recovered is not None:
            self.history.restore(entries)
            self.state = replace(self.state, next_command=recovered.state.next_command)
        if recovered is not None and recovered.boot_id == boot:
            self.state = replace(recovered.state, policy=self.state.policy)
            self.recovered_at = recovered.state.at
            go_on_after(recovered.state.at)
            self.active_at = awake_s()
        self._recorder.go_on_after(entries, self.state)
        self.metrics.go_on_from(self.state)
        self._journal.begin(
            self.state, boot, recovered.leases if recovered is not None and self.state.workloads else None
        )
        forgetful = self._journal.set_aside is not None or self._journal.trouble is not None
        if self.state.workloads or forgetful:
            log.info("recovered %d workloads", len(self.state.workloads))
            self.apply_or_tell(events.DaemonRestarted(awake_s(), forgetful))
        if recovered is None:
            return
        for workload in tuple(self.state.workloads.values()):
            holder = recovered.leases.get(workload.id)
            if holder is None or not self._leases.retake(workload.id, holder):
                self._on_holder_ended(workload.id)

    async def _notice_who_is_forgotten(self) -> None:
        """A journal that is gone, and one of a machine where nothing ran yet, look the same: what runs here tells."""
        if self.state.settling or not self.state.gpus:
            return
        named = await asyncio.to_thread(workloads_on, tuple(self.state.gpus))
        # Anybody may set a variable.
        running = {w for w, mark in named if adoption.ID_PATTERN.fullmatch(w) and self._passports.made(mark, w)}
        if forgotten := running - self.state.workloads.keys():
            log.warning("the journal knows nothing of %s: it was lost, or its end was", ", ".join(sorted(forgotten)))
            of = counted(len(forgotten), "workload")
            lost = f"The journal knew nothing of {of} of this node: it was lost, or its end was."
            self._journal.begun_anew = self._journal.begun_anew or lost
            self.apply_or_tell(events.DaemonRestarted(awake_s(), forgetful=True))

    def _take_lease(self, workload_id: WorkloadId, peer: Peer) -> None:
        self._leases.take(workload_id, peer)
        self._journal.record_lease(workload_id, peer.process)

    def _drop_lease(self, workload_id: WorkloadId) -> None:
        self._leases.drop(workload_id)
        self._journal.record_lease(workload_id, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
