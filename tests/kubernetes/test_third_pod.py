"""Real notebooks in a cluster: both burst, a third pod is on its way, and by the time it starts its Gpu is free."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from cluster_bench import ClusterBench
from fake_api_server import FakeApiServer
from nls_scheduler.units.clock import awake_s
from objects import BIND_REQUESTS, NODES, PODS, node, pod, shared_pod
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from notebooks import Book

FAST = ("--set", "cool_down_s=0.2", "--set", "min_residency_s=0.2", "--set", "poll_interval_s=0.1")
CORDONED_IDLE_S = 0.5
FAST += ("--set", f"cordoned_idle_s={CORDONED_IDLE_S}")
DEADLINE_S = 30.0
"""Far above `reclaim_deadline_s`: what is late is measured by the daemon itself, and this machine may be busy."""

pytestmark = pytest.mark.long("a notebook beside pods in a whole cluster")


class Story:
    """alice and bob, each with half of GPU 0 on paper."""

    def __init__(self, cluster: ClusterBench) -> None:
        self.cluster = cluster
        cluster.reserve("g0", 0)
        self.uids = {name: cluster.book(name) for name in ("alice", "bob")}
        self.books: dict[str, Book] = {}
        for name, uid in self.uids.items():
            book = cluster.jupyter.open(f"{name}.ipynb")
            cluster.cgroups.move(book.pid(), uid)
            book.gpu(f"owner = {name!r}; kept = list(range(10))")
            self.books[name] = book

    def current(self) -> set[str]:
        """The Gpus on which they run; waits for both."""
        entries = [book.entry(phase="running", executing=False) for book in self.books.values()]
        return {gpu for entry in entries for gpu in entry["current"]}

    def spread(self) -> None:
        """Both burst: one at home, one on the other Gpu."""
        wait_until(lambda: self.current() == set(self.cluster.gpus), DEADLINE_S)

    def gathered(self) -> None:
        """Both are at home, with their variables."""
        wait_until(lambda: self.current() == {self.cluster.gpus[0]}, DEADLINE_S)
        for name, book in self.books.items():
            assert book.gpu("print(owner, sum(kept))").stdout.strip() == f"{name} 45"

    def processes(self) -> dict[str, int]:
        """Pids of the GPU processes."""
        return {name: book.entry(phase="running")["pid"] for name, book in self.books.items()}

    def claims(self, signal: str) -> float:
        """How many claims began with that signal."""
        return self.cluster.metric(f'nls_kubernetes_claims_total{{signal="{signal}"}}')


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("story")
    with ClusterBench(directory, "2x16GiB", *FAST, notebooks=True) as cluster:
        yield Story(cluster)


def test_a_bind_request_vacates_the_gpu_before_the_pod_is_bound(story: Story) -> None:
    story.spread()
    before = story.claims("bind_request")
    request = story.cluster.request("train", groups=["g-new"], portion="0.5")
    story.gathered()
    assert story.claims("bind_request") == before + 1
    train = shared_pod("train", "0.5", "g-new", started_at=_now())
    story.cluster.put(train)
    reserved = story.cluster.reserve("g-new", 1)
    wait_until(lambda: story.cluster.gpu(1)["unplaced_bytes"] == 8 * 2**30)
    wait_until(lambda: story.cluster.metric("nls_kubernetes_vacate_lateness_seconds_count") >= 1)
    assert story.claims("bind_request") == before + 1, "it is one claim, however it is known"
    assert story.cluster.metric('nls_kubernetes_claims_missed_total{signal="bind_request"}') == 0
    for collection, written in ((BIND_REQUESTS, request), (PODS, train), (PODS, reserved)):
        story.cluster.api.delete(collection, written)
    story.spread()


def history(story: Story) -> list[dict[str, Any]]:
    """All entries of the daemon."""
    status, told = story.cluster.daemon.request("GET", "/v1/history")
    assert status == 200
    return list(told["entries"])


def test_a_cordoned_node_is_vacated_in_an_order_and_their_next_cells_bring_notebooks_back(story: Story) -> None:
    story.spread()
    borrower = next(b for b in story.books.values() if b.entry(phase="running")["current"] != [story.cluster.gpus[0]])
    before, due_at = history(story)[-1]["sequence"], awake_s() + CORDONED_IDLE_S
    wait_until(lambda: awake_s() > due_at)  # both are idle for long enough, whoever came last and ran a cell
    story.cluster.api.put(NODES, node({"nvidia.com/gpu.memory": "16384"}, cordoned=True))
    for book in story.books.values():
        book.entry(phase="suspended")
    left = [e for e in history(story) if e["sequence"] > before and e["event"] == "suspended"]
    assert len(left) == len(story.books)
    assert left[0]["workload"] == borrower.entry()["id"]
    assert all("about to be emptied" in entry["reason"] for entry in left)
    assert "leave their GPUs, one after another" in story.cluster.daemon.status()["message"]
    for name, book in story.books.items():
        assert book.gpu("print(owner, sum(kept))").stdout.strip() == f"{name} 45"
    story.cluster.api.put(NODES, node({"nvidia.com/gpu.memory": "16384"}))
    wait_until(lambda: story.cluster.daemon.status()["message"] is None)
    for book in story.books.values():
        book.gpu("pass")
    story.spread()


def test_whoever_was_moved_can_read_why_in_the_pod_s_events(story: Story) -> None:
    story.spread()
    train = pod("train", gpus=1, scheduler="default-scheduler", phase="Pending")
    story.cluster.put(train)
    story.gathered()
    moved = wait_until(lambda: story.cluster.events("GpuMoved"), DEADLINE_S)
    assert {event["involvedObject"]["uid"] for event in moved} <= set(story.uids.values())
    assert all("because" in event["message"] for event in moved)
    assert any("default/train needs GPU 1" in event["message"] for event in moved)
    history = json.loads(story.cluster.daemon.nls("history", "--json").stdout)
    told = [entry for entry in history if entry["event"] == "moved" and "default/train" in entry["reason"]]
    assert told
    assert {entry["cause"]["name"] for entry in told} == {"default/train"}
    story.cluster.api.delete(PODS, train)
    story.spread()


def test_a_pod_that_is_only_bound_vacates_the_gpu_too(story: Story) -> None:
    story.spread()
    before = story.claims("binding")
    train = pod("train", gpus=1, scheduler="default-scheduler", phase="Pending")
    story.cluster.put(train)
    story.gathered()
    assert story.claims("binding") == before + 1
    story.cluster.api.delete(PODS, train)
    story.spread()


def test_kai_s_reservation_pod_alone_vacates_the_gpu_that_it_names(story: Story) -> None:
    story.spread()
    reserved = story.cluster.reserve("g-other", 1)
    story.gathered()
    story.cluster.api.delete(PODS, reserved)
    story.spread()


def test_an_allocation_that_only_the_kubelet_knows_of_vacates_its_gpu(story: Story) -> None:
    story.spread()
    before = story.claims("allocation")
    story.cluster.kubelet.allocations = {"default/train": [story.cluster.gpus[1]]}
    story.gathered()
    assert story.claims("allocation") == before + 1
    # Nobody could know before: that is what the miss rate counts.
    assert story.cluster.metric('nls_kubernetes_claims_missed_total{signal="allocation"}') >= 1
    story.cluster.kubelet.allocations = {}
    story.spread()


@pytest.mark.faults
def test_a_daemon_that_starts_while_the_api_server_is_away_goes_on_with_what_was_known(story: Story) -> None:
    story.spread()
    before = story.processes()
    api, daemon = story.cluster.api, story.cluster.daemon
    assert isinstance(api, FakeApiServer)
    api.faults.refused = dict.fromkeys((PODS, NODES, BIND_REQUESTS), 503)
    api.end_watches()
    daemon.kill()
    daemon.start()
    wait_until(lambda: "no further GPU is lent" in str(daemon.request("GET", "/readyz")[1]), DEADLINE_S)
    assert "s ago stays" in str(daemon.request("GET", "/readyz")[1])
    story.spread()
    assert [book.gpu("print(sum(kept))").stdout.strip() for book in story.books.values()] == ["45", "45"]
    assert not any("place on the GPU has ended" in book.run("%gpu log").stdout for book in story.books.values())
    assert story.processes() == before
    api.faults.refused = {}
    wait_until(story.cluster.ready, 2 * DEADLINE_S)
    story.spread()
    assert story.processes() == before


def test_a_pod_that_vanishes_while_its_notebook_moves_breaks_nothing(story: Story) -> None:
    """The last test of this story: a pod that has gone does not come back under its UID."""
    story.spread()
    borrowed = story.cluster.gpus[1]
    leaver = next(name for name, book in story.books.items() if book.entry()["current"] == [borrowed])
    request = story.cluster.request("train", groups=["g-new"], portion="0.5")
    story.cluster.api.delete(PODS, {"metadata": {"name": leaver, "namespace": "default"}})
    story.gathered()
    assert "GPU 0" in story.books[leaver].run("%gpu").result
    story.cluster.api.delete(BIND_REQUESTS, request)
    assert "Traceback" not in story.cluster.daemon.log


def _now() -> str:
    return datetime.fromtimestamp(time.time(), tz=UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
