"""What the daemon ends itself comes back as a fact with the reason of the order that was not obeyed."""

from __future__ import annotations

import asyncio
import errno
import os
from dataclasses import replace
from itertools import pairwise

import pytest

from nls_scheduler.core.model.commands import EndProcess
from nls_scheduler.core.model.events import Event, ProcessExited, SupervisorLost
from nls_scheduler.core.model.gpu import Releasing
from nls_scheduler.core.model.ids import CommandId, GpuUuid, WorkloadId
from nls_scheduler.core.model.reasons import Mention, Reason, Why
from nls_scheduler.core.model.workload import Frozen, Phase
from nls_scheduler.daemon import reaper
from nls_scheduler.daemon.reaper import Reaper
from nls_scheduler.processes.proc import look_up, some_left_of
from nls_scheduler.views.entries import entry_view
from nls_scheduler.views.history import Recorder
from nls_scheduler.views.veil import Viewer
from stage import TOTAL, Stage

NEEDED = Why(Reason.NEEDED, gpus=(GpuUuid("GPU-0"),), who=(Mention("w9", "secret", "command", 4711),))
NOBODY_HEARD = Why(Reason.ENDED_BY_DAEMON, because=(NEEDED,))


def test_who_was_ended_by_the_daemon_reads_for_whom_and_that_its_supervisor_did_not_answer() -> None:
    stage, facts = Stage(1), list[Event]()
    stage.notebook("book", owner=1000)
    book = stage.workload("book")
    end = EndProcess(CommandId(7), book.id, NOBODY_HEARD, None, process=None)
    asyncio.run(Reaper(facts.append).end_disobedient(book, end))
    (fact,) = facts
    assert isinstance(fact, ProcessExited)
    assert fact.reason == NOBODY_HEARD
    before = stage.node.state
    told = ProcessExited(stage.node.now, book.id, book.process, fact.reason)
    commands = stage.node.tell(told)
    (exited, *_) = Recorder().entries(before, told, stage.node.state, commands)
    assert exited.why == fact.reason
    ended = "; ended by the daemon, as its supervisor does not answer"
    assert entry_view(exited)["reason"] == f"secret needs GPU 0{ended}"
    assert entry_view(exited, Viewer(1000))["reason"] == f"another user's command needs GPU 0{ended}"


def test_hundreds_that_are_abandoned_together_take_one_look_and_others_get_their_turn_between_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One user's process that looked after all of them has ended: each look reads all of /proc."""
    stage, looks, order = Stage(1), [], []
    stage.notebook("book")
    books = [replace(stage.workload("book"), id=WorkloadId(f"book-{number}"), process=None) for number in range(300)]
    monkeypatch.setattr(reaper, "some_left_of", lambda ended: looks.append(len(ended)) or some_left_of(ended))
    monkeypatch.setattr(reaper, "end_all", lambda *_: pytest.fail("nothing is left of them"))

    async def run() -> None:
        reap = Reaper(order.append)
        losing = asyncio.gather(*(reap.end_abandoned(book) for book in books))
        while not losing.done():
            await asyncio.sleep(0)
            if order:
                order.append("another user's request")
        await losing

    asyncio.run(run())
    assert looks == [300]
    lost = [fact for fact in order if isinstance(fact, SupervisorLost)]
    assert [fact.workload for fact in lost] == [book.id for book in books]
    between = [number for number, fact in enumerate(order) if fact in lost]
    assert all(after - before > 1 for before, after in pairwise(between))


def test_what_has_left_a_process_is_ended_before_it_counts_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, order = Stage(1), []
    stage.notebook("book")
    left = replace(stage.workload("book"), process=look_up(os.getpid()).id)
    monkeypatch.setattr(reaper, "end_all", lambda *given: order.append(given[2]) or True)
    asyncio.run(Reaper(order.append).end_abandoned(left))
    assert order[0] == [left.process]
    assert isinstance(order[1], SupervisorLost)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many files"), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("of", ["some_left_of", "end_all"])
def test_what_could_not_be_looked_for_is_looked_for_again(
    of: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a workload that nobody looks after would keep its GPU for as long as the daemon runs."""
    stage, facts, fails = Stage(1), list[Event](), [error]
    stage.notebook("book")
    left = replace(stage.workload("book"), process=look_up(os.getpid()).id)
    monkeypatch.setattr(reaper, "end_all", lambda *_: True)
    works = getattr(reaper, of)

    def once_failing(*given: object) -> object:
        if fails:
            raise fails.pop()
        return works(*given)

    monkeypatch.setattr(reaper, of, once_failing)
    monkeypatch.setattr(reaper, "AGAIN_S", 0.0)
    asyncio.run(Reaper(facts.append).end_abandoned(left))
    assert [type(fact) for fact in facts] == [SupervisorLost]


@pytest.mark.parametrize(("lives", "ended"), [("stands still", False), ("runs elsewhere", False), ("", True)])
def test_a_process_that_its_workload_still_has_is_not_ended_for_memory_that_the_driver_shows(
    lives: str, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing what the driver holds can hang the node, and one that runs may have moved; what is left over is ended."""
    stage, killed, own = Stage(1), [], look_up(os.getpid())
    stage.notebook("book", owner=own.uid)
    gpu, record = stage.uuid(0), stage.workload("book")
    frozen = Frozen((gpu,), TOTAL // 2, 0.0, NEEDED) if lives == "stands still" else None
    phase, current = (Phase.RUNNING, (GpuUuid("GPU-9"),)) if lives == "runs elsewhere" else (Phase.SUSPENDED, ())
    off = replace(record, phase=phase, current=current, process=own.id if lives else None, frozen=frozen)
    left = Releasing(own.id, record.id, TOTAL // 2, 0.0)
    gpus = {gpu: replace(stage.node.state.gpus[gpu], releasing=(left,))}
    monkeypatch.setattr(reaper, "kill", lambda pid, start_time: killed.append((pid, start_time)))
    Reaper(lambda _: None).end_remains(replace(stage.node.state.having(off), gpus=gpus, at=100.0))
    assert bool(killed) is ended
