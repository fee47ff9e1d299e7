"""This project's daemon: its own `step`, with supervisors and GPU processes that take as long as `Costs` says.

Source: `nls_scheduler.core`. What is asked for is what `nls up` decides, in the same order (a test plays one workload
with both). In virtual time the driver is asked whenever memory has changed, instead of twice a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StartProcess, StopProcess, SuspendProcess, TrimMemory
from nls_scheduler.core.model.policy import Policy as Rules
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.values import replace
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.what_if.policies.base import Base

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.core.model.commands import WorkloadCommand
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.what_if.play.stage import Actor, Stage
    from nls_scheduler.what_if.workload_file.rows import Cell

ON_DEMAND: Final = 8.0
"""`oversubscribe` of the second one: idle notebooks of that many nodes may be in host memory."""


class Ours(Base):
    """Every request is guaranteed at all times."""

    name = "nls"
    title = "nls-jupyter"

    def __init__(self, stage: Stage, rules: Rules | None = None, *, watched: bool = False) -> None:
        super().__init__(stage)
        self.node = SimulatedNode.of(stage.gpus, stage.gpu_bytes, self.rules(rules or Rules()), watched=watched)
        self.node.context_bytes = int(stage.costs.context_bytes)
        self._ids: dict[Actor, WorkloadId] = {}
        self._actors: dict[WorkloadId, Actor] = {}
        self._under_way: set[int] = set()
        self._timer_at: float | None = None
        self._wanted: dict[Actor, tuple[int, int]] = {}
        self._held_by: dict[Actor, tuple[str, ...]] = {}
        self._gave_way = (-1.0, "")
        self._reserved = 0.0

    def rules(self, rules: Rules) -> Rules:
        """Those of the daemon, as they were given."""
        return rules

    def arrives(self, actor: Actor) -> None:
        """Submitted, as `%gpu request` does, or `nls run` without a limit of its own: that is never stopped."""
        self._now()
        kind = Kind.COMMAND if actor.is_command else Kind.NOTEBOOK
        self.node.submit(
            name=actor.name,
            kind=kind,
            request_bytes=actor.request_bytes,
            limit_bytes=actor.request_bytes if actor.is_command else actor.limit_bytes,
            priority=actor.priority,
            queue=actor.queue,
        )
        workload_id = next(reversed(self.node.workloads))
        self._ids[actor], self._actors[workload_id] = workload_id, actor
        self._follow()

    def asks(self, actor: Actor) -> None:
        """A cell starts, or begins to wait."""
        self._held_by.pop(actor, None)
        workload_id = self._ids[actor]
        if actor.is_command:
            if actor.next_memory_bytes > actor.request_bytes:
                self._stage.fail(actor)
                return
            memory = actor.next_memory_bytes + self.node.context_bytes
            self.node.workloads[workload_id].from_start_bytes = min(memory, actor.request_bytes)
        else:
            self._now()
            self.node.tell(ev.CellStarted(self.node.now, workload_id))
        self._follow()

    def finished(self, actor: Actor, cell: Cell) -> None:
        """What variables hold is saved; what allocators cache besides stays where it is."""
        self._now()
        workload_id = self._ids[actor]
        if actor.is_command:
            self.node.end_well(workload_id)
        else:
            self.node.finish_cell(workload_id)
            cached = max(0, self._held(workload_id) - self.node.context_bytes - cell.state_bytes)
            self.node.hold(workload_id, cell.state_bytes + self.node.context_bytes, cached)
        self._gives_way(actor)
        self._follow()

    def leaves(self, actor: Actor) -> None:
        """Its user shuts it down."""
        self._now()
        workload_id = self._ids.pop(actor)
        self._wanted.pop(actor, None)
        self._held_by.pop(actor, None)
        if workload_id in self.node.state.workloads:
            if self.node.workloads[workload_id].executing:
                self.node.finish_cell(workload_id)
            self.node.release(workload_id)
        self.node.sample()
        self._gives_way(actor)
        self._follow()

    def _now(self) -> None:
        self.node.now = self._stage.now

    def _follow(self) -> None:
        """Whatever was ordered is on its way, whoever has its Gpu computes, and the timer is set."""
        for command in self.node.pending:
            if command.command_id not in self._under_way:
                self._under_way.add(command.command_id)
                self._stage.at(self._stage.now + self._takes_s(command), self._completes(command))
                self._note_cause(command)
        timer_at = self.node.state.timer_at
        if timer_at is not None and timer_at != self._timer_at:
            self._timer_at = timer_at
            self._stage.at(timer_at, self._fires(timer_at))
        for actor in list(self._ids):
            if actor.asked_at is not None:
                self._begin(actor)
        self._note_lines()
        self._note_reserved()

    def _takes_s(self, command: WorkloadCommand) -> float:
        costs, workload = self._stage.costs, self.node.workloads[command.workload]
        match command:
            case StartProcess():
                state_bytes = max(0, workload.held_bytes - self.node.context_bytes) if workload.saved else 0
                return costs.order_s + costs.start_s(state_bytes, standing_by=True)
            case SuspendProcess():
                saved = workload.saved and self.node.state.workloads[command.workload].saved_bytes is not None
                save_s = 0.0 if saved else workload.held_bytes / costs.save_bytes_per_s
                return costs.order_s + save_s + costs.stop_s
            case StopProcess():
                return costs.order_s + costs.stop_s
            case _:
                return costs.order_s

    def _completes(self, command: WorkloadCommand) -> Callable[[], None]:
        def complete() -> None:
            self._under_way.discard(command.command_id)
            if command not in self.node.pending or command.workload not in self.node.state.workloads:
                return
            self._now()
            workload = self.node.workloads[command.workload]
            executed = workload.executing
            self.node.complete(command)
            actor = self._actors[command.workload]
            if executed and not workload.executing:
                self._wanted.pop(actor, None)
                if actor.gpu is not None:
                    self._stage.break_off(actor)
                elif actor.asked_at is not None:  # it was waiting for memory
                    self.asks(actor)
            self._note_move(command)
            self._stage.at(self._stage.now + self._seen_after_s(command), lambda: self._sees(actor))

        return complete

    def _seen_after_s(self, command: WorkloadCommand) -> float:
        return 0.0 if isinstance(command, StartProcess | TrimMemory) else self._stage.costs.release_s

    def _sees(self, actor: Actor) -> None:
        self._now()
        self.node.sample()
        self._gives_way(actor)
        self._follow()

    def _fires(self, at: float) -> Callable[[], None]:
        def fire() -> None:
            if self.node.state.timer_at == at and self._timer_at == at:
                self._now()
                self.node.tell(ev.TimerFired(self.node.now))
                self._timer_at = None
                self.node.sample()
                self._follow()

        return fire

    def _begin(self, actor: Actor) -> None:
        """Its cell computes if its process is there and has the memory that it needs; else it waits, or fails."""
        workload_id = self._ids[actor]
        known, simulated = self.node.state.workloads.get(workload_id), self.node.workloads[workload_id]
        if known is None or known.phase is not Phase.RUNNING or simulated.process is None:
            return
        simulated.executing = not actor.is_command
        if not actor.is_command:
            growth = actor.next_memory_bytes + self.node.context_bytes - simulated.process.held_bytes
            if growth > 0 and not self._may_grow(actor, growth):
                return
        gpu = self.node.state.gpus[simulated.process.gpus[0]].index
        self._stage.compute(actor, gpu, held_by=self._held_by.pop(actor, ()))

    def _may_grow(self, actor: Actor, growth: int) -> bool:
        """As an allocator does: within what the daemon allows, else it asks, and the cell waits for the answer."""
        workload_id = self._ids[actor]
        process = self.node.workloads[workload_id].process
        known = self.node.state.workloads[workload_id]
        if process is None:
            return False
        if actor in self._wanted:
            number, growth = self._wanted[actor]
            if known.wanted is not None:
                return False
            del self._wanted[actor]
            if known.answer is None or known.answer.number != number:
                return self._may_grow(actor, growth)  # it went with its process: the next one asks again
            if not known.answer.granted:
                self._now()
                self.node.finish_cell(workload_id)
                self._stage.fail(actor)
                return False
        elif process.held_bytes + growth > self._allowed(workload_id) or growth > self._free(process.gpus[0]):
            self._now()
            self._wanted[actor] = (self.node.want_memory(workload_id, growth), growth)
            self.node.sample()
            self._stage.at(self._stage.now, self._follow)
            return False
        process.held_bytes += growth
        process.cached_bytes = 0
        self._now()
        self.node.sample()
        return True

    def _allowed(self, workload_id: WorkloadId) -> int:
        entry = self.node.state.plan.get(workload_id)
        return 0 if entry is None else entry.allowance_bytes

    def _free(self, uuid: GpuUuid) -> int:
        used = sum(p.held_bytes for p in self.node.processes if (p.alive or p.lingers) and uuid in p.gpus)
        return self._stage.gpu_bytes - used

    def _held(self, workload_id: WorkloadId) -> int:
        process = self.node.workloads[workload_id].process
        return 0 if process is None else process.held_bytes

    def _gives_way(self, actor: Actor) -> None:
        self._gave_way = self._stage.now, actor.name

    def _note_cause(self, command: WorkloadCommand) -> None:
        """A cell waits for whoever has to go for it; else for whoever gave way in the moment it gets its place."""
        for actor, workload_id in self._ids.items():
            if actor.asked_at is not None and command.cause == workload_id:
                self._held_by[actor] = (self._actors[command.workload].name,)
        actor, (at, by) = self._actors[command.workload], self._gave_way
        gets_it = isinstance(command, StartProcess) and actor.asked_at is not None
        if gets_it and at == self._stage.now and by != actor.name:
            self._held_by.setdefault(actor, (by,))

    def _note_lines(self) -> None:
        """Who has no home yet has no place."""
        for actor, workload_id in self._ids.items():
            entry = self.node.state.plan.get(workload_id)
            in_line = entry is None or not entry.home
            if in_line and not actor.in_line:
                self._stage.line_up(actor)
            elif actor.in_line and not in_line:
                self._stage.let_in(actor)

    def _note_move(self, command: WorkloadCommand) -> None:
        """Started with what was saved: on another Gpu, or where it was."""
        workload = self.node.workloads[command.workload]
        state_bytes = max(0, workload.held_bytes - self.node.context_bytes)
        if isinstance(command, StartProcess) and workload.saved:
            self._stage.figures.moved(self._stage.now, state_bytes)

    def _note_reserved(self) -> None:
        """Requests of those who are on a Gpu: nobody else can have them meanwhile."""
        held = sum(w.spec.request_bytes for w in self.node.state.workloads.values() if w.present)
        reserved = held / self._stage.gpu_bytes
        if reserved != self._reserved:
            self._stage.reserve(reserved - self._reserved)
            self._reserved = reserved


class OursOnDemand(Ours):
    """More is promised than there is: who is idle gives way, and comes back with its next cell."""

    name = "nls-on-demand"
    title = "nls-jupyter, requests on demand"

    def rules(self, rules: Rules) -> Rules:
        """Beside what was given, `oversubscribe`."""
        return replace(rules, oversubscribe=max(ON_DEMAND, rules.oversubscribe))
