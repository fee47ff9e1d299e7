"""The story in notebooks that lie on volumes, as in the example `kept_variables`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import yaml

from one_node import DEPLOY, NAME, NOTEBOOKS, OneNode, changed_example
from story import Story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def volume(name: str, folder: Path) -> dict[str, object]:
    """For the claim of that notebook's pod: a folder below `folder`."""
    claim = {"namespace": "notebooks", "name": f"work-{name}"}
    spec = {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "claimRef": claim,
        "hostPath": {"path": str(folder / name), "type": "DirectoryOrCreate"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"work-{name}"}, "spec": spec}


@contextmanager
def lasting_story(node: OneNode, scratch: Path, folder: Path) -> Iterator[Story]:
    """Nothing of it stays but `folder`, and the node takes pods afterwards."""
    for name in NOTEBOOKS:
        node.apply(volume(name, folder))
    example = yaml.safe_load((DEPLOY / "examples/kept_variables/kustomization.yaml").read_text())
    (kept,) = (yaml.safe_load(each["patch"]) for each in example["patches"])
    there = {"op": "replace", "path": "/spec/template/spec/containers/0/workingDir", "value": "/home/jovyan/work"}
    story = Story(node, changed_example(scratch, kept, [there]))
    yield story
    node.kubectl("uncordon", NAME)
    story.end()
    node.kubectl("-n", "notebooks", "delete", "persistentvolumeclaims", "--all")
    node.kubectl("delete", "persistentvolumes", "--all")
