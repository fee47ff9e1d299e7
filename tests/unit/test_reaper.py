"""What the daemon ends itself comes back as a fact with the reason of the order that was not obeyed."""

from __future__ import annotations

import asyncio

from nls_scheduler.core.model.commands import EndProcess
from nls_scheduler.core.model.events import Event, ProcessExited
from nls_scheduler.core.model.ids import CommandId, GpuUuid
from nls_scheduler.core.model.reasons import Mention, Reason, Why
from nls_scheduler.daemon.reaper import Reaper
from nls_scheduler.views.entries import entry_view
from nls_scheduler.views.history import Recorder
from nls_scheduler.views.veil import Viewer
from stage import Stage

NEEDED = Why(Reason.NEEDED, gpus=(GpuUuid("GPU-0"),), who=(Mention("w9", "secret", "command", 4711),))


def test_who_was_ended_by_the_daemon_reads_for_whom_and_that_its_supervisor_did_not_answer() -> None:
    stage, facts = Stage(1), list[Event]()
    stage.notebook("book", owner=1000)
    book = stage.workload("book")
    asyncio.run(
        Reaper(facts.append).end_disobedient(book, EndProcess(CommandId(7), book.id, NEEDED, None, process=None))
    )
    (fact,) = facts
    assert isinstance(fact, ProcessExited)
    assert fact.reason == Why(Reason.ENDED_BY_DAEMON, because=(NEEDED,))
    before = stage.node.state
    told = ProcessExited(stage.node.now, book.id, book.process, fact.reason)
    commands = stage.node.tell(told)
    (exited, *_) = Recorder().entries(before, told, stage.node.state, commands)
    assert exited.why == fact.reason
    ended = "; ended by the daemon, as its supervisor does not answer"
    assert entry_view(exited)["reason"] == f"secret needs GPU 0{ended}"
    assert entry_view(exited, Viewer(1000))["reason"] == f"another user's command needs GPU 0{ended}"
