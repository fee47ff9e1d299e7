"""Many changes in one moment, as after a watch that was away: they are looked at together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from driven_node import do, run, until
from fake_api_server import FakeApiServer
from nls_scheduler.kubernetes_driver import driver
from objects import PODS, pod

if TYPE_CHECKING:
    from pathlib import Path

    from api_servers import ApiServer
    from driven_node import NodeOfTests
    from nls_scheduler.kubernetes_driver.driver import KubernetesCluster
    from nls_scheduler.kubernetes_driver.view import Sources, View

PODS_AT_ONCE = 100


@pytest.mark.faults
def test_what_comes_in_one_moment_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []
    look = driver.look

    def counted(sources: Sources) -> View:
        looked_at.append(len(sources.pods))
        return look(sources)

    async def story(server: ApiServer, cluster: KubernetesCluster, host: NodeOfTests) -> None:
        assert isinstance(server, FakeApiServer)
        await until(lambda: cluster.not_ready is None)
        await until(lambda: server.watching_for(PODS))
        events = [{"type": "ADDED", "object": pod(f"train-{number}", gpus=1)} for number in range(PODS_AT_ONCE)]
        said = "".join(json.dumps(event) + "\n" for event in events).encode()
        await do(lambda: server.say(said, to=PODS, then_end=False))
        await until(lambda: len(host.owners()) == PODS_AT_ONCE)
        assert len([pods for pods in looked_at if pods]) < PODS_AT_ONCE / 10

    monkeypatch.setattr(driver, "look", counted)
    run(tmp_path, story)
