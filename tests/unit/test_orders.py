"""What `Orders` makes of the daemon's commands, with a keeper and a link made of promises."""

from __future__ import annotations

import asyncio
import signal
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nls_jupyter.supervisor import orders as module
from nls_jupyter.supervisor.launch import ExitStatus
from nls_jupyter.supervisor.notices import NoticeLog
from nls_jupyter.supervisor.orders import Orders
from nls_scheduler.wire.protocol import CommandMessage

START = CommandMessage("start_process", 7, "at home on GPU 0")
STOP = CommandMessage("stop_process", 7, "bob needs GPU 0")
KILLED = ExitStatus(returncode=None, signal=signal.SIGKILL)
INTERRUPT = CommandMessage("interrupt_cell", 7, "bob needs GPU 0", grace_s=20.0)


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    async def send(self, event: str, **fields: Any) -> None:
        self.sent.append((event, fields))


class FakeClient:
    def __init__(self) -> None:
        self.link = FakeLink()

    def supervise(self, *_: object, **__: object) -> FakeLink:
        return self.link


class FakeKeeper:
    process: Any = None
    usable = False
    suspending = False
    saved: Any = None
    has_died = False

    def __init__(self, executing: bool) -> None:
        self.executing = executing
        self.reclaims: list[tuple[str, float]] = []
        self.freezer = self

    def still_usable(self) -> bool:
        return self.usable

    async def go_on(self, process: object) -> None:
        """Nothing stands still here."""

    async def end(self, reason: str) -> Any:
        del reason
        return self.process

    async def reclaim(self, reason: str, grace_s: float) -> bool:
        self.reclaims.append((reason, grace_s))
        return self.executing


@pytest.mark.parametrize("executing", [True, False])
def test_an_interrupted_cell_is_told_and_one_that_does_not_run_is_not(executing: bool) -> None:
    client, keeper, log = FakeClient(), FakeKeeper(executing), NoticeLog()
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), log, lambda: None)
    asyncio.run(orders._carry_out(INTERRUPT))
    assert keeper.reclaims == [("bob needs GPU 0", 20.0)]
    unless = {} if executing else {"reached": False}
    assert client.link.sent == [("cell_interrupted", {"command_id": 7, **unless})]
    assert ("interrupted: bob needs GPU 0" in log.as_text()) is executing


def test_a_workload_that_was_given_up_interrupts_nobody() -> None:
    client, keeper = FakeClient(), FakeKeeper(executing=True)
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), NoticeLog(), lambda: None)
    orders.over = True
    asyncio.run(orders._carry_out(INTERRUPT))
    assert (keeper.reclaims, client.link.sent) == ([], [("cell_interrupted", {"command_id": 7, "reached": False})])


