"""Random histories of a node: events, completion orders, deaths and failures in any order.

Every step is held against `invariants.check`; the sentences below hold besides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from at_rest import comes_to_rest
from connections import joined, pairs
from effort import examples
from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import StopProcess
from nls_scheduler.core.model.gangs import fellows
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Placement, Pool
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.topology import Link
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.core.step import step
from nls_scheduler.requests import growing, joining
from nls_scheduler.requests.queue_access import check_growth
from nls_scheduler.wire.errors import Problem

if TYPE_CHECKING:
    from unittest import TestCase

PARENT = GpuUuid("GPU-with-slices")
WITHOUT_PROCESS = (Phase.QUEUED, Phase.SUSPENDED)
quarters = st.integers(1, 16)
rules = {
    "placement": st.sampled_from([Placement.SPREAD, Placement.SPREAD, Placement.BINPACK]),
    "max_workloads_per_gpu": st.sampled_from([None, 2, 5]),
    "idle_suspend_s": st.sampled_from([None, None, 20.0]),
    "oversubscribe": st.sampled_from([1.0, 1.0, 1.5, 2.0]),
}
second_pool = st.builds(Pool, name=st.just("second"), gpus=st.just(("1", "3")), enabled=st.booleans(), **rules)
policies = st.builds(Policy, pools=st.one_of(st.just(()), st.tuples(second_pool)), **rules)


QUEUES = ("default", "a", "a1", "b")
"""Those that nobody has configured count as the first."""
connections = st.sampled_from([joined(), joined(numa=2), pairs((0, 1), (2, 3)), joined((Link.SWITCH, (1, 2)))])


def sliced(connect, slices):
    """The last two Gpus are slices of one."""
    if not slices:
        return connect

    def both(gpus):
        return tuple(replace(gpu, parent=PARENT) if gpu.index >= 2 else gpu for gpu in connect(gpus))

    return both


class Histories(RuleBasedStateMachine):
    """One node and everything that can happen to it."""

    written = None
    "What a daemon knows that loses what could not be written; `None`: all is written."

    @initialize(
        policy=policies, gpus=st.integers(1, 4), strangers=st.booleans(), connect=connections, slices=st.booleans()
    )
    def start(self, policy, gpus, strangers, connect, slices):
        self.node = SimulatedNode.of(gpus, 16 * GIB, policy, sliced(connect, slices))
        self.foreign = strangers

    def pick(self, choice, having=None):
        known = {w: s for w, s in self.node.workloads.items() if w in self.node.state.workloads}
        ids = sorted(w for w, s in known.items() if having is None or having(s))
        return ids[choice % len(ids)] if ids else None

    @rule(
        request=quarters,
        burst=st.integers(0, 16),
        priority=st.integers(0, 2),
        kind=st.sampled_from(Kind),
        requeue=st.booleans(),
        gpus=st.sampled_from([1, 1, 1, 2]),
        pools=st.sampled_from([("default",), ("default",), ("second",), ("second", "default")]),
    )
    def submit(self, request, burst, priority, kind, requeue, gpus, pools):
        self.node.submit(
            pools=pools,
            kind=kind,
            request_bytes=request * GIB,
            limit_bytes=min(16, request + burst) * GIB,
            priority=priority,
            requeue=requeue and kind is Kind.COMMAND,
            gpu_count=gpus if kind is Kind.COMMAND else 1,
        )

    @rule(
        request=quarters,
        members=st.integers(1, 4),
        missing=st.integers(0, 1),
        priority=st.integers(0, 2),
        burst=st.sampled_from([0, 0, 4]),
        requeue=st.booleans(),
        name=st.sampled_from(["red", "blue"]),
        queue=st.sampled_from(QUEUES),
    )
    def submit_gang(self, request, members, missing, priority, burst, requeue, name, queue):
        """As a daemon takes them in: who does not fit into the gang of that name is refused."""
        for _ in range(members):
            sizes = {"request_bytes": request * GIB, "limit_bytes": min(16, request + burst) * GIB}
            fields = {**sizes, "gang": name, "queue": queue}
            fields |= {"kind": Kind.COMMAND, "priority": priority, "requeue": requeue, "gang_size": members + missing}
            spec = WorkloadSpec(name=name, owner=1000, **fields)
            state = self.node.state
            if joining.refusal(spec, state.workloads.values(), state.gpus.values(), state.policy) is None:
                self.node.submit(**fields)

    @rule(
        fewest=st.integers(1, 2),
        more=st.integers(1, 3),
        request=quarters,
        requeue=st.booleans(),
        queue=st.sampled_from(QUEUES),
    )
    def submit_elastic(self, fewest, more, request, requeue, queue):
        fields = {"request_bytes": request * GIB, "limit_bytes": request * GIB, "requeue": requeue, "queue": queue}
        self.node.submit(kind=Kind.COMMAND, gpu_count=fewest, gpu_count_max=fewest + more, **fields)

    @rule(choice=st.integers(0, 50))
    def ends_well(self, choice):
        workload = self.pick(choice, lambda s: s.process is not None and s.spec.kind is Kind.COMMAND)
        if workload is not None:
            self.node.end_well(workload)

    @rule(choice=st.integers(0, 50), gpu=st.integers(0, 3))
    def user_migrates(self, choice, gpu):
        workload = self.pick(choice, lambda s: s.spec.movable)
        uuids = sorted(self.node.state.gpus)
        if workload is not None:
            self.node.tell(ev.MigrateRequested(self.node.now, workload, uuids[gpu % len(uuids)]))

    @rule(choice=st.integers(0, 50), back=st.booleans())
    def complete(self, choice, back):
        if self.node.pending:
            self.node.complete(self.node.pending[choice % len(self.node.pending)])
            if back:
                self.node.sample()

    @rule(choice=st.integers(0, 50))
    def fail(self, choice):
        if self.node.pending:
            command = self.node.pending[choice % len(self.node.pending)]
            if not isinstance(command, StopProcess):
                self.node.complete(command, fail=True)

    @rule(choice=st.integers(0, 50), wanted=quarters)
    def an_allocation_fails(self, choice, wanted):
        workload = self.pick(choice, lambda s: s.process is not None and s.executing)
        if workload is not None:
            self.node.want_memory(workload, wanted * GIB)

    @rule(choice=st.integers(0, 50), wanted=quarters, cached=st.integers(0, 8))
    def hold(self, choice, wanted, cached):
        """Allocate as far as the allowance and the Gpu go, or give back; what is due by now has been said before."""
        if self.node.state.timer_at is not None and self.node.now >= self.node.state.timer_at:
            self.timer()
        workload = self.pick(choice, lambda s: s.process is not None)
        if workload is None:
            return
        mine = self.node.workloads[workload].process
        allowance = self.node.state.plan[workload].allowance_bytes
        free = min(self.free(uuid) for uuid in mine.gpus) + mine.held_bytes
        held = min(wanted * GIB, max(allowance, mine.held_bytes), free)
        cached = min(cached * GIB, held - 1) if self.node.workloads[workload].spec.kind is Kind.NOTEBOOK else 0
        self.node.hold(workload, held - cached, cached)

    def free(self, uuid):
        used = sum(p.held_bytes for p in self.node.processes if uuid in p.gpus and (p.alive or p.lingers))
        starting = sum(
            w.return_bytes for w in self.node.state.workloads.values() if uuid in w.current and w.process is None
        )
        return self.node.state.gpus[uuid].memory_total_bytes - used - starting - self.node.strangers.get(uuid, 0)

    @rule(choice=st.integers(0, 50))
    def cell(self, choice):
        workload = self.pick(choice, lambda s: s.spec.kind is Kind.NOTEBOOK)
        if workload is not None:
            (self.node.finish_cell if self.node.workloads[workload].executing else self.node.start_cell)(workload)

    @rule(choice=st.integers(0, 50))
    def kill(self, choice):
        workload = self.pick(choice, lambda s: s.process is not None)
        if workload is not None:
            self.node.kill(workload)

    @rule(choice=st.integers(0, 50), request=quarters, burst=quarters)
    def user_asks_for_another_size(self, choice, request, burst):
        """Not where that would be forgotten, and others have come for the room that it left."""
        workload = self.pick(choice)
        if workload is not None and self.written is None:
            state, known = self.node.state, self.node.state.workloads[workload]
            spec = replace(known.spec, request_bytes=request * GIB, limit_bytes=min(16, request + burst) * GIB)
            event = ev.WorkloadRespecified(self.node.now, workload, spec)
            try:
                check_growth(state, known, spec)
                growing.check(state, step(state, event)[0], workload)
            except Problem:
                return
            self.node.workloads[workload].spec = spec
            self.node.tell(event)

    @rule(choice=st.integers(0, 50))
    def release(self, choice):
        workload = self.pick(choice)
        if workload is not None:
            self.node.release(workload)

    @rule(choice=st.integers(0, 50), back=st.booleans())
    def user_suspends_or_resumes(self, choice, back):
        workload = self.pick(choice, lambda s: s.spec.kind is Kind.NOTEBOOK)
        if workload is not None:
            at = self.node.now
            self.node.tell(ev.ResumeRequested(at, workload) if back else ev.SuspendRequested(at, workload, "suspended"))

    @rule(choice=st.integers(0, 50), seconds=st.one_of(st.none(), st.floats(1, 100)))
    def user_keeps_it(self, choice, seconds):
        workload = self.pick(choice, lambda s: s.spec.kind is Kind.NOTEBOOK)
        if workload is not None:
            until = None if seconds is None else self.node.now + seconds
            self.node.tell(ev.KeepRequested(self.node.now, workload, until))

    @rule(
        carried_out=st.lists(st.integers(0, 20), max_size=4),
        killed=st.lists(st.integers(0, 20), max_size=2),
        cells=st.lists(st.integers(0, 20), max_size=2),
        reported=st.lists(st.integers(0, 20), max_size=4),
    )
    def the_daemon_is_killed_and_starts_again(self, carried_out, killed, cells, reported):
        """What is carried out, dies or runs meanwhile is learnt from the supervisors' reports.

        It begins with all that there was, so that the journal could be written up to here.
        """
        cannot_be_written, self.written = self.written is not None, None
        self.node.go_down()
        for choice in carried_out:
            self.complete(choice, back=False)
        for choice in killed:
            self.kill(choice)
        for choice in cells:
            workload = self.pick(choice, lambda s: s.spec.kind is Kind.NOTEBOOK)
            if workload is not None:
                executing = self.node.workloads[workload].executing
                (self.node.finish_cell if executing else self.node.start_cell)(workload)
        self.node.come_back()
        for choice in reported:
            waiting = sorted(self.node.unreported & self.node.state.workloads.keys())
            if waiting:
                self.node.report(waiting[choice % len(waiting)])
        if cannot_be_written:
            self.the_journal_cannot_be_written_from_now_on()

    @rule()
    def the_journal_cannot_be_written_from_now_on(self):
        self.written = self.written or self.node.state

    @rule()
    def the_journal_can_be_written_again(self):
        self.written = None

    @rule(killed=st.lists(st.integers(0, 20), max_size=1))
    def the_daemon_loses_what_could_not_be_written(self, killed):
        """Whom it does not know is brought back; all others report at once."""
        if self.written is None:
            return
        self.node.go_down()
        for choice in killed:
            self.kill(choice)
        self.node.come_back_behind(self.written)
        self.written = None
        for workload in sorted(self.node.unreported):
            self.node.report(workload)
        for workload in sorted(self.node.workloads.keys() - self.node.state.workloads.keys()):
            self.node.pending = [c for c in self.node.pending if c.workload != workload]
            if self.node.workloads[workload].process is not None:
                self.bring_back({workload: self.node.workloads[workload]}, workload)
        self.node.sample()

    @rule(killed=st.lists(st.integers(0, 20), max_size=2), brought_back=st.lists(st.integers(0, 20), max_size=8))
    def the_daemon_loses_its_journal(self, killed, brought_back):
        """Who has a process brings it back, some later than others; without room or a process one asks anew."""
        self.node.go_down()
        for choice in killed:
            self.kill(choice)
        self.written = None  # all that was
        self.node.come_back_forgetful()
        lost = {w: s for w, s in self.node.workloads.items() if s.process is not None}
        for choice in brought_back:
            waiting = sorted(lost)
            if waiting:
                self.bring_back(lost, waiting[choice % len(waiting)])
        while lost:
            self.bring_back(lost, min(lost))
        self.node.sample()

    def bring_back(self, lost, workload):
        supervisor = lost.pop(workload)
        if not self.node.bring_back(workload):
            # Its supervisor ends the process then: nothing is guaranteed without the daemon's record.
            supervisor.process.alive, supervisor.process = False, None

    @rule(policy=policies)
    def the_administrator_changes_the_rules(self, policy):
        self.node.tell(ev.PolicyChanged(self.node.now, policy))

    @rule()
    def timer(self):
        self.node.fire_timer()

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds):
        """Time passes up to the next timer: an event later than a timer that is due cannot happen."""
        due = self.node.state.timer_at
        self.node.now = self.node.now + seconds if due is None else min(self.node.now + seconds, due)

    @rule(seconds=st.floats(1, 40))
    def the_daemon_stands_still(self, seconds):
        """As behind a slow disk: timers that were due meanwhile are late, and so is all that has happened."""
        self.node.now += seconds
        self.node.tell(ev.DaemonStoodStill(self.node.now, seconds))

    @rule()
    def sample(self):
        self.node.sample()

    @precondition(lambda self: self.foreign)
    @rule(gpu=st.integers(0, 3), size=st.integers(0, 4))
    def a_stranger_uses_a_gpu(self, gpu, size):
        uuids = sorted(self.node.state.gpus)
        uuid = uuids[gpu % len(uuids)]
        room = self.free(uuid) + self.node.strangers.get(uuid, 0)
        self.node.strangers[uuid] = max(0, min(size * GIB, room))
        self.node.sample()

    @precondition(lambda self: self.foreign)
    @rule(gpu=st.integers(0, 3), healthy=st.booleans())
    def health_changes(self, gpu, healthy):
        uuids = sorted(self.node.state.gpus)
        self.node.set_health(uuids[gpu % len(uuids)], healthy=healthy)

    @precondition(lambda self: self.foreign)
    @rule(owned=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 16), st.integers(0, 1)), max_size=2))
    def a_cluster_gives_gpus_to_its_pods(self, owned, cordoned=False):
        """Each of `owned` is a Gpu, how much of it a pod has (0: all), and how many more the pod is yet to have."""
        uuids = sorted(self.node.state.gpus)
        owners = tuple(
            Owner(f"pod-{number}", f"pod-{number}", (uuids[gpu % len(uuids)],), size * GIB or None, to_come)
            for number, (gpu, size, to_come) in enumerate(owned)
        )
        self.node.tell(ev.GpusClaimed(self.node.now, Claims(owners, cordoned=cordoned)))

    @rule(gpu=st.integers(0, 3), silent=st.booleans())
    def the_driver_tells_nothing_of_a_gpu(self, gpu, silent):
        uuids = sorted(self.node.state.gpus)
        (self.node.silent.add if silent else self.node.silent.discard)(uuids[gpu % len(uuids)])
        self.node.sample()

    @invariant()
    def processes_fit_in_memory(self):
        if hasattr(self, "node"):
            for uuid, gpu in self.node.state.gpus.items():
                used = sum(p.held_bytes for p in self.node.processes if uuid in p.gpus and (p.alive or p.lingers))
                assert used + self.node.strangers.get(uuid, 0) <= gpu.memory_total_bytes

    @invariant()
    def no_workload_is_lost(self):
        if hasattr(self, "node"):
            for workload in self.node.workloads.values():
                if workload.process is not None:
                    assert workload.id in self.node.state.workloads

    def teardown(self):
        if not hasattr(self, "node") or self.node.down:
            return
        node = self.node
        node.settle()
        assert not node.pending, "every command is answered"
        # Let every deadline, residency and cool-down pass: what is guaranteed must be there then.
        for _ in range(6):
            node.advance(31)
        for workload in node.state.workloads.values():
            assert workload.wanted is None, f"{workload} has not been answered"
            assert workload.phase not in (Phase.STARTING, Phase.SUSPENDING), f"{workload} did not settle"
            self.waits_only_with_a_reason(workload)
        comes_to_rest(node)

    def waits_only_with_a_reason(self, workload):
        state = self.node.state
        if not workload.wants_gpu or workload.phase not in WITHOUT_PROCESS:
            return
        entry = state.plan[workload.id]
        assert entry.reason
        assert entry.position is not None
        together = [workload, *fellows(state, workload)]
        within = all(w.return_bytes <= w.spec.request_bytes for w in together)
        healthy = all(g in state.usable for w in together for g in state.plan[w.id].home)
        promised_once = all(state.policy.pool_of(state.gpus[g]).oversubscribe == 1.0 for g in entry.home)
        if entry.home and within and healthy and promised_once:
            raise AssertionError(f"admitted, within its request, and not running: {workload} {entry}")
        if not entry.home and workload.spec.gpu_count == 1 and workload.spec.gang is None:
            passed_by = entry.reason.kind is Reason.RESERVED
            for gpu in state.gpus.values():
                pool = state.policy.pool_of(gpu)
                fits = gpu.uuid in state.usable and pool.enabled and pool.name in workload.spec.pools
                fits = fits and self.fits_on_paper(workload, gpu, pool.oversubscribe)
                assert passed_by or not fits, f"{workload} waits while it fits on {gpu.label}: {entry.reason}"

    def fits_on_paper(self, workload, gpu, oversubscribe):
        """Who cannot take turns is promised once; what is left may be promised several times, to nobody larger."""
        there = [w for w in self.node.state.workloads.values() if gpu.uuid in w.home or w.id == workload.id]
        firm = sum(w.spec.request_bytes for w in there if not w.spec.can_take_turns)
        turns = [w.spec.request_bytes for w in there if w.spec.can_take_turns]
        left = gpu.capacity_bytes - firm
        return left >= max(turns, default=0) and sum(turns) <= left * oversubscribe


def tried(machine: type[Histories], usual: int, step_count: int) -> type[TestCase]:
    """The test of so many histories of a machine."""
    made: type[TestCase] = type(machine.__name__, (machine.TestCase,), {})
    made.settings = settings(
        max_examples=examples(usual),
        stateful_step_count=step_count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return made


LONG = pytest.mark.long("random histories: some of them are played here")
TestHistories = pytest.mark.timeout(300)(tried(Histories, 100, 50))
TestManyHistories = LONG(pytest.mark.timeout(1200)(tried(Histories, 400, 50)))
