"""What users, administrators and supervisors ask of the daemon, each checked before it becomes an event."""

from __future__ import annotations

import asyncio
import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import EndProcess, StartProcess, WorkloadCommand
from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.orders.giving import outstanding
from nls_scheduler.core.planning.making_room.rooms import out_of_service
from nls_scheduler.core.step import step
from nls_scheduler.daemon.bounds import Turnstile
from nls_scheduler.daemon.connected import viewer_of
from nls_scheduler.daemon.loop import Loop
from nls_scheduler.daemon.start_environment import start_environment
from nls_scheduler.processes.proc import (
    CONTEXT_VARIABLE,
    MARK_VARIABLE,
    WORKLOAD_VARIABLE,
    alive,
    ancestors,
    look_up,
    named_like,
)
from nls_scheduler.requests import adoption, growing, joining, migration, pool_config, queue_config, submission
from nls_scheduler.requests.queue_access import check_growth, check_limits
from nls_scheduler.units.clock import awake_s
from nls_scheduler.views.explain import explain
from nls_scheduler.views.kept import KeptEntries
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.views.status import gpu_view, node_view, workload_view
from nls_scheduler.wire.errors import Problem, impossible, malformed, unknown_gpu, unknown_workload
from nls_scheduler.wire.protocol import CLOSE_ENDED, Cause, encode_command, parse_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId
    from nls_scheduler.core.model.spec import WorkloadSpec
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.daemon.cluster import Cluster
    from nls_scheduler.daemon.journal import Journal
    from nls_scheduler.daemon.peers import Peer
    from nls_scheduler.daemon.ports import Driver
    from nls_scheduler.daemon.sessions import Session
    from nls_scheduler.daemon.settings import DaemonSettings
    from nls_scheduler.views.entries import Entry
    from nls_scheduler.views.veil import Viewer

log = logging.getLogger(__name__)


