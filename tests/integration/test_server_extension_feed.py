"""The feed and the stream by themselves: who watches, who is slow, and what a strange daemon does."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import DaemonProcess
from nls_jupyter_server import status_feed
from nls_jupyter_server.orders import Orders
from nls_jupyter_server.page_state import unreachable
from nls_jupyter_server.status_feed import StatusFeed
from nls_jupyter_server.status_socket import StatusSocket
from nls_scheduler.wire.errors import Problem
from pages import apply
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

WITHIN_S = 10.0


class NoKernels:
    """A server without kernels."""

    def pulse(self) -> tuple[object, ...]:
        return ()

    async def places(self, _workloads: object, _found: object) -> dict[str, Any]:
        return {}


async def done(value: bool) -> bool:
    return value


def feed_of(daemon: DaemonProcess) -> StatusFeed:
    return StatusFeed(NoKernels(), dict, socket=str(daemon.socket))  # type: ignore[arg-type]  # only what is used


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60.0))


async def reached(feed: StatusFeed, *, reachable: bool = True) -> None:
    async def so() -> bool:
        return feed.state["daemon"]["reachable"] is reachable

    await eventually(so, WITHIN_S)


def test_who_comes_just_as_the_last_one_leaves_is_served(tmp_path: Path) -> None:
    async def story() -> None:
        feed = feed_of(daemon)
        for _ in range(5):
            with feed.watched():
                await reached(feed)
        with feed.watched():
            await reached(feed)
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


def test_what_a_daemon_that_stands_still_said_before_is_shown_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_feed, "SILENT_S", 0.3)

    async def story() -> None:
        feed = feed_of(daemon)
        with feed.watched():
            await reached(feed)
            assert daemon.process is not None
            daemon.process.send_signal(signal.SIGSTOP)
            await reached(feed, reachable=False)
            assert "not answered for 0.3 s" in feed.state["daemon"]["message"]
            assert feed.state["gpus"] == {}
            daemon.process.send_signal(signal.SIGCONT)
            await reached(feed)
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


def test_nobody_who_looks_later_is_shown_what_was_so_before(tmp_path: Path) -> None:
    async def story() -> None:
        feed = feed_of(daemon)
        with feed.watched():
            await reached(feed)
        await reached(feed, reachable=False)
        assert feed.state["gpus"] == {}
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


def test_while_nobody_watches_the_daemon_is_left_in_peace(tmp_path: Path) -> None:
    async def story() -> None:
        before, feed = asyncio.all_tasks(), feed_of(daemon)
        with feed.watched():
            await reached(feed)
        await reached(feed, reachable=False)
        await eventually(lambda: done(asyncio.all_tasks() <= before), WITHIN_S)
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


@pytest.mark.parametrize("answer", [{}, [], {"workloads": ["a"]}, RecursionError("too many brackets")], ids=repr)
def test_an_answer_that_nobody_can_read_is_a_sentence_for_who_follows_and_for_who_asks_once(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    class Strange:
        async def history(self) -> list[dict[str, Any]]:
            return []

        async def status(self) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        async def events(self, *, began: Callable[[], object], **_: object) -> AsyncIterator[dict[str, Any]]:
            began()
            yield await asyncio.Future()

    async def client(_feed: StatusFeed) -> Any:
        return Strange()

    async def story() -> None:
        feed = StatusFeed(NoKernels(), dict)  # type: ignore[arg-type]  # only what is used
        orders = Orders(feed)
        assert "another version" in (await orders.state())["daemon"]["message"]
        with pytest.raises(Problem, match="another version"):
            await orders.is_own("a")
        with feed.watched():
            await feed.newer_than(0, WITHIN_S)
            assert "another version" in feed.state["daemon"]["message"]
        await feed.close()

    monkeypatch.setattr(StatusFeed, "client", client)
    run(story())


class Telling:
    """A daemon in which something happens just after it has told what happened."""

    def __init__(self) -> None:
        self.entries = [self.entry(1)]
        self.followers: list[asyncio.Queue[dict[str, Any]]] = []
        self.asked = False

    @staticmethod
    def entry(sequence: int) -> dict[str, Any]:
        return {"sequence": sequence, "workload": None, "event": "gpu_healthy", "owner": None, "own": False}

    def happens(self) -> None:
        self.entries.append(self.entry(len(self.entries) + 1))
        for follower in self.followers:
            follower.put_nowait(self.entries[-1])

    async def history(self) -> list[dict[str, Any]]:
        told = list(self.entries)
        if not self.asked:
            self.asked = True
            self.happens()
        return told

    async def status(self) -> Any:
        return {"message": None, "version": "1", "simulated": True, "gpus": [], "workloads": []}

    async def events(self, *, began: Callable[[], object], **_: object) -> AsyncIterator[dict[str, Any]]:
        follower: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.followers.append(follower)
        began()
        while True:
            yield await follower.get()


def test_what_happens_while_the_history_is_told_is_shown_though_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = Telling()

    async def client(_feed: StatusFeed) -> Any:
        return daemon

    async def story() -> None:
        feed = StatusFeed(NoKernels(), dict)  # type: ignore[arg-type]  # only what is used
        with feed.watched():
            await eventually(lambda: done(len(feed.state["history"]) > 1), WITHIN_S)
            daemon.happens()
            await eventually(lambda: done(len(feed.state["history"]) > 2), WITHIN_S)
            assert [entry["sequence"] for entry in feed.state["history"]] == [1, 2, 3]
        await feed.close()

    monkeypatch.setattr(StatusFeed, "client", client)
    run(story())


@pytest.mark.parametrize(
    ("raised", "said"),
    [(ArithmeticError("of a kind that nobody foresaw"), "please report it"), (KeyError("phase"), "another version")],
    ids=["what nobody foresaw", "a daemon that speaks otherwise"],
)
def test_what_cannot_be_understood_is_named_and_the_daemon_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: Exception, said: str
) -> None:
    real, answers = status_feed.page_state, []

    def strange(*arguments: Any) -> Any:
        answers.append(arguments)
        if len(answers) < 3:
            raise raised
        return real(*arguments)

    async def story() -> None:
        feed = feed_of(daemon)
        monkeypatch.setattr(status_feed, "page_state", strange)
        with feed.watched():
            await feed.newer_than(0, WITHIN_S)
            assert said in feed.state["daemon"]["message"]
            await reached(feed)
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


def with_memory(state: dict[str, Any], used_bytes: int) -> dict[str, Any]:
    changed = copy.deepcopy(state)
    for gpu in changed["gpus"].values():
        gpu["memory_used_bytes"] = used_bytes
    return changed


def test_figures_that_change_all_the_time_make_at_most_one_state_a_second(tmp_path: Path) -> None:
    async def story() -> None:
        feed = feed_of(daemon)
        with feed.watched():
            await reached(feed)
            before, began = feed.version, time.monotonic()
            for number in range(200):
                feed._publish(with_memory(feed.state, number + 1))
            assert feed.version - before <= 1 + (time.monotonic() - began) / status_feed.FIGURES_EVERY_S
            feed._figures_at -= status_feed.FIGURES_EVERY_S
            before = feed.version
            feed._publish(with_memory(feed.state, 1000))
            assert feed.version == before + 1
            changed = copy.deepcopy(feed.state)
            changed["daemon"]["message"] = "This is news."
            version = feed.version
            feed._publish(changed)
            assert feed.version == version + 1
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())


class SlowPage(StatusSocket):
    """A page that takes a message only when it is let."""

    def __init__(self) -> None:
        self.may = {}
        self.sent: list[dict[str, Any]] = []
        self.takes = asyncio.Semaphore(0)

    async def write_message(self, message: Any, _binary: bool = False) -> None:  # type: ignore[override]
        await self.takes.acquire()
        self.sent.append(json.loads(message))


def test_a_page_whose_sending_fails_is_hung_up_on_and_may_come_again(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(SlowPage):
        closed_with: int | None = None
        log = logging.getLogger("page")

        async def write_message(self, _message: Any, _binary: bool = False) -> None:  # type: ignore[override]
            raise ArithmeticError("of a kind that nobody foresaw")

        def close(self, code: int | None = None, _reason: str | None = None) -> None:
            self.closed_with = code

    async def story() -> None:
        feed, page = StatusFeed(NoKernels(), dict, socket="/nowhere/nls.sock"), Odd()  # type: ignore[arg-type]
        await page._send_all(feed)
        assert page.closed_with == 1011
        await feed.close()

    run(story())
    assert "ArithmeticError" in caplog.text


def test_a_slow_page_gets_fewer_and_larger_differences_and_ends_with_the_same_state(tmp_path: Path) -> None:
    async def story() -> None:
        feed = feed_of(daemon)
        slow = SlowPage()
        sender = asyncio.create_task(slow._send_all(feed))
        await reached(feed)
        slow.takes.release()
        await eventually(lambda: done(len(slow.sent) == 1), WITHIN_S)
        first = feed.version
        for number in range(50):
            feed._publish(unreachable(f"change {number}"))
            await asyncio.sleep(0)
        assert feed.version == first + 50
        for _ in range(3):
            slow.takes.release()
        await eventually(lambda: done(slow.sent[-1]["version"] >= feed.version), WITHIN_S)
        sender.cancel()
        assert len(slow.sent) <= 4
        state = slow.sent[0]["snapshot"]
        for before, message in zip(slow.sent, slow.sent[1:], strict=False):
            assert message["after"] == before["version"]
            apply(state, message)
        assert state == feed.state
        await feed.close()

    with DaemonProcess(tmp_path) as daemon:
        run(story())
