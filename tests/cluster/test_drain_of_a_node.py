"""A node is drained: GPU variables outlive their pods, on volumes, as in the example `kept_variables`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.units.clock import awake_s
from one_node import NAME, NOTEBOOKS, PATIENCE_S, OneNode, pod
from volumes import lasting_story
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from story import Story

pytestmark = pytest.mark.timeout(400)

VOLUMES = Path("/var/lib/volumes")


@pytest.fixture(scope="module")
def lasting(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """On this node's own disk."""
    with lasting_story(node, tmp_path_factory.mktemp("example"), VOLUMES) as story:
        yield story


def test_gpu_variables_outlive_a_drain_on_the_volumes_of_their_notebooks(node: OneNode, lasting: Story) -> None:
    (borrower,) = (w["id"] for w in node.status()["workloads"] if w["current"] != w["home"])
    before = len(node.history())
    # Both are idle for long enough then, whose cell was the last one, too: the daemon hears of its end a moment later.
    due_at = awake_s() + Policy().cordoned_idle_s + 1.0
    wait_until(lambda: awake_s() > due_at, PATIENCE_S)
    node.kubectl("cordon", NAME)
    wait_until(lambda: {w["phase"] for w in node.status()["workloads"]} == {"suspended"}, PATIENCE_S)
    left = [entry for entry in node.history()[before:] if entry["event"] == "suspended"]
    assert {entry["workload"] for entry in left} == {w["id"] for w in node.status()["workloads"]}
    assert left[0]["workload"] == borrower
    assert left[1]["at"] > left[0]["at"]
    lasting.kept()
    node.apply(pod("training", "notebooks", gpus=1, nodeName=NAME))
    with contextlib.ExitStack() as stack:
        logs = {name: stack.enter_context(node.following(name)) for name in NOTEBOOKS}
        node.kubectl("drain", NAME, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
        said = {name: log.communicate(timeout=PATIENCE_S)[0] for name, log in logs.items()}
    assert node.status()["workloads"] == []
    assert "FailedPreStopHook" not in node.kubectl("-n", "notebooks", "get", "events"), said
    assert all("brings them back" in words for words in said.values()), said
    for name in NOTEBOOKS:
        (manifest,) = (VOLUMES / name / ".gpu-variables").rglob("manifest.json")
        assert {"owner", "kept"} <= {entry["name"] for entry in json.loads(manifest.read_text())["variables"]}
    node.kubectl("uncordon", NAME)
    node.reserve("g1")
    node.bind_notebooks("g1")
    lasting.open()
    for book in lasting.books.values():
        assert "kept on" in node.run(book, "%gpu restore")
    lasting.kept()
    lasting.spread()
    lasting.third_pod()
