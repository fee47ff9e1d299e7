"""The poller with a driver that does as told: health, absence, and what an administrator says."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from nls_scheduler.core.model.events import GpusDiscovered, MemorySampled
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.core.model.state import NodeState
from nls_scheduler.core.step import step
from nls_scheduler.daemon import poller as poller_module
from nls_scheduler.daemon.poller import Poller, PollRates
from nls_scheduler.daemon.ports import GpuInfo, GpuSample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    import pytest

    from nls_scheduler.core.model.events import Event

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
GIB = 2**30


class ScriptedDriver:
    simulated = True
    context_memory_bytes = 0

    def __init__(self) -> None:
        self.there = [A, B]
        self.left: frozenset[GpuUuid] = frozenset()
        self.sick: dict[GpuUuid, str] = {}
        self.fails: str | None = None
        self.stuck: threading.Event | None = None
        self.searches = 0
        self.processes: Mapping | None = {}  # type: ignore[type-arg]

    def discover(self) -> Sequence[GpuInfo]:
        self.searches += 1
        return [GpuInfo(uuid, "ab".index(uuid[-1]), "Test", 16 * GIB) for uuid in self.there]

    def left_out(self) -> frozenset[GpuUuid]:
        return self.left

    def trouble(self) -> str | None:
        return None if self.there else "There is none."

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        if self.stuck is not None:
            self.stuck.wait(20)
        if self.fails:
            raise OSError(self.fails)
        return {uuid: GpuSample(GIB, self.processes) for uuid in self.there}

    def health(self) -> Mapping[GpuUuid, str]:
        return dict(self.sick)

    def return_to_service(self, gpu: GpuUuid) -> None:
        self.sick.pop(gpu, None)

    def limits_supported(self) -> bool:
        return False

    def limit_memory(self, gpu: GpuUuid, cgroup: Path, request_bytes: int, limit_bytes: int | None) -> None:
        raise OSError((gpu, cgroup, request_bytes, limit_bytes))

    def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}

    def close(self, *, in_use: bool = False) -> None:
        pass


class Node:
    """A state that the poller's events change through the real core."""

    def __init__(self, state: NodeState | None = None) -> None:
        self.driver = ScriptedDriver()
        self.state = state or NodeState()
        self.events: list[Event] = []
        self.poller = Poller(self.driver, PollRates(discover_s=0.0), lambda: self.state, self.apply)

    def apply(self, event: Event) -> None:
        self.events.append(event)
        self.state, _ = step(self.state, event)

    @property
    def health(self) -> dict[str, str | None]:
        return {uuid: gpu.unhealthy_reason and gpu.unhealthy_reason.text for uuid, gpu in self.state.gpus.items()}

    def discoveries(self) -> int:
        return sum(isinstance(event, GpusDiscovered) for event in self.events)


def play(story: Callable[[Node], Awaitable[None]], state: NodeState | None = None) -> Node:
    async def run() -> Node:
        node = Node(state)
        await node.poller.poll()
        await story(node)
        await node.poller.close()
        return node

    return asyncio.run(run())


def test_a_gpu_that_breaks_is_told_once_and_stays_out_of_service_until_it_is_returned() -> None:
    async def story(node: Node) -> None:
        assert node.health == {A: None, B: None}
        node.driver.sick[A] = "Xid 79"
        await node.poller.poll()
        assert node.health == {A: "Xid 79", B: None}
        told = node.discoveries()
        await node.poller.poll()
        assert node.discoveries() == told
        node.driver.sick.clear()  # the driver may forget; the daemon does not
        await node.poller.poll()
        assert node.health == {A: "Xid 79", B: None}
        await node.poller.return_to_service(A)
        assert node.health == {A: None, B: None}
        assert all(gpu.healthy for gpu in node.state.gpus.values())

    play(story)


def test_a_gpu_that_is_still_broken_when_it_is_returned_stays_out() -> None:
    async def story(node: Node) -> None:
        node.driver.sick[A] = "Xid 79"
        node.driver.return_to_service = lambda _: None  # type: ignore[method-assign]
        await node.poller.return_to_service(A)
        assert node.health[A] == "Xid 79"

    play(story)


