"""A node is drained: GPU variables outlive their pods, on volumes, as in the example `kept_variables`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from nls_scheduler.core.model.policy import Policy
from nls_scheduler.units.clock import boottime_s
from one_node import DEPLOY, NAME, NOTEBOOKS, PATIENCE_S, OneNode, changed_example, pod
from story import Story
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(400)

VOLUMES = Path("/var/lib/volumes")


def volume(name: str) -> dict[str, object]:
    """For the claim of that notebook's pod."""
    claim = {"namespace": "notebooks", "name": f"work-{name}"}
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": claim,
        "hostPath": {"path": str(VOLUMES / name), "type": "DirectoryOrCreate"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"work-{name}"}, "spec": spec}


@pytest.fixture(scope="module")
def lasting(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The story in notebooks that lie on volumes."""
    for name in NOTEBOOKS:
        node.apply(volume(name))
    example = yaml.safe_load((DEPLOY / "examples/kept_variables/kustomization.yaml").read_text())
    (kept,) = (yaml.safe_load(each["patch"]) for each in example["patches"])
    there = {"op": "replace", "path": "/spec/template/spec/containers/0/workingDir", "value": "/home/jovyan/work"}
    story = Story(node, changed_example(tmp_path_factory.mktemp("example"), kept, [there]))
    yield story
    node.kubectl("uncordon", NAME)
    story.end()
    node.kubectl("-n", "notebooks", "delete", "persistentvolumeclaims", "--all")
    node.kubectl("delete", "persistentvolumes", "--all")


def test_gpu_variables_outlive_a_drain_on_the_volumes_of_their_notebooks(node: OneNode, lasting: Story) -> None:
    (borrower,) = (w["id"] for w in node.status()["workloads"] if w["current"] != w["home"])
    told = node.history()
    before, due_at = len(told), told[-1]["at"] + Policy().cordoned_idle_s
    wait_until(lambda: boottime_s() > due_at, PATIENCE_S)  # both are idle for long enough, whoever came last
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