def test_a_start_that_fails_at_once_is_said_and_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong for a moment, such as a full disk, would else have all tries fail."""
    client, keeper, log = FakeClient(), FakeKeeper(executing=False), NoticeLog()
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), log, lambda: None)
    pauses: list[tuple[float, int, str]] = []

    async def sleep(seconds: float) -> None:
        pauses.append((seconds, len(client.link.sent), log.as_text()))

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(module, "no_room", lambda: "memory is short.")
    asyncio.run(orders._carry_out(START))
    ((seconds, told, said),) = pauses
    assert 0 < seconds <= module._TRY_TAKES_S
    assert told == 0
    assert "The GPU process could not start: memory is short." in said
    assert client.link.sent == [("start_failed", {"command_id": 7, "reason": "memory is short."})]


def test_what_a_process_wrote_that_did_not_start_is_in_the_log_and_the_reason_in_the_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, keeper, log = FakeClient(), FakeKeeper(executing=False), NoticeLog()
    orders = Orders(cast("Any", client), {"id": "w"}, cast("Any", keeper), log, lambda: None)
    monkeypatch.setattr(module, "_TRY_TAKES_S", 0.0)
    asyncio.run(orders._not_started(START, "it exited: ValueError: no", 0.0, "NOTE: of somebody\nValueError: no"))
    assert client.link.sent == [("start_failed", {"command_id": 7, "reason": "it exited: ValueError: no"})]
    (shown,) = log.take_unread()
    assert shown.text == "The GPU process could not start: it exited: ValueError: no. %gpu log has what it wrote."
    assert "NOTE: of somebody\nValueError: no" in log.as_text()


def saved_state(gpu_bytes: int) -> Any:
    return SimpleNamespace(manifest=SimpleNamespace(gpu_bytes=gpu_bytes))


@pytest.mark.parametrize("there", [True, False])
def test_the_daemon_knows_the_size_of_what_a_stop_has_saved_before_it_hears_of_the_end(there: bool) -> None:
    """It would else bring it back where it has no room for it, and give it up after a few tries."""
    client, keeper = FakeClient(), FakeKeeper(executing=False)
    keeper.usable, keeper.process = True, SimpleNamespace(pid=1, start_time=2)
    orders = Orders(cast("Any", client), {"id": "w", "gpus": []}, cast("Any", keeper), NoticeLog(), lambda: None)

    async def suspend() -> Any:
        keeper.saved = saved_state(686)
        if not there:
            keeper.usable, keeper.process = False, None
        return keeper.saved

    keeper.suspend = suspend  # type: ignore[attr-defined]
    asyncio.run(orders._carry_out(CommandMessage("stop_process", 7, "bob needs GPU 0", grace_s=5.0)))
    told, (end, _) = client.link.sent
    assert told == ("state_saved", {"saved_bytes": 686})
    assert end == "process_exited"


@pytest.mark.parametrize(
    ("error", "grace_s", "why"),
    [
        (None, 0.01, "that did not end in time"),
        (None, 0.0, "that did not end in time"),
        (OSError("the disk is full"), 0.01, "the disk is full"),
    ],
)
def test_who_is_stopped_while_a_save_does_not_end_or_fails_reads_that(
    error: OSError | None, grace_s: float, why: str
) -> None:
    client, keeper, log = FakeClient(), FakeKeeper(executing=False), NoticeLog()
    keeper.usable, keeper.process = True, SimpleNamespace(pid=1, start_time=2)
    orders = Orders(cast("Any", client), {"id": "w", "gpus": []}, cast("Any", keeper), log, lambda: None)

    async def suspend() -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    keeper.suspend, keeper.suspending = suspend, error is None  # type: ignore[attr-defined]
    asyncio.run(orders._carry_out(CommandMessage("stop_process", 7, "bob needs GPU 0", grace_s=grace_s)))
    told = f"bob needs GPU 0, and what ran last could not be saved before: {why}"
    assert orders.departure is not None
    assert orders.departure.why == told
    assert f"Taken off the GPU: {told}." in log.as_text()


@pytest.mark.parametrize("error", [None, OSError("the disk is full")])
def test_a_suspend_that_is_tried_again_while_it_is_under_way_is_answered_once_and_last(error: OSError | None) -> None:
    """The daemon has given the first one up: what it answers is for the order that counts."""

    async def story() -> None:
        client, keeper, log = FakeClient(), FakeKeeper(executing=False), NoticeLog()
        keeper.usable, keeper.process = True, SimpleNamespace(pid=1, start_time=2)
        orders = Orders(cast("Any", client), {"id": "w", "gpus": []}, cast("Any", keeper), log, lambda: None)
        over = asyncio.Event()

        async def suspend() -> Any:
            keeper.usable, keeper.suspending = False, True
            await over.wait()
            if error is not None:
                raise error
            return saved_state(686)

        keeper.suspend = suspend  # type: ignore[attr-defined]
        tries = [orders._carry_out(CommandMessage("suspend_process", number, "by its user")) for number in (7, 9)]
        both = asyncio.gather(*tries)
        await asyncio.sleep(0)
        assert client.link.sent == []
        over.set()
        await both
        answer = {"saved_bytes": 686} if error is None else {"reason": str(error)}
        event = "process_suspended" if error is None else "suspend_failed"
        assert client.link.sent == [(event, {"command_id": 9, **answer})]
        assert (orders.departure is None) is (error is not None)
        assert len(log.entries) == 1

    asyncio.run(story())


def test_a_process_that_dies_comes_back_with_its_save_point_and_the_daemon_knows_how_large_that_is() -> None:
    async def story() -> list[tuple[str, dict[str, Any]]]:
        client, keeper = FakeClient(), FakeKeeper(executing=True)
        orders = Orders(cast("Any", client), {"id": "w", "gpus": []}, cast("Any", keeper), NoticeLog(), lambda: None)
        await orders.tell_saved(saved_state(100))
        keeper.saved = saved_state(686)  # a save point of the cell that runs
        await orders.tell_exit(cast("Any", SimpleNamespace(pid=1, start_time=2)), "died")
        await orders.tell_exit(cast("Any", SimpleNamespace(pid=3, start_time=4)), "died again")
        return client.link.sent

    sent = asyncio.run(story())
    assert [(event, fields.get("saved_bytes")) for event, fields in sent] == [
        ("state_saved", 100),
        ("state_saved", 686),
        ("process_exited", None),
        ("process_exited", None),
    ]


async def until_told(orders: Orders) -> str:
    """Why the process left, when nothing is to be told any more."""
    await orders._tasks.until_over()
    assert orders.departure is not None
    return orders.departure.why


@pytest.mark.parametrize("stop_first", [True, False])
def test_who_was_killed_for_a_stop_that_nobody_carried_out_reads_that_the_daemon_did(stop_first: bool) -> None:
    async def story() -> None:
        log = NoticeLog()
        view = {"id": "w", "gpus": ["GPU 0"]}
        orders = Orders(cast("Any", FakeClient()), view, cast("Any", FakeKeeper(executing=False)), log, lambda: None)
        ended = orders.ended_by_itself(cast("Any", SimpleNamespace(pid=1, start_time=2)), KILLED)
        for step in (orders._carry_out(STOP), ended) if stop_first else (ended, orders._carry_out(STOP)):
            await step
        why = "the GPU process was ended by the node's daemon, as this kernel did not answer: bob needs GPU 0"
        assert await until_told(orders) == why
        assert why[1:] in log.as_text()

    asyncio.run(story())


def found_dead(client: FakeClient, log: NoticeLog) -> Orders:
    keeper = FakeKeeper(executing=False)
    keeper.has_died, keeper.process = True, SimpleNamespace(pid=1, start_time=2)
    return Orders(cast("Any", client), {"id": "w", "gpus": ["GPU 0"]}, cast("Any", keeper), log, lambda: None)


def test_a_stop_that_finds_the_process_dead_leaves_it_to_its_end_to_say_so() -> None:
    """A kernel that stood still hears of both at once, in any order: nobody was taken off by this one."""

    async def story() -> None:
        client, log = FakeClient(), NoticeLog()
        orders = found_dead(client, log)
        orders._was_ready = process = cast("Any", orders._keeper.process)
        await orders._carry_out(STOP)
        assert (client.link.sent, log.take_unread()) == ([], [])
        await orders.ended_by_itself(process, KILLED)
        assert "ended by the node's daemon" in await until_told(orders)
        assert [event for event, _ in client.link.sent] == ["process_exited"]

    asyncio.run(story())


def test_a_stop_that_finds_a_process_dead_that_was_never_ready_answers_itself() -> None:
    """Nobody follows the end of one that still starts, but whoever starts it."""
    client = FakeClient()
    asyncio.run(found_dead(client, NoticeLog())._carry_out(STOP))
    assert [event for event, _ in client.link.sent] == ["process_exited"]


def test_who_was_killed_without_a_stop_reads_by_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nls_jupyter.supervisor.orders._MEANWHILE_S", 0.0)

    async def story() -> None:
        view = {"id": "w", "gpus": ["GPU 0"]}
        keeper = FakeKeeper(executing=False)
        orders = Orders(cast("Any", FakeClient()), view, cast("Any", keeper), NoticeLog(), lambda: None)
        await orders.ended_by_itself(cast("Any", SimpleNamespace(pid=1, start_time=2)), KILLED)
        assert "SIGKILL" in await until_told(orders)

    asyncio.run(story())


def test_a_process_that_is_found_dead_at_a_stop_left_for_the_reason_of_that() -> None:
    async def story() -> None:
        view = {"id": "w", "gpus": ["GPU 0"]}
        keeper = FakeKeeper(executing=False)
        orders = Orders(cast("Any", FakeClient()), view, cast("Any", keeper), NoticeLog(), lambda: None)
        orders._was_ready = keeper.process = cast("Any", SimpleNamespace(pid=1, start_time=2))
        await orders._end(STOP.reason)
        assert await until_told(orders) == "bob needs GPU 0"

    asyncio.run(story())