def test_what_the_core_has_put_out_of_service_is_not_returned_by_a_poll() -> None:
    async def story(node: Node) -> None:
        gpus = {**node.state.gpus, A: replace(node.state.gpus[A], healthy=False, unhealthy_reason=said("quarantined"))}
        node.state = replace(node.state, gpus=gpus)
        await node.poller.poll()
        assert node.health[A] == "quarantined"
        await node.poller.return_to_service(A)
        assert node.health[A] is None

    play(story)


def test_a_vanished_gpu_goes_and_is_healthy_when_it_comes_back() -> None:
    async def story(node: Node) -> None:
        node.driver.there = [B]
        await node.poller.poll()
        assert list(node.state.gpus) == [B]
        node.driver.there = [A, B]
        await node.poller.poll()
        assert node.health == {A: None, B: None}
        node.driver.there = []
        await node.poller.poll()
        assert node.poller.message == "There is none."
        node.driver.there = [A, B]
        await node.poller.poll()
        assert node.health == {A: None, B: None}

    play(story)


def test_a_gpu_that_had_vanished_when_a_daemon_ended_is_healthy_when_the_next_one_finds_it() -> None:
    async def nothing(node: Node) -> None:
        pass

    before = play(nothing).state
    for was in (Reason.VANISHED, Reason.LEFT_OUT):
        lost = replace(before.gpus[A], healthy=False, unhealthy_reason=Why(was))
        broken = replace(before.gpus[B], healthy=False, unhealthy_reason=Why(Reason.UNHEALTHY))
        node = play(nothing, replace(before, gpus={A: lost, B: broken}))
        assert node.state.gpus[A].healthy
        assert not node.state.gpus[B].healthy


def test_a_gpu_that_the_daemon_is_to_leave_out_is_told_apart_from_one_that_has_vanished(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave_one_out(node: Node) -> None:
        node.driver.there, node.driver.left = [B], frozenset({A})
        node.poller.search()
        await node.poller.poll()

    node = play(leave_one_out)
    (told,) = (event for event in node.events[1:] if isinstance(event, GpusDiscovered))
    assert told.left_out == {A}
    assert "GPU 0 (GPU-a) is out of service: the daemon was started without it" in caplog.text
    assert "vanished" not in caplog.text


def test_a_new_gpu_is_found_when_somebody_asks_for_a_search() -> None:
    async def story(node: Node) -> None:
        node.driver.there = [A]
        await node.poller.poll()
        searches = node.driver.searches
        node.poller.search()
        await node.poller.poll()
        assert node.driver.searches == searches + 1

    play(story)


def test_what_a_journal_says_is_there_is_looked_for_at_once() -> None:
    async def nothing(node: Node) -> None:
        pass

    before = play(nothing).state
    node = play(nothing, before)
    assert node.driver.searches == 1
    assert set(node.state.gpus) == {A, B}


def test_a_hidden_process_list_is_unknown_and_not_empty() -> None:
    async def story(node: Node) -> None:
        node.driver.processes = None
        await node.poller.poll()
        sampled = node.events[-1]
        assert isinstance(sampled, MemorySampled)
        assert sampled.readings[A].unplaced is None
        assert node.state.gpus[A].unplaced_bytes == GIB

    play(story)


def test_a_driver_that_fails_or_hangs_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        assert node.poller.not_ready is None
        node.driver.fails = "it is broken"
        await node.poller.poll()
        assert "it is broken" in str(node.poller.not_ready)
        node.driver.fails = None
        await node.poller.poll()
        assert node.poller.not_ready is None
        monkeypatch.setattr(poller_module, "PATIENCE_S", -10.0)
        node.driver.stuck = threading.Event()
        polling = asyncio.ensure_future(node.poller.poll())
        await asyncio.sleep(0)
        assert "has not answered for" in str(node.poller.not_ready)
        node.driver.stuck.set()
        await polling

    play(story)


def test_that_there_is_no_gpu_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def story(node: Node) -> None:
        node.driver.there = []
        for _ in range(3):
            await node.poller.poll()
        assert node.poller.message == "There is none."

    play(story)
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == ["There is none."]


def test_each_poll_is_measured() -> None:
    took: list[float] = []

    async def story(node: Node) -> None:
        node.poller.on_poll = took.append
        await node.poller.poll()

    play(story)
    assert len(took) == 1
    assert took[0] >= 0