class Daemon(Loop):
    """The loop, and all that may be asked of it: everything but the sockets. The API's handlers call it.

    Attributes:
        refused_configuration: why the last reload changed nothing, for the status.
        cluster_values: the cluster's own settings, which stay when the configuration is read again.
    """

    def __init__(
        self,
        driver: Driver,
        settings: DaemonSettings,
        journal: Journal,
        cluster: Cluster | None = None,
        settings_with: Callable[[Mapping[str, Any] | None], DaemonSettings] | None = None,
    ) -> None:
        """`cluster`: whose scheduler decides on homes here; `settings_with` makes settings of its values."""
        super().__init__(driver, settings, journal, cluster)
        self.refused_configuration: str | None = None
        self.cluster_values: Mapping[str, Any] | None = None
        self._simulated = driver.simulated
        self._context_memory_bytes = driver.context_memory_bytes
        self._defaults = settings.defaults
        self._bounds = settings.bounds
        self._turnstile = Turnstile()
        self._entries = KeptEntries()
        self._settings_with = settings_with

    async def start(self) -> None:
        """Begin to follow the cluster, then go on as `Loop.start` does."""
        if self._cluster is not None:
            await self._cluster.start(self)
        await super().start()

    async def close(self) -> None:
        """Follow the cluster no longer, and end the rest."""
        if self._cluster is not None:
            await self._cluster.close()
        await super().close()

    def _troubles(self) -> Iterator[str | None]:
        """What an administrator should know of, each a sentence or more."""
        policy, gpus = self.state.policy, self.state.gpus.values()
        yield self._poller.message
        yield self._defect
        yield self._journal.trouble
        yield self._journal.slowness.told
        yield self._journal.begun_anew
        yield self.refused_configuration
        yield None if self._cluster is None else self._cluster.trouble
        yield pool_config.complaint(policy.pools, gpus)
        yield queue_config.complaint(policy, gpus)

    # What the API asks -------------------------------------------------------------------------------------------

    @property
    def not_ready(self) -> str | None:
        """Why the daemon cannot do its work at the moment; `None` when it can."""
        return self._poller.not_ready or (None if self._cluster is None else self._cluster.not_ready)

    @property
    def idle(self) -> bool:
        """Whether nobody is here: no workload, no supervisor, no follower of the events."""
        return not self.state.workloads and not self._connected and not self.history.followed

    def viewer(self, peer: Peer) -> Viewer:
        """Who reads what is shown to `peer`."""
        return viewer_of(peer, self.access)

    def status(self, peer: Peer) -> dict[str, Any]:
        """The node as `peer` sees it."""
        message = " ".join(trouble for trouble in self._troubles() if trouble is not None) or None
        now, viewer = awake_s(), self.viewer(peer)
        entries = self._entries.of(self.state, now, viewer)
        view = node_view(self.state, now, viewer, simulated=self._simulated, message=message, entries=entries)
        for entry in view["workloads"]:
            holder = self._leases.holder(entry["id"])
            entry["supervisor_pid"] = None if holder is None else holder.pid
        return view

    def view(self, workload_id: WorkloadId, peer: Peer) -> dict[str, Any]:
        """One workload's entry of the status for `peer`. Raises Problem when there is none."""
        workload, names = self._known(workload_id), Names.of(self.state, self.viewer(peer))
        return workload_view(self.state, workload, awake_s(), names)

    def explanation(self, workload_id: WorkloadId, peer: Peer) -> dict[str, Any]:
        """Why a workload is where it is, and what it waits for. Raises Problem."""
        self._own(workload_id, peer)
        return explain(self.state, workload_id, awake_s(), self.viewer(peer))

    def submit(self, body: Mapping[str, Any], peer: Peer) -> WorkloadId:
        """Take a new workload in; it is `peer`'s to look after. Raises Problem."""
        gpus = [gpu for gpu in self.state.gpus.values() if gpu.healthy]
        if not gpus:
            raise submission.no_gpu(self._poller.message, self.state.gpus.values(), simulated=self._simulated)
        names = {workload.spec.name for workload in self.state.workloads.values()}
        body, home = self._allotted(body, peer)
        spec = submission.submission(body, peer.uid, gpus, self._defaults, names, self.state.policy, peer.who)
        spec = replace(spec, tenant=peer.tenant)
        refusal = joining.refusal(spec, self.state.workloads.values(), gpus, self.state.policy)
        if refusal is not None:
            raise impossible(refusal)
        check_limits(self.state, spec)
        submission.check_context(spec, self._context_memory_bytes)
        self._bounds.check_workloads(self._count(peer))
        self._turnstile.submit(peer.user, self._bounds, awake_s())
        workload_id = WorkloadId(secrets.token_hex(6))
        self._take_lease(workload_id, peer)
        try:
            self.apply(events.WorkloadSubmitted(awake_s(), workload_id, spec, self._context_memory_bytes, home))
        except Problem:
            self._drop_lease(workload_id)
            raise
        return workload_id

    def secret(self, workload_id: WorkloadId, peer: Peer) -> str:
        """With which `peer`, who supervises the workload, can bring it back to a daemon that has forgotten it."""
        return self._passports.secret(workload_id, peer.uid, peer.tenant)

    async def adopt(self, workload_id: WorkloadId, body: Mapping[str, Any], peer: Peer, *, only: bool = False) -> None:
        """Take up again what an earlier daemon knew, as its supervisor says it is. Raises Problem.

        `only`: the calling process has no other one, so that what else a journal knows of it is over.
        """
        home = None
        shown = self._passports.opens(body.get("secret"), workload_id, peer.uid, peer.tenant)
        if not shown and not (self._passports.key_is_new and self.state.settling):
            raise _not_shown()
        body = {name: value for name, value in body.items() if name != "secret"}
        if self._cluster is not None:
            state: dict[str, Any] = {name: body[name] for name in adoption.STATE_FIELDS if name in body}
            asked, home = self._allotted({k: v for k, v in body.items() if k not in state}, peer)
            body = {**asked, **state}
        claimed = adoption.claim(workload_id, body, peer.uid, self.state, self._defaults, peer.who)
        claimed = replace(claimed, spec=replace(claimed.spec, tenant=peer.tenant), given_home=home)
        if self._cluster is not None:
            claimed = replace(claimed, process=self._cluster.local_process(claimed.process, peer))
        _check_process(claimed.process, peer)
        if not alive(claimed.process):
            raise Problem(409, "No such process", f"Process {claimed.process.pid} has ended: submit the workload anew.")
        if not shown:
            await self._check_first(workload_id, claimed.process, peer)
        uses = await self._poller.uses_of(workload_id, claimed.process)
        adoption.check_uses(claimed, uses)
        if workload_id in self.state.workloads:
            raise Problem(409, "Known already", f"The workload {workload_id} is known: supervise it.")
        if only:
            self._end_ghosts(peer)
        self._bounds.check_adopted(self._count(peer))
        event = claimed.event(awake_s(), workload_id, self._context_memory_bytes, uses)
        adoption.check_room(self.state, step(self.state, event)[0], workload_id, self.viewer(peer))
        self._take_lease(workload_id, peer)
        self.apply(event)

    async def _check_first(self, workload_id: WorkloadId, process: ProcessId, peer: Peer) -> None:
        """Without a key no secret shows whose it is, but who runs does. Raises Problem.

        The process must have been started for the workload, and nobody else's for it before.
        """
        named = await asyncio.to_thread(named_like, workload_id)
        if process not in {each.id for each in named}:
            raise _not_shown()
        first = named[0]
        if peer.uid not in (0, first.uid) or self.tenant_of(first.id.pid) != peer.tenant:
            raise _not_shown()

    def keep_key(self) -> None:
        """Have the next daemon find the key of this one. Called all the time."""
        self._passports.keep()

    def follow(self, peer: Peer, *, passive: bool) -> asyncio.Queue[Entry | None]:
        """See `History.follow`. Raises Problem for one follower too many."""
        if not peer.administrator:
            self._bounds.check_followers(self.history.followed_by(peer.user))
        return self.history.follow(passive=passive, user=peer.user)

    def _count(self, peer: Peer) -> int:
        return sum(peer.owns(workload) for workload in self.state.workloads.values())

    def respecify(self, workload_id: WorkloadId, body: Mapping[str, Any], peer: Peer) -> None:
        """Change what a workload asks for, or for how long its user keeps it. Raises Problem."""
        workload = self._own(workload_id, peer)
        keep_s = submission.keep_s(body, workload.spec) if "keep_s" in body else None
        if body.keys() != {"keep_s"}:
            self._respecify(workload, body, peer)
        if keep_s is not None:
            at = awake_s()
            self.apply(events.KeepRequested(at, workload_id, at + keep_s if keep_s else None))

    def _allotted(
        self, body: Mapping[str, Any], peer: Peer, instead_of: WorkloadSpec | None = None
    ) -> tuple[Mapping[str, Any], tuple[GpuUuid, ...] | None]:
        """What the cluster lets `peer` have of it, and where; on a plain server everything. Raises Problem."""
        return (body, None) if self._cluster is None else self._cluster.allot(body, peer, instead_of)

    def _respecify(self, workload: Workload, body: Mapping[str, Any], peer: Peer) -> None:
        gpus = [gpu for gpu in self.state.gpus.values() if gpu.healthy]
        if not gpus:
            raise submission.no_gpu(self._poller.message, self.state.gpus.values(), simulated=self._simulated)
        body, home = self._allotted(body, peer, workload.spec)
        spec = submission.respecification(body, workload.spec, gpus, self.state.policy, peer.who)
        submission.check_count(workload, spec)
        submission.check_place(workload, spec)
        submission.check_saved(workload, spec)
        if (differs := joining.difference(spec, (other.spec for other in fellows(self.state, workload)))) is not None:
            raise impossible(differs)
        check_growth(self.state, workload, spec)
        if spec.demand != workload.spec.demand:
            check_limits(self.state, spec, workload)
        if spec.limit_bytes != workload.spec.limit_bytes:
            submission.check_context(spec, self._context_memory_bytes)
        if home is not None and home != workload.given_home:
            self.apply(events.HomeAssigned(awake_s(), workload.id, home))
        event = events.WorkloadRespecified(awake_s(), workload.id, spec)
        growing.check(self.state, step(self.state, event)[0], workload.id)
        self.apply(event)

    def release(self, workload_id: WorkloadId, peer: Peer, why: str = "") -> None:
        """End a workload; only its own user says why. Raises Problem."""
        workload = self._own(workload_id, peer)
        told = (peer.owns(workload) and why) or f"released by {peer.role(workload)}"
        self.apply(events.WorkloadReleased(awake_s(), workload_id, told))

    def suspend(self, workload_id: WorkloadId, peer: Peer) -> None:
        """Take a notebook off its Gpu until its next cell, if none waits already. Raises Problem."""
        workload = self._own(workload_id, peer)
        if workload.spec.kind is Kind.COMMAND:
            detail = "A command has no saved state to come back with: only notebooks can be suspended."
            raise Problem(409, "Not possible", detail)
        if workload.phase is Phase.FAILED:
            detail = "It has failed, and is on no GPU: `nls resume` gives it another try."
            raise Problem(409, "Not possible", detail)
        # Who has not reported since a restart may have ended that cell long since.
        if workload.cell_waits and workload_id not in self.state.unreported:
            detail = "A cell of it waits for the GPU, and brings it back: interrupt the cell, or wait for its end."
            raise Problem(409, "Not possible", detail)
        self.apply(events.SuspendRequested(awake_s(), workload_id, f"suspended by {peer.role(workload)}"))

    def resume(self, workload_id: WorkloadId, peer: Peer) -> None:
        """Bring a notebook back, or give a failed workload another try. Raises Problem."""
        self._own(workload_id, peer)
        self.apply(events.ResumeRequested(awake_s(), workload_id))

    def migrate(self, workload_id: WorkloadId, body: Mapping[str, Any], peer: Peer) -> None:
        """Move a workload to the Gpu that `body` names, now or at the end of its cell. Raises Problem."""
        workload = self._own(workload_id, peer)
        gpu = migration.wanted(body, workload, self.state)
        event = events.MigrateRequested(awake_s(), workload_id, gpu)
        migration.check(step(self.state, event)[0], workload, gpu, self.viewer(peer))
        self.apply(event)

    async def return_gpu(self, name: str, peer: Peer) -> dict[str, Any]:
        """An administrator says that a Gpu (UUID or index) is well again; its status entry. Raises Problem."""
        peer.require_administrator()
        uuid = next((gpu.uuid for gpu in self.state.gpus.values() if name in (gpu.uuid, str(gpu.index))), None)
        if uuid is not None:
            await self._poller.return_to_service(uuid)
        gpu = None if uuid is None else self.state.gpus.get(uuid)
        if gpu is None:
            raise unknown_gpu(name)
        return gpu_view(self.state, gpu, out_of_service(self.state))

    def tenant_of(self, pid: int) -> str:
        """Whose process this is where a cluster says so; empty: nobody's pod."""
        return "" if self._cluster is None else self._cluster.tenant_of(pid)

    def identified(self, peer: Peer) -> Peer:
        """`peer` as the cluster knows it. Raises Problem for one that nobody can tell who it is."""
        return peer if self._cluster is None else self._cluster.identified(peer)

    def may_start(self, body: Mapping[str, Any], peer: Peer) -> dict[str, Any]:
        """Whether a pod's containers may start, as `Start` in `openapi.json`. Raises Problem."""
        gives_up = body.get("gives_up", False)
        if not isinstance(gives_up, bool):
            raise malformed("The field 'gives_up' is true or false.")
        if self._cluster is None:
            raise Problem(409, "No cluster", "This node is in no cluster: nobody's start is held here.")
        return self._cluster.may_start(peer, gives_up=gives_up)

    def use(self, values: Mapping[str, Any]) -> None:
        """See `cluster.Host`."""
        if self._settings_with is not None:
            self.reconfigure(self._settings_with(values))
            self.cluster_values = values

    def reconfigure(self, settings: DaemonSettings) -> None:
        """Other numbers from now on. Raises Problem when they cannot be applied: the old ones stay."""
        self.apply(events.PolicyChanged(awake_s(), settings.policy))
        self._defaults, self._poller.rates, self.access = settings.defaults, settings.rates, settings.access
        self._bounds = settings.bounds
        self.refused_configuration = None
        self._poller.search()

    # What a supervisor's connection asks -------------------------------------------------------------------------

    def check_supervisor(self, workload_id: WorkloadId, peer: Peer) -> None:
        """Raises Problem unless `peer` may look after the workload: only its own user, never an administrator."""
        workload = self._own(workload_id, peer)
        if not peer.owns(workload):
            raise Problem(403, "Not your workload", "Only processes of the workload's own user may supervise it.")

    def attach(self, session: Session) -> None:
        """A supervisor is here: the lease is its, and what waited for it is sent."""
        workload = self.state.workloads.get(session.workload)
        if workload is None:
            session.close(CLOSE_ENDED, "")
            return
        self._connected.add(session)
        self._take_lease(workload.id, session.peer)
        if session.only:
            self._end_ghosts(session.peer)
        session.show(self.view(workload.id, session.peer), awake_s())
        order = outstanding(self.state, workload)
        if order is not None and not isinstance(order, EndProcess):
            session.order(order)

    def _end_ghosts(self, peer: Peer) -> None:
        """Workloads that a process does not know, or has given up: an answer, or the journal's end, was lost."""
        process = peer.process
        for other in tuple(self.state.workloads) if process is not None else ():
            if other not in self._connected and self._leases.holder(other) == process:
                self.apply(events.SupervisorLost(awake_s(), other, "its notebook has another place on the GPU"))

    def detach(self, session: Session) -> None:
        """Its connection is gone, which proves nothing about the process. Idempotent."""
        if self._connected.remove(session):
            self.active_at = awake_s()

    def hear(self, session: Session, text: str | bytes) -> None:
        """One message of a supervisor; a malformed one is answered and changes nothing."""
        try:
            event: events.Event = parse_event(text, session.workload, awake_s())
            if self._cluster is not None:
                event = self._cluster.localised(event, session.peer)
            named = event.process if isinstance(event, events.ProcessStarted | events.WorkloadReported) else None
            if named is not None:
                _check_process(named, session.peer)
            if isinstance(event, events.ProcessReady):
                _check_named(event, self.state.workloads.get(event.workload))
            self.apply(event)
        except Problem as problem:
            session.refuse(problem)

    async def encode(self, command: WorkloadCommand, peer: Peer) -> str | None:
        """An order as its supervisor `peer` gets it; `None` when it failed before it could be sent."""
        environment: Mapping[str, str] = {}
        if isinstance(command, StartProcess):
            try:
                environment = await self._poller.environment(command.gpus)
            except Exception as error:
                log.exception("no environment for %r", command)
                reason = f"the GPU driver failed: {error}"
                at, workload_id = awake_s(), command.workload
                self.apply_or_tell(events.StartFailed(at, workload_id, command.command_id, reason))
                return None
            environment = {**environment, WORKLOAD_VARIABLE: command.workload}
            environment |= {MARK_VARIABLE: self._passports.mark(command.workload)}
            environment |= {CONTEXT_VARIABLE: str(self._context_memory_bytes)}
            environment |= start_environment(self.state, command)
        viewer, cause = self.viewer(peer), self.state.mention(command.cause)
        reason = sentence(command.reason, Names.of(self.state, viewer))
        return encode_command(
            command, reason, None if cause is None else Cause(cause.id, viewer.calls(cause)), environment
        )

    def _known(self, workload_id: WorkloadId) -> Workload:
        workload = self.state.workloads.get(workload_id)
        if workload is None:
            raise unknown_workload(workload_id)
        return workload

    def _own(self, workload_id: WorkloadId, peer: Peer) -> Workload:
        workload = self._known(workload_id)
        peer.require(workload)
        return workload


def _not_shown() -> Problem:
    detail = "Only who supervised a workload can bring it back, by the secret that it was told: submit it anew."
    return Problem(403, "Not your workload", detail)


def _check_named(event: events.ProcessReady, workload: Workload | None) -> None:
    """What is ready was named before. Raises Problem; an answer that comes too late is fine."""
    pending = None if workload is None or workload.process is not None else workload.pending
    if pending is not None and pending.command_id == event.command_id:
        detail = "No process was reported that could be ready: report the GPU process that you started."
        raise Problem(409, "No such process", detail)


def _check_process(process: ProcessId, peer: Peer) -> None:
    """A supervisor may name its own user's processes, and what it has started, whosever that is by now (sudo).

    Raises Problem; one that has ended already is fine.
    """
    record = look_up(process.pid)
    if record is None or record.id != process or peer.uid in (0, record.uid):
        return
    if peer.process not in {above.id for above in ancestors(record.parent_pid)}:
        detail = f"Process {process.pid} belongs to another user: report the GPU process that you started."
        raise Problem(403, "Not your process", detail)
