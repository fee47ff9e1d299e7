"""The status and the history, from states that the real `step` made."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from nls_scheduler.core.model import events
from nls_scheduler.core.model.commands import StartProcess, StopProcess, SuspendProcess, WorkloadCommand
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
from nls_scheduler.core.model.reasons import Mention, Reason, Why
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.step import step
from nls_scheduler.units.clock import wall_time
from nls_scheduler.views.entries import Entry, entry_view
from nls_scheduler.views.history import BACKLOG_LIMIT, ENTRIES_KEPT, History, Recorder
from nls_scheduler.views.sentences import Names
from nls_scheduler.views.status import figures, node_view, settled_part, workload_view
from nls_scheduler.views.veil import Viewer
from stage import TOTAL, Stage

GIB = 2**30
A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")


class Node:
    """The core with obedient supervisors, and what the recorder says about it."""

    def __init__(self) -> None:
        self.state = NodeState()
        self.recorder = Recorder()
        self.told: list[dict[str, object]] = []
        self.orders: list[WorkloadCommand] = []
        self.at = 100.0
        gpus = tuple(Gpu(uuid, index, "Test", 16 * GIB) for index, uuid in enumerate((A, B)))
        self.apply(events.GpusDiscovered(self.at, gpus))
        self.sample()

    def apply(self, event: events.Event) -> None:
        before = self.state
        self.state, commands = step(before, event)
        self.told += map(entry_view, self.recorder.entries(before, event, self.state, commands))
        self.orders += [command for command in commands if isinstance(command, WorkloadCommand)]

    def sample(self, **used: int) -> None:
        readings = {}
        for uuid in (A, B):
            placed = tuple(
                events.PlacedUse(w.id, w.process, used.get(w.id, 0))
                for w in self.state.workloads.values()
                if w.process is not None and uuid in w.current
            )
            readings[uuid] = events.GpuReading(sum(use.bytes or 0 for use in placed), placed, {})
        self.apply(events.MemorySampled(self.at, readings))

    def submit(self, name: str, request: int, limit: int, kind: Kind = Kind.NOTEBOOK) -> WorkloadId:
        spec = WorkloadSpec(name, kind, 1000, request * GIB, limit * GIB)
        self.apply(events.WorkloadSubmitted(self.at, WorkloadId(name), spec))
        return WorkloadId(name)

    def obey(self) -> None:
        """Carry out all orders, and let the driver see the outcome."""
        while self.orders:
            order = self.orders.pop(0)
            self.at += 1.0
            who, process = order.workload, ProcessId(1000 + order.command_id, 5)
            if isinstance(order, StartProcess):
                self.apply(events.ProcessStarted(self.at, who, order.command_id, process))
                self.apply(events.ProcessReady(self.at, who, order.command_id))
            elif isinstance(order, SuspendProcess):
                self.apply(events.ProcessSuspended(self.at, who, order.command_id, 3 * GIB))
            elif isinstance(order, StopProcess):
                self.apply(events.ProcessExited(self.at, who, self.state.workloads[who].process, "stopped"))
            self.at += 0.1
            self.sample()

    @property
    def history(self) -> list[tuple[object, object, object, object]]:
        return [(entry["name"], entry["event"], entry["from"], entry["to"]) for entry in self.told]


@pytest.fixture
def node() -> Node:
    return Node()


def test_the_third_workloads_story_reads_as_one_move(node: Node) -> None:
    for name in ("first", "second"):
        node.submit(name, 8, 16)
        node.obey()
        for _ in range(2):
            node.apply(events.CellFinished(node.at, WorkloadId(name)))
    node.at += 60
    node.sample()
    node.obey()
    node.told.clear()
    on = {name: node.state.workloads[WorkloadId(name)].current for name in ("first", "second")}
    assert on["first"] != on["second"]
    node.submit("third", 16, 16, Kind.COMMAND)
    node.obey()
    moves = [entry for entry in node.told if entry["event"] == "moved"]
    assert len(moves) == 1
    assert {moves[0]["from"], moves[0]["to"]} == {"GPU 0", "GPU 1"}
    assert moves[0]["cause"] == {"id": "third", "name": "third"}
    assert moves[0]["bytes"] == 3 * GIB
    assert float(str(moves[0]["seconds"])) > 0
    assert "suspended" not in [entry["event"] for entry in node.told]
    assert node.told[-1]["event"] in ("started", "moved")


def test_who_must_leave_as_soon_as_it_is_there_has_started_first(node: Node) -> None:
    node.submit("book", 4, 16)
    node.submit("training", 8, 8, Kind.COMMAND)
    node.obey()
    assert [event for who, event, _, _ in node.history if who == "book"] == ["started", "moved"]


def test_an_end_is_told_with_its_own_time_not_with_that_of_the_event_before(node: Node) -> None:
    name = node.submit("command", 16, 16, Kind.COMMAND)
    node.obey()
    node.at += 25.0
    node.apply(events.ProcessExited(node.at, name, node.state.workloads[name].process, "exited with code 0", code=0))
    started, exited = node.told
    assert (started["event"], exited["event"]) == ("started", "exited")
    passed = datetime.fromisoformat(str(exited["time"])) - datetime.fromisoformat(str(started["time"]))
    assert passed.total_seconds() == pytest.approx(25.1)


def test_a_suspend_that_its_user_asked_for_is_told_and_so_is_the_resume(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    node.apply(events.SuspendRequested(node.at, name, "suspended by its user"))
    node.obey()
    node.apply(events.ResumeRequested(node.at, name))
    node.obey()
    assert [event for _, event, _, _ in node.history] == ["started", "suspended", "resumed"]
    assert node.told[1]["bytes"] == node.told[2]["bytes"] == 3 * GIB


def test_who_is_stopped_on_its_way_to_another_gpu_was_suspended_before_and_for_its_own_reason(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    (there,) = {A, B} - set(node.state.workloads[name].current)
    node.apply(events.MigrateRequested(node.at, name, there))
    (suspend,) = node.orders
    node.orders.clear()
    node.apply(events.ProcessSuspended(node.at, name, suspend.command_id, 3 * GIB))
    assert isinstance(node.orders.pop(), StartProcess)
    node.apply(events.SuspendRequested(node.at, name, "suspended by its user"))
    node.obey()
    told = [(entry["event"], entry["reason"]) for entry in node.told[1:]]
    label = node.state.label((there,))
    assert told == [("suspended", f"its user wants it on {label}"), ("evicted", "suspended by its user")]


def test_what_did_not_come_back_is_told_by_name_when_the_rest_is_there(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    node.apply(events.SuspendRequested(node.at, name, "suspended by its user"))
    node.obey()
    node.apply(events.ResumeRequested(node.at, name))
    start = node.orders.pop()
    node.apply(events.ProcessStarted(node.at, name, start.command_id, ProcessId(7, 5)))
    node.apply(events.ProcessReady(node.at, name, start.command_id, ("handle",), ("[4]",)))
    assert [(entry["event"], entry["missing"], entry["lost_cells"]) for entry in node.told] == [
        ("started", [], []),
        ("suspended", [], []),
        ("resumed", ["handle"], ["[4]"]),
    ]


def test_a_process_that_ends_by_itself_is_told_with_how(node: Node) -> None:
    name = node.submit("train", 16, 16, Kind.COMMAND)
    node.obey()
    process = node.state.workloads[name].process
    node.apply(events.ProcessExited(node.at, name, process, "exited with code 3"))
    assert node.history[1:] == [("train", "exited", "GPU 0", None)]
    assert node.told[-1]["reason"] == "exited with code 3"


def test_a_lost_supervisor_releases_its_workload(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    node.apply(events.SupervisorLost(node.at, name, "it was killed"))
    assert (node.told[-1]["event"], node.told[-1]["reason"]) == ("released", "it was killed")


def test_who_waits_is_told_once(node: Node) -> None:
    for name in ("one", "two", "three"):
        node.submit(name, 16, 16, Kind.COMMAND)
        node.obey()
    assert ("three", "queued", None, None) in node.history
    view = workload_view(node.state, node.state.workloads[WorkloadId("three")], node.at + 5)
    assert (view["phase"], view["position"], view["current"], view["pid"]) == ("queued", 1, [], None)
    assert view["waiting_s"] >= 5
    assert view["reason"].startswith("no room for 16 GiB on one GPU: ")
    assert view["reason_kind"] == "no-room"


def test_who_is_on_its_way_has_no_place_in_the_line(node: Node) -> None:
    book = node.submit("book", 8, 8, Kind.COMMAND)
    assert node.state.plan[book].position == 1  # when the last plan was made, it had to wait
    view = workload_view(node.state, node.state.workloads[book], node.at)
    assert (view["phase"], view["position"]) == ("starting", None)


def test_a_cell_waits_until_it_runs_or_gives_up(node: Node) -> None:
    def shown() -> tuple[object, object]:
        view = workload_view(node.state, node.state.workloads[book], node.at)
        return view["cell_waits"], view["executing"]

    book = node.submit("book", 8, 8)
    assert shown() == (False, False)
    node.apply(events.CellStarted(node.at, book))
    assert shown() == (True, False)
    node.apply(events.CellFinished(node.at, book))
    assert shown() == (False, False)
    node.apply(events.CellStarted(node.at, book))
    node.obey()
    assert shown() == (False, True)


def test_ended_workloads_are_not_in_the_status(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    node.sample(book=2 * GIB)
    view = node_view(node.state, node.at, simulated=True, message=None)["workloads"][0]
    assert (view["gpus"], view["memory_used_bytes"], view["borrowed"]) == (["GPU 0"], 2 * GIB, False)
    node.apply(events.WorkloadReleased(node.at, name, "no longer needed"))
    node.obey()
    assert node_view(node.state, node.at, simulated=True, message=None)["workloads"] == []


def test_only_figures_differ_while_nothing_happens(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    before = workload_view(node.state, node.state.workloads[name], node.at)
    node.at += 1
    node.sample(book=GIB)
    after = workload_view(node.state, node.state.workloads[name], node.at)
    assert settled_part(before) == settled_part(after)
    assert figures(before) != figures(after)


def test_a_supervisor_needs_no_message_about_a_cell_that_it_has_told_of(node: Node) -> None:
    name = node.submit("book", 8, 16)
    node.obey()
    before = workload_view(node.state, node.state.workloads[name], node.at)
    node.apply(events.CellStarted(node.at, name))
    during = workload_view(node.state, node.state.workloads[name], node.at)
    assert (before["executing"], during["executing"]) == (False, True)
    assert (settled_part(before), figures(before)) == (settled_part(during), figures(during))


def told_of(owner: int, number: int) -> Entry:
    return Entry(number, 0.0, "", Mention("w", "w", "command", owner), "queued", Why(Reason.WAITS))


def test_the_history_keeps_the_last_entries_and_lets_a_lagging_follower_go() -> None:
    history = History()
    queue = history.follow()
    for number in range(ENTRIES_KEPT + 5):
        history.add(told_of(1000, number))
    assert [entry.sequence for entry in history.entries()] == list(range(5, ENTRIES_KEPT + 5))
    assert not history.followed
    received = [queue.get_nowait() for _ in range(BACKLOG_LIMIT + 1)]
    assert received[-1] is None
    history.unfollow(queue)
    assert queue.empty()


def test_one_users_thousand_commands_leave_what_others_are_to_be_told() -> None:
    history = History()
    history.restore([told_of(1000 + number % 2, number) for number in range(100)])
    for number in range(100, 2 * ENTRIES_KEPT):
        history.add(told_of(1001, number))
    kept = history.entries()
    assert len(kept) == ENTRIES_KEPT
    assert [entry.sequence for entry in kept] == sorted(entry.sequence for entry in kept)
    assert [entry.sequence for entry in kept if entry.about.owner == 1000] == list(range(0, 100, 2))
    assert kept[-1].sequence == 2 * ENTRIES_KEPT - 1


def test_nothing_is_kept_of_users_of_whom_nothing_is_told_any_more() -> None:
    """On a cluster each pod is one."""
    history = History()
    for number in range(ENTRIES_KEPT + 500):
        history.add(told_of(1000 + number, number))
    assert [entry.sequence for entry in history.entries()] == list(range(500, ENTRIES_KEPT + 500))
    assert len(history._of_users) == ENTRIES_KEPT


def test_a_passive_follower_hears_everything_and_keeps_no_daemon_from_ending() -> None:
    async def story() -> None:
        history = History()
        passive = history.follow(passive=True)
        assert not history.followed
        active = history.follow()
        assert history.followed
        history.add(told_of(1000, 1))
        assert [passive.get_nowait(), active.get_nowait()] == [told_of(1000, 1)] * 2
        history.unfollow(active)
        assert not history.followed
        history.close()
        assert passive.get_nowait() is None

    asyncio.run(story())


def stands_still() -> Stage:
    """alice's cell, for bob's."""
    stage = Stage(1, freeze_cells=True, freeze_timeout_s=8.0)
    stage.node.freezes = True
    stage.notebook("alice", owner=1000)
    stage.cell_starts("alice")
    stage.allocates("alice", 0.9)
    stage.notebook("bob", owner=1001)
    stage.cell_starts("bob")
    stage.after(11)
    assert stage.phase("alice") == "suspended"
    return stage


def test_a_cell_that_stands_still_is_told_with_its_times_and_for_whom() -> None:
    stage = stands_still()
    view = workload_view(stage.node.state, stage.workload("alice"), stage.node.now)
    frozen = view["frozen"]
    assert (frozen["bytes"], frozen["for"]) == (int(0.9 * TOTAL), "bob")
    assert frozen["since"] == wall_time(10.0)
    assert settled_part(view)["frozen"] == {"bytes": frozen["bytes"], "for": "bob"}
    assert workload_view(stage.node.state, stage.workload("bob"), stage.node.now)["frozen"] is None


def test_who_may_not_read_about_another_reads_no_name_in_what_stands_still() -> None:
    stage = stands_still()
    for uid, named in ((1000, "another user's notebook"), (1002, None)):
        names = Names.of(stage.node.state, Viewer(uid))
        view = workload_view(stage.node.state, stage.workload("alice"), stage.node.now, names)
        assert view["frozen"]["for"] == named


def test_what_stood_still_and_went_on_is_history_and_so_is_what_failed() -> None:
    stage, recorder, told = stands_still(), Recorder(), []
    replayed = NodeState(policy=stage.node.state.policy)
    stage.node.release(stage.workload("bob").id)
    stage.completes("bob")
    stage.completes("alice", fail=True)
    stage.after(40)
    assert stage.runs("alice")
    for event, _ in stage.node.history:
        before = replayed
        replayed, commands = step(before, event)
        told += map(entry_view, recorder.entries(before, event, replayed, commands))
    of_alice = [entry for entry in told if entry["name"] == "alice" and "queued" not in str(entry["event"])]
    assert [entry["event"] for entry in of_alice] == ["started", "frozen", "thaw_failed", "thawed"]
    frozen, thawed = of_alice[1], of_alice[3]
    assert (frozen["from"], frozen["bytes"], frozen["cause"]["name"]) == ("GPU 0", int(0.9 * TOTAL), "bob")
    assert frozen["reason"] == "bob needs GPU 0"
    assert thawed["to"] == "GPU 0"
    assert thawed["seconds"] >= 30


def test_the_end_of_what_stands_still_is_history() -> None:
    stage, recorder = stands_still(), Recorder()
    before, seen = stage.node.state, len(stage.node.history)
    stage.node.kill(stage.workload("alice").id)
    event, commands = stage.node.history[seen]
    (entry,) = map(entry_view, recorder.entries(before, event, stage.node.state, commands))
    assert (entry["event"], entry["from"], entry["reason"]) == ("exited", "GPU 0", "killed by SIGKILL")
