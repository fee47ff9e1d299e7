"""A node in virtual time whose workloads have names: each story reads like its title."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.commands import (
    FreezeProcess,
    InterruptCell,
    StartProcess,
    StopProcess,
    SuspendProcess,
    ThawProcess,
    TrimMemory,
    WorkloadCommand,
)
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.model.workload import Phase
from nls_scheduler.core.simulator import GIB, SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nls_scheduler.core.model.allocations import MemoryAnswer
    from nls_scheduler.core.model.gpu import Gpu
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.core.model.reasons import Mention
    from nls_scheduler.core.model.state import PlanEntry
    from nls_scheduler.core.model.workload import Workload
    from nls_scheduler.core.simulator import SimulatedProcess

TOTAL = 16 * GIB


def bare(why: Why) -> Why:
    """A reason without those behind it."""
    return replace(why, because=())


def with_one_small_gpu(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Of two; for `Stage`'s `connect`."""
    return (replace(gpus[0], memory_total_bytes=TOTAL * 3 // 10), gpus[1])


class Stage:
    """Gpus of 16 GiB. Sizes are fractions of one; everything that is ordered is done at once unless a story waits."""

    def __init__(
        self, gpus: int = 2, connect: Callable[[tuple[Gpu, ...]], tuple[Gpu, ...]] = lambda gpus: gpus, **policy: object
    ) -> None:
        self.node = SimulatedNode.of(gpus, TOTAL, Policy(**policy), connect)  # type: ignore[arg-type]  # any of its numbers
        self._ids: dict[str, WorkloadId] = {}

    # Who comes and goes

    def notebook(self, name: str, request: float = 0.5, limit: float = 1.0, **wanted: object) -> None:
        """A notebook asks for a GPU."""
        self._submit(name, Kind.NOTEBOOK, request, limit, wanted)

    def command(self, name: str, request: float = 1.0, limit: float | None = None, **wanted: object) -> None:
        """`nls run` asks for one."""
        self._submit(name, Kind.COMMAND, request, request if limit is None else limit, wanted)

    def _submit(self, name: str, kind: Kind, request: float, limit: float, wanted: dict[str, object]) -> None:
        sizes = {"request_bytes": int(request * TOTAL), "limit_bytes": int(limit * TOTAL)}
        self._ids[name] = self.node.submit(name=name, kind=kind, **sizes, **wanted)
        self.node.settle()

    def gang(
        self, name: str, members: int, size: int | None = None, request: float = 1.0, limit: float | None = None,
        **wanted: object,
    ) -> None:  # fmt: skip
        """Commands `name-0`, `name-1` ... of one gang, which has `size` members when all have come."""
        for number in range(members):
            self._submit(
                f"{name}-{number}", Kind.COMMAND, request, request if limit is None else limit,
                {"gang": name, "gang_size": members if size is None else size, **wanted},
            )  # fmt: skip

    def ends_well(self, name: str) -> None:
        """The command has done its work."""
        self.node.end_well(self._ids[name])
        self.node.settle()

    def user_migrates(self, name: str, gpu: int) -> None:
        """`nls migrate`."""
        self.node.tell(ev.MigrateRequested(self.node.now, self._ids[name], self.uuid(gpu)))
        self.node.settle()

    def ends(self, name: str) -> None:
        """Its user needs no GPU any more."""
        self.node.release(self._ids[name])
        self.node.settle()

    # What happens

    def holds(self, name: str, share: float, cached: float = 0.0) -> None:
        """It has allocated so much in all, and it is saved; its allocator caches so much more."""
        self.node.hold(self._ids[name], int(share * TOTAL), int(cached * TOTAL))
        self.node.settle()

    def allocates(self, name: str, share: float) -> None:
        """Its running cell has allocated so much in all, and nothing of that is saved yet."""
        process = self.node.workloads[self._ids[name]].process
        assert process is not None, f"{name} has no process"
        process.held_bytes = int(share * TOTAL)
        self.node.sample()
        self.node.settle()

    def cell_starts(self, name: str) -> None:
        """A cell runs, or begins to wait."""
        self.node.start_cell(self._ids[name])
        self.node.settle()

    def cell_ends(self, name: str) -> None:
        """The cell is over."""
        self.node.finish_cell(self._ids[name])
        self.node.settle()

    def dies(self, name: str) -> None:
        """Its GPU process is killed from outside."""
        self.node.kill(self._ids[name])
        self.node.settle()

    def lingers(self, name: str) -> SimulatedProcess:
        """Its process will keep its memory after its end, until it is told otherwise."""
        process = self.node.workloads[self._ids[name]].process
        assert process is not None, f"{name} has no process"
        process.lingers = True
        return process

    def user_suspends(self, name: str) -> None:
        """`nls suspend`."""
        self.node.tell(ev.SuspendRequested(self.node.now, self._ids[name], "suspended by its user"))
        self.node.settle()

    def user_keeps(self, name: str, seconds: float | None) -> None:
        """`%gpu keep`; `None`: `%gpu keep off`."""
        until = None if seconds is None else self.node.now + seconds
        self.node.tell(ev.KeepRequested(self.node.now, self._ids[name], until))
        self.node.settle()

    def user_resumes(self, name: str) -> None:
        """`nls resume`."""
        self.node.tell(ev.ResumeRequested(self.node.now, self._ids[name]))
        self.node.settle()

    def stranger_uses(self, gpu: int, share: float) -> None:
        """A process that nobody placed holds so much of a Gpu."""
        self.node.strangers[self.uuid(gpu)] = int(share * TOTAL)
        self.node.sample()
        self.node.settle()

    def health(self, gpu: int, *, healthy: bool) -> None:
        """The driver reports a Gpu as broken, or as whole again."""
        self.node.set_health(self.uuid(gpu), healthy=healthy)
        self.node.settle()

    def changes(self, **policy: object) -> None:
        """The administrator changes some of the policy's numbers."""
        self.node.tell(ev.PolicyChanged(self.node.now, replace(self.node.state.policy, **policy)))  # type: ignore[arg-type]
        self.node.settle()

    def after(self, seconds: float) -> None:
        """Time passes."""
        self.node.advance(seconds)

    # Without completing what is ordered

    def pending(self, name: str) -> WorkloadCommand | None:
        """The order that it has not carried out yet."""
        return next((c for c in self.node.pending if c.workload == self._ids[name]), None)

    def completes(self, name: str, *, fail: bool = False) -> None:
        """It carries out its order; nobody else does."""
        command = self.pending(name)
        assert command is not None, f"{name} has no order"
        self.node.complete(command, fail=fail)
        self.node.sample()

    def trims(self) -> None:
        """Everybody who was told so gives caches back, and that is seen; nothing else is carried out."""
        for command in [c for c in self.node.pending if isinstance(c, TrimMemory)]:
            self.node.complete(command)
        self.node.sample()

    def wants(self, name: str, share: float) -> MemoryAnswer | None:
        """An allocation of its running cell fails; its answer once everything that is ordered was done."""
        number = self.node.want_memory(self._ids[name], int(share * TOTAL))
        self.node.sample()
        self.node.settle()
        answer = self.workload(name).answer
        return answer if answer is not None and answer.number == number else None

    # What is seen

    def uuid(self, gpu: int) -> GpuUuid:
        """A Gpu by its index."""
        return next(g.uuid for g in self.node.state.gpus.values() if g.index == gpu)

    def workload(self, name: str) -> Workload:
        """The daemon's record."""
        return self.node.of_workload(self._ids[name])

    def plan(self, name: str) -> PlanEntry:
        """The plan's entry."""
        return self.node.state.plan[self._ids[name]]

    def known(self, name: str) -> bool:
        """Whether the daemon still has it."""
        return self._ids[name] in self.node.state.workloads

    def reason(self, name: str) -> Why:
        """Why it is where it is, or waits."""
        return self.plan(name).reason

    def why(
        self, kind: Reason, *who: str, gpus: Iterable[int] = (), shares: Iterable[float] = (),
        numbers: Iterable[float] = (), names: Iterable[str] = (), because: Iterable[Why] = (),
    ) -> Why:  # fmt: skip
        """The reason that a story expects: workloads by name, Gpus by index, sizes as shares of a Gpu."""
        return Why(
            kind, tuple(map(self.uuid, gpus)), tuple(map(self._mention, who)),
            tuple(int(share * TOTAL) for share in shares), tuple(numbers), tuple(names), tuple(because),
        )  # fmt: skip

    def no_room(self, share: float, *because: Why) -> Why:
        """No room for so much on one Gpu."""
        return self.why(Reason.NO_ROOM, shares=[share], numbers=[1, 1], because=because)

    def _mention(self, name: str) -> Mention:
        (mention,) = (w.mention for w in self.node.state.workloads.values() if w.spec.name == name)
        return mention

    def cause(self, name: str) -> str | None:
        """For whom it moves or waits."""
        cause = self.plan(name).cause
        return None if cause is None else self.node.state.workloads[cause].spec.name

    def gpu(self, name: str) -> int | None:
        """The index of its Gpu; `None` without one."""
        current = self.workload(name).current
        return self.node.state.gpus[current[0]].index if current else None

    def gpus(self, name: str) -> list[int]:
        """The indexes of its Gpus."""
        return [self.node.state.gpus[uuid].index for uuid in self.workload(name).current]

    def home(self, name: str) -> list[int]:
        """The indexes of its home."""
        return [self.node.state.gpus[uuid].index for uuid in self.workload(name).home]

    def runs(self, *names: str) -> bool:
        """Whether all of them run."""
        return all(self.workload(name).phase is Phase.RUNNING for name in names)

    def phase(self, name: str) -> str:
        """Its phase."""
        return self.workload(name).phase.value

    def position(self, name: str) -> int | None:
        """Its place in the wait queue."""
        return self.plan(name).position

    def orders(self, name: str) -> list[str]:
        """Every order it ever got, in short."""
        words = {
            StartProcess: "start",
            InterruptCell: "interrupt",
            SuspendProcess: "suspend",
            FreezeProcess: "freeze",
            ThawProcess: "thaw",
            StopProcess: "stop",
            TrimMemory: "trim",
        }
        commands = (c for _, given in self.node.history for c in given)
        mine = [c for c in commands if isinstance(c, WorkloadCommand) and c.workload == self._ids[name]]
        return [words.get(type(c), type(c).__name__) for c in mine]
