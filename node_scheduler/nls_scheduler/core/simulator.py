"""A node in virtual time: simulated supervisors, processes and memory around the real `step`.

Used by the property and story tests, by benchmarks and by `nls simulate`. What happens next is the caller's choice (or
a seed's): each command becomes an action that can be completed in any order, or made to fail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nls_scheduler.core.invariants import InvariantError, check
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.core.model.commands import (
    EndProcess,
    FreezeProcess,
    InterruptCell,
    ReportRefusal,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
    WorkloadCommand,
)
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import CommandId, GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.planning.homes.assign import why_no_room
from nls_scheduler.core.step import step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_scheduler.core.model.commands import Command
    from nls_scheduler.core.model.events import Event
    from nls_scheduler.core.model.reasons import Why
    from nls_scheduler.core.model.workload import Workload

GIB = 2**30
_MANY_TIMERS = 1000
_FROM_OTHERS = (
    ev.WorkloadSubmitted,
    ev.WorkloadRespecified,
    ev.WorkloadReleased,
    ev.WorkloadReported,
    ev.HomeAssigned,
    ev.SupervisorLost,
    ev.SuspendRequested,
    ev.ResumeRequested,
    ev.KeepRequested,
    ev.MigrateRequested,
)


_ORDERS: Mapping[type, str] = {StartProcess: "start", SuspendProcess: "suspend"}


@dataclass
class SimulatedProcess:
    """A GPU process of the virtual node: `held_bytes` on each of `gpus` while `alive` or until seen gone.

    Attributes:
        cached_bytes: part of that which no variable uses: a trim gives it back, and it is never saved.
        frozen: all of that is in host memory.
    """

    id: ProcessId
    workload: WorkloadId
    gpus: tuple[GpuUuid, ...]
    held_bytes: int
    cached_bytes: int = 0
    frozen: bool = False
    alive: bool = True
    lingers: bool = False


@dataclass
class SimulatedWorkload:
    """The supervisor's side of a workload: what is saved, and what the next process will hold.

    Attributes:
        from_start_bytes: what each of its processes comes to hold by itself, as a command's does.
    """

    id: WorkloadId
    spec: WorkloadSpec
    held_bytes: int
    from_start_bytes: int = 0
    saved: bool = False
    process: SimulatedProcess | None = None
    executing: bool = False
    last_command: int = 0


@dataclass
class SimulatedNode:
    """The whole node. `history` holds every event with the commands it led to.

    Attributes:
        watched: whether invariants are checked after each step and the history is kept; not where weeks are played.
        pending: commands sent and not answered yet, oldest first.
        context_bytes: memory of a process that has allocated nothing.
        silent: of which Gpus the driver tells nothing.
        deaf: whether cells ignore that they are interrupted.
        freezes: whether the driver can freeze processes in place.
        host_bytes: what of them fits into host memory; `None`: whatever they hold.
    """

    state: NodeState = field(default_factory=NodeState)
    now: float = 0.0
    watched: bool = True
    context_bytes: int = GIB // 4
    workloads: dict[WorkloadId, SimulatedWorkload] = field(default_factory=dict)
    processes: list[SimulatedProcess] = field(default_factory=list)
    pending: list[WorkloadCommand] = field(default_factory=list)
    strangers: dict[GpuUuid, int] = field(default_factory=dict)
    silent: set[GpuUuid] = field(default_factory=set)
    history: list[tuple[Event, tuple[Command, ...]]] = field(default_factory=list)
    deaf: bool = False
    freezes: bool = False
    host_bytes: int | None = None
    down: bool = False
    unreported: set[WorkloadId] = field(default_factory=set)
    _no_room: set[CommandId] = field(default_factory=set)
    _in_hand: list[WorkloadCommand] = field(default_factory=list)
    _gpus: tuple[Gpu, ...] = ()
    _next_pid: int = 100
    _next_workload: int = 1
    _next_wanted: int = 1

    @classmethod
    def of(
        cls,
        gpus: int = 2,
        memory_bytes: int = 16 * GIB,
        policy: Policy | None = None,
        connect: Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]] = lambda gpus: gpus,
        *,
        watched: bool = True,
    ) -> SimulatedNode:
        """A node with `gpus` equal Gpus, discovered and sampled; `connect` adds how they are connected."""
        node = cls(state=NodeState(policy=policy or Policy()), watched=watched)
        found = connect(tuple(Gpu(GpuUuid(f"GPU-{i}"), i, "Simulated GPU", memory_bytes) for i in range(gpus)))
        node._gpus = found
        node.tell(ev.GpusDiscovered(node.now, found))
        node.sample()
        return node

    def tell(self, event: Event) -> tuple[Command, ...]:
        """Feed one event to `step`, check every invariant, and keep the commands for later completion.

        Nothing that was planned may be refused. Raises InvariantError.
        """
        if self.down:
            return ()
        if isinstance(event, ev.WorkloadEvent) and not isinstance(event, _FROM_OTHERS):
            self._report_first(event.workload)
        before = self.state
        self.state, commands = step(before, event)
        if self.watched:
            self.history.append((event, commands))
        if refused := [c for c in commands if isinstance(c, ReportRefusal)]:
            raise InvariantError(f"what was planned is refused: {refused}")
        if self.watched:
            check(before, self.state, commands)
        for command in commands:
            if isinstance(command, WorkloadCommand):
                self.pending = [p for p in self.pending if p.workload != command.workload] + [command]
            if isinstance(command, FreezeProcess) and not self._has_room(command):
                self._no_room.add(command.command_id)
        return commands

    def _has_room(self, command: FreezeProcess) -> bool:
        """Looked up when the order comes, as supervisors do: what others take after that, it cannot see."""
        process = self.workloads[command.workload].process
        if self.host_bytes is None or process is None:
            return True
        frozen_bytes = sum(other.held_bytes for other in self.processes if other.frozen and other.alive)
        return process.held_bytes + command.beside_bytes <= self.host_bytes - frozen_bytes

    def _report_first(self, workload_id: WorkloadId) -> None:
        if workload_id in self.unreported:
            self.report(workload_id)

    def go_down(self) -> None:
        """The daemon dies: what happens from now on is told to nobody, until `come_back`."""
        self.down = True

    def come_back(self) -> None:
        """The daemon starts again from its journal; every supervisor has yet to report."""
        self.down = False
        self.state = decode(json.loads(json.dumps(encode(replace(self.state, plan={}, settled=False)))))
        self.unreported = set(self.state.workloads)
        self.tell(ev.DaemonRestarted(self.now))
        # An order that was not answered is sent again; one that was carried out meanwhile is answered by the report.
        self.pending = [c for c in self.pending if c.command_id > self.workloads[c.workload].last_command]
        self._in_hand = list(self.pending)
        self.sample()

    def come_back_behind(self, known: NodeState) -> None:
        """The daemon starts again from a journal that has lost its end: it knows `known`, and today's rules.

        Whose end it does not know of is looked after by nobody any more.
        """
        ended = known.workloads.keys() - self.state.workloads.keys()
        self.state = replace(known, policy=self.state.policy)
        self.come_back()
        self.unreported -= ended
        for workload_id in sorted(ended):
            self.tell(ev.SupervisorLost(self.now, workload_id, "the process that looked after it has ended"))

    def come_back_forgetful(self) -> None:
        """The daemon starts again without its journal: nothing is known, every process on a Gpu is a stranger's."""
        self.down = False
        self.state = NodeState(policy=self.state.policy)
        self.unreported, self.pending = set(), []
        self.tell(ev.DaemonRestarted(self.now, forgetful=True))
        self.tell(ev.GpusDiscovered(self.now, self._gpus))
        self.sample()

    def bring_back(self, workload_id: WorkloadId) -> bool:
        """A supervisor that the daemon no longer knows brings its workload back; False: there is no room for it."""
        workload, process = self.workloads[workload_id], self.workloads[workload_id].process
        if process is None:
            raise ValueError(f"{workload_id} has no process to bring back")
        saved_bytes = workload.held_bytes if workload.saved else None
        uses = {uuid: (ev.PlacedUse(workload_id, process.id, process.held_bytes),) for uuid in process.gpus}
        last = CommandId(workload.last_command)
        event = ev.WorkloadAdopted(
            self.now,
            workload_id,
            workload.spec,
            context_bytes=0,
            command_id=last,
            process=process.id,
            gpus=process.gpus,
            executing=workload.executing,
            saved_bytes=saved_bytes,
            uses={} if process.frozen else uses,
            frozen_bytes=process.held_bytes if process.frozen else None,
        )
        if why_no_room(self.state, step(self.state, event)[0], workload_id) is not None:
            return False
        self.tell(event)
        return True

    def report(self, workload_id: WorkloadId) -> None:
        """A supervisor has connected again."""
        self.unreported.discard(workload_id)
        workload = self.workloads[workload_id]
        process = workload.process
        saved_bytes = workload.held_bytes if workload.saved else None
        in_hand = (c for c in self.pending if c.workload == workload_id and any(c is one for one in self._in_hand))
        doing = next(in_hand, None)
        starting = doing.gpus if isinstance(doing, StartProcess) else ()
        order = "" if doing is None else _ORDERS.get(type(doing), "something else")
        self.tell(
            ev.WorkloadReported(
                self.now,
                workload_id,
                CommandId(workload.last_command),
                process.id if process else None,
                ready=process is not None,
                executing=workload.executing,
                saved_bytes=saved_bytes,
                received=CommandId(workload.last_command if doing is None else doing.command_id),
                frozen_bytes=process.held_bytes if process and process.frozen else None,
                gpus=process.gpus if process else starting,
                doing=order,
            )
        )

    def submit(
        self,
        held_bytes: int | None = None,
        given_home: tuple[GpuUuid, ...] | None = None,
        from_start_bytes: int = 0,
        **wanted: object,
    ) -> WorkloadId:
        """A new workload. `wanted` are WorkloadSpec's fields (a notebook of 8 of 16 GiB by default)."""
        number, self._next_workload = self._next_workload, self._next_workload + 1
        fields: dict[str, object] = {
            "name": f"w{number}",
            "kind": Kind.NOTEBOOK,
            "owner": 1000,
            "request_bytes": 8 * GIB,
            "limit_bytes": 16 * GIB,
        }
        spec = WorkloadSpec(**{**fields, **wanted})  # type: ignore[arg-type]  # keyword tests of many shapes
        workload = SimulatedWorkload(WorkloadId(f"w{number}"), spec, held_bytes or self.context_bytes, from_start_bytes)
        self.workloads[workload.id] = workload
        self.tell(ev.WorkloadSubmitted(self.now, workload.id, spec, given_home=given_home))
        return workload.id

    def sample(self) -> None:
        """Ask the virtual driver: memory of every process that lives or lingers."""
        self.processes = [p for p in self.processes if p.alive or p.lingers]
        readings = {}
        for uuid in (uuid for uuid in self.state.gpus if uuid not in self.silent):
            here = [p for p in self.processes if uuid in p.gpus and not p.frozen]
            known = [p for p in here if p.workload in self.state.workloads or p.id in self._releasing()]
            placed = tuple(ev.PlacedUse(p.workload, p.id, p.held_bytes) for p in known)
            foreign = self.strangers.get(uuid, 0)
            unplaced: dict[ProcessId, int | None] = {ProcessId(1, 1): foreign} if foreign else {}
            unplaced |= {p.id: p.held_bytes for p in here if p not in known}
            used = foreign + sum(p.held_bytes for p in here)
            readings[uuid] = ev.GpuReading(used, placed, unplaced)
        self.tell(ev.MemorySampled(self.now, readings))

    def _releasing(self) -> set[ProcessId]:
        return {r.process for gpu in self.state.gpus.values() for r in gpu.releasing}

    def hold(self, workload_id: WorkloadId, held_bytes: int, cached_bytes: int = 0) -> None:
        """The workload's process holds `held_bytes` from now on, which is saved, and caches `cached_bytes` besides."""
        workload = self.workloads[workload_id]
        if workload.process is not None:
            workload.held_bytes = held_bytes
            workload.process.held_bytes, workload.process.cached_bytes = held_bytes + cached_bytes, cached_bytes
            if workload.spec.kind is Kind.NOTEBOOK:
                workload.saved = True
                self.tell(ev.StateSaved(self.now, workload_id, held_bytes))
        self.sample()

    def want_memory(self, workload_id: WorkloadId, size_bytes: int) -> int:
        """An allocation of its running cell fails. Returns its number; the record's `answer` names it."""
        workload = self.workloads[workload_id]
        if workload.process is None:
            raise ValueError(f"{workload_id} has no process that could allocate")
        number, self._next_wanted = self._next_wanted, self._next_wanted + 1
        gpu, held = workload.process.gpus[0], workload.process.held_bytes
        self.tell(ev.MemoryWanted(self.now, workload_id, number, gpu, size_bytes, held))
        return number

    def start_cell(self, workload_id: WorkloadId) -> None:
        """A cell starts, or begins to wait."""
        self.workloads[workload_id].executing = True
        self.tell(ev.CellStarted(self.now, workload_id))

    def finish_cell(self, workload_id: WorkloadId) -> None:
        """The cell ends."""
        self.workloads[workload_id].executing = False
        self.tell(ev.CellFinished(self.now, workload_id))

    def release(self, workload_id: WorkloadId) -> None:
        """Its user needs no GPU any more."""
        self.tell(ev.WorkloadReleased(self.now, workload_id, "released by its user"))

    def kill(self, workload_id: WorkloadId) -> None:
        """Its GPU process is killed from outside, as by the OOM killer."""
        workload = self.workloads[workload_id]
        if workload.process is not None:
            self.pending = [p for p in self.pending if p.workload != workload_id]
            self._exits(workload, "killed by SIGKILL")

    def end_well(self, workload_id: WorkloadId) -> None:
        """A command has done its work and exits with code 0."""
        workload = self.workloads[workload_id]
        if workload.process is not None:
            self.pending = [p for p in self.pending if p.workload != workload_id]
            self._exits(workload, "exited with code 0", code=0)

    def complete(self, command: WorkloadCommand, *, fail: bool = False) -> None:
        """Answer one pending command."""
        if not self.down:
            self._report_first(command.workload)
            if command not in self.pending:
                return  # what the report told has overtaken it
        self.pending.remove(command)
        workload = self.workloads[command.workload]
        workload.last_command = command.command_id
        match command:
            case StartProcess():
                self._complete_start(workload, command, fail=fail)
            case SuspendProcess():
                self._complete_suspend(workload, command, fail=fail)
            case FreezeProcess():
                self._complete_freeze(workload, command, fail=fail)
            case ThawProcess():
                self._complete_thaw(workload, command, fail=fail)
            case InterruptCell():
                self.tell(ev.CellInterrupted(self.now, workload.id, command.command_id))
                if workload.executing and not fail and not self.deaf:
                    self.finish_cell(workload.id)
            case TrimMemory():
                if workload.process is not None and not fail:
                    workload.process.held_bytes -= workload.process.cached_bytes
                    workload.process.cached_bytes = 0
                self.tell(ev.MemoryTrimmed(self.now, workload.id, command.command_id))
            case StopProcess() | EndProcess():
                self._exits(workload, command.reason)

    def _complete_start(self, workload: SimulatedWorkload, command: StartProcess, *, fail: bool) -> None:
        if fail:
            self.tell(ev.StartFailed(self.now, workload.id, command.command_id, "no memory for the context"))
            return
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        held = workload.held_bytes if workload.saved else max(self.context_bytes, workload.from_start_bytes)
        process = SimulatedProcess(ProcessId(pid, pid), workload.id, command.gpus, held)
        workload.process = process
        self.processes.append(process)
        self.tell(ev.ProcessStarted(self.now, workload.id, command.command_id, process.id))
        self.tell(ev.ProcessReady(self.now, workload.id, command.command_id))
        if self.freezes:
            self.tell(ev.FreezeTested(self.now, workload.id, None))

    def _complete_freeze(self, workload: SimulatedWorkload, command: FreezeProcess, *, fail: bool) -> None:
        process = workload.process
        if fail or process is None or not workload.executing or command.command_id in self._no_room:
            why = "managed memory is in use" if fail else "no cell runs any more, or host memory has no room"
            self.tell(ev.FreezeFailed(self.now, workload.id, command.command_id, why))
            return
        process.frozen = True
        self.tell(ev.ProcessFrozen(self.now, workload.id, command.command_id, process.held_bytes))

    def _complete_thaw(self, workload: SimulatedWorkload, command: ThawProcess, *, fail: bool) -> None:
        process = workload.process
        if fail or process is None or process.gpus != command.gpus:
            self.tell(ev.ThawFailed(self.now, workload.id, command.command_id, "the driver had no memory for it"))
            return
        process.frozen = False
        self.tell(ev.ProcessThawed(self.now, workload.id, command.command_id))

    def _complete_suspend(self, workload: SimulatedWorkload, command: SuspendProcess, *, fail: bool) -> None:
        busy = workload.executing or workload.process is None
        if fail or busy:
            reason = "a cell is running, or there is no process" if busy else "host memory is full"
            self.tell(ev.SuspendFailed(self.now, workload.id, command.command_id, reason, busy=busy))
            return
        workload.saved = True
        self._end(workload)
        self.tell(ev.ProcessSuspended(self.now, workload.id, command.command_id, workload.held_bytes))

    def _exits(self, workload: SimulatedWorkload, reason: str | Why, code: int | None = None) -> None:
        """Its process is gone, if it had one; the cell that ran in it ends with an error."""
        in_a_cell = workload.executing and workload.process is not None
        process = self._end(workload).id if workload.process else None
        self.tell(ev.ProcessExited(self.now, workload.id, process, reason, code))
        if in_a_cell:
            self.finish_cell(workload.id)

    def _end(self, workload: SimulatedWorkload) -> SimulatedProcess:
        process = workload.process
        if process is None:
            raise ValueError(f"{workload.id} has no process to end")
        process.alive, workload.process, workload.executing = False, None, False
        return process

    def settle(self, limit: int = 200) -> int:
        """Answer everything that is pending, sample, and repeat until nothing happens. Returns the commands used."""
        used = 0
        for workload_id in sorted(self.unreported & self.state.workloads.keys()):
            self.report(workload_id)
        while self.pending:
            self.complete(self.pending[0])
            self.sample()
            used += 1
            if used > limit:
                raise AssertionError(f"the node does not settle: {self.history[-12:]}")
        self.sample()
        return used + (self.settle(limit) if self.pending else 0)

    def advance(self, seconds: float) -> None:
        """Let virtual time pass; timers that are due fire in order, what they cause is completed at once."""
        end = self.now + seconds
        fired = 0
        while self.state.timer_at is not None and self.state.timer_at <= end:
            fired += 1
            if fired > _MANY_TIMERS:
                raise AssertionError(f"timers fire without end: {self.history[-12:]}")
            self.now = max(self.now, self.state.timer_at)
            self.tell(ev.TimerFired(self.now))
            self.settle()
        self.now = end
        self.sample()
        self.settle()

    def fire_timer(self) -> None:
        """Jump to the next timer and fire it, completing nothing."""
        if self.state.timer_at is not None:
            self.now = max(self.now, self.state.timer_at)
            self.tell(ev.TimerFired(self.now))

    def set_health(self, uuid: GpuUuid, *, healthy: bool) -> None:
        """A Gpu becomes unhealthy, or is back."""
        changed = [replace(g, healthy=healthy) if g.uuid == uuid else g for g in self.state.gpus.values()]
        self.tell(ev.GpusDiscovered(self.now, tuple(changed)))
        self.sample()

    def of_workload(self, workload_id: WorkloadId) -> Workload:
        """The daemon's record of a workload."""
        return self.state.workloads[workload_id]

    def where(self, workload_id: WorkloadId) -> str:
        """A short text for tests: the phase, and the current Gpus' indexes for a phase that has them."""
        workload = self.state.workloads[workload_id]
        if workload.phase in (Phase.QUEUED, Phase.SUSPENDED, Phase.FAILED):
            return str(workload.phase)
        return f"{workload.phase} on {','.join(str(self.state.gpus[g].index) for g in workload.current)}"
