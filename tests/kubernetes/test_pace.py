"""Work in the background of the driver never ends for good, whatever is raised in it, and says so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from driven_node import ONE, PACE, NodeOfTests, do, run, until
from fake_kubelet import FakeKubelet
from nls_scheduler.kubernetes_driver import driver
from nls_scheduler.kubernetes_driver.api import KubernetesApi
from nls_scheduler.kubernetes_driver.by_name import ByName
from nls_scheduler.kubernetes_driver.kubelet import Kubelet
from nls_scheduler.kubernetes_driver.pace import Pace, Rounds
from nls_scheduler.kubernetes_driver.pods import PodRecord
from objects import CONFIG_MAPS, PODS, config_map

if TYPE_CHECKING:
    from pathlib import Path

    from api_servers import ApiServer
    from nls_scheduler.kubernetes_driver.driver import KubernetesCluster
    from nls_scheduler.kubernetes_driver.reflector import Api

QUICK = Pace(least_s=0.001, most_s=0.01)


class SelfMadeError(Exception):
    """Nobody foresaw it."""


def test_a_round_that_fails_is_told_with_its_traceback_and_the_next_ones_come(caplog: pytest.LogCaptureFixture) -> None:
    rounds, told = Rounds("Counting to five", QUICK), []

    async def count() -> None:
        told.append(rounds.trouble)
        if len(told) < 4:
            raise SelfMadeError("too difficult")
        if len(told) == 5:
            raise asyncio.CancelledError

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await rounds.go_on(count)

    asyncio.run(main())
    why = "Counting to five failed and is tried again, please report it: SelfMadeError: too difficult"
    assert told == [None, why, why, why, None]
    assert caplog.text.count("DEFECT") == 1, "the same again is no news"
    assert "Traceback" in caplog.text


def test_the_pauses_grow_and_have_a_bound() -> None:
    rounds = Rounds("Nothing", Pace(least_s=1.0, most_s=8.0))
    pauses_s = [pause_s for _ in range(50) if (pause_s := rounds.once(_fails)) is not None]
    assert len(pauses_s) == 50
    assert pauses_s[0] <= 2.0
    assert max(pauses_s) <= 8.0
    assert min(pauses_s) >= 0.5


def test_what_the_kubelet_says_and_nobody_can_read_is_told_and_waited_out(tmp_path: Path) -> None:
    async def main(kubelet: FakeKubelet) -> None:
        changed = asyncio.Event()
        asking = Kubelet(kubelet.socket, changed.set)
        kubelet.garbled = True
        await asking.begin()
        assert asking.allocations is None
        task = asyncio.create_task(asking.run())
        await until(lambda: "cannot be read" in str(asking.trouble))
        kubelet.garbled = False
        asking.ask_soon()
        await asyncio.wait_for(changed.wait(), 15)
        assert asking.allocations == {"default/train": (ONE,)}
        assert asking.trouble is None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asking.close()

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.allocations = {"default/train": [ONE]}
        asyncio.run(main(kubelet))


def test_a_look_that_fails_is_told_and_made_again_without_further_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: cluster.not_ready is None and host.owners() == {})  # and has looked
        with monkeypatch.context() as patched:
            patched.setattr(driver, "look", _fails)
            kubelet.allocations = {"default/train": [ONE]}
            await until(lambda: "SelfMadeError" in str(cluster.trouble))
            assert cluster.not_ready == cluster.trouble
            assert host.owners() == {}
        await until(lambda: host.owners() == {"allocated:default/train": (ONE,)})
        assert (cluster.trouble, cluster.not_ready) == (None, None)

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        run(tmp_path, story)


def test_a_step_of_the_daemon_is_done_whatever_goes_wrong_with_what_it_means_for_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(_: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: cluster.not_ready is None and host.owners() == {})
        with monkeypatch.context() as patched:
            patched.setattr(cluster.vacating, "observe", _fails)
            host.submit("1", 1, ONE)
            assert host.state.workloads
            assert "SelfMadeError" in str(cluster.trouble)
        cluster.stepped()
        assert cluster.trouble is None

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story)


def test_no_work_of_the_driver_ends_whatever_its_clients_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: cluster.not_ready is None)
        tasks = set(cluster._tasks)
        with monkeypatch.context() as patched:
            for name in ("list", "watch", "create"):
                patched.setattr(KubernetesApi, name, _fails)
            patched.setattr(cluster._kubelet._client, "allocations", _fails)
            cluster._kubelet.ask_soon()
            cluster._events.once(PodRecord("uid-1", "default", "train"), "GpuRequestInvalid", "much is no number")
            for each in (*cluster._reflectors, cluster._heartbeat, cluster._kubelet):
                await until(lambda each=each: "SelfMadeError" in str(each.trouble))
            await until(lambda: cluster._events.lost == 1)
        assert "SelfMadeError" in str(cluster.trouble)
        await until(lambda: cluster.trouble is None)
        assert cluster._tasks == tasks

    with FakeKubelet(tmp_path / "kubelet.sock"):
        run(tmp_path, story, pace=replace(PACE, watch_s=0.2, beat_s=0.05))


def test_a_question_that_fails_unforeseen_is_told_and_holds_nothing_back() -> None:
    class Odd:
        async def list(self, _path: str, _params: object) -> Any:
            return _fails()

    async def main() -> None:
        answered = asyncio.Event()
        asked: ByName[str] = ByName(cast("Api", Odd()), PODS, str, answered.set)
        asked.want({"default/train"})
        assert asked.asked_for == {"default/train"}
        await asyncio.wait_for(answered.wait(), 15)
        assert (asked.asked_for, asked.records) == (frozenset(), {})
        assert "SelfMadeError" in str(asked.trouble)
        await asked.close()

    asyncio.run(main())


def _fails(*_: Any, **__: Any) -> Any:
    raise SelfMadeError("too difficult")


def test_a_policy_of_many_brackets_is_refused_and_everything_else_goes_on(tmp_path: Path) -> None:
    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        await until(lambda: cluster.not_ready is None)
        await do(lambda: server.put(CONFIG_MAPS, config_map("[" * 100_000)))
        await until(lambda: "is refused and the old one stays" in str(cluster.trouble))
        kubelet.allocations = {"default/train": [ONE]}
        await until(lambda: host.owners() == {"allocated:default/train": (ONE,)})
        assert cluster.not_ready is None

    with FakeKubelet(tmp_path / "kubelet.sock") as kubelet:
        run(tmp_path, story)
