"""The manifests as files and as kubectl renders them, for the tests of what is deployed."""

from __future__ import annotations

import functools
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from daemon_process import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DEPLOY = ROOT / "node_scheduler" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.parent for path in (KUBERNETES / "overlays").glob("*/kustomization.yaml"))
COMPONENTS = sorted(path.parent for path in (KUBERNETES / "components").glob("*/kustomization.yaml"))
EXAMPLES = sorted(path.parent for path in (KUBERNETES / "examples").glob("*/kustomization.yaml"))
Manifest = dict[str, Any]


def name(path: Path) -> str:
    """For the test's id."""
    return str(path.relative_to(KUBERNETES))


def read(path: Path) -> list[Manifest]:
    """The objects of a file."""
    return [written for written in yaml.safe_load_all(path.read_text(encoding="utf-8")) if written is not None]


@functools.cache
def _rendered(folder: Path) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which renders the overlays, is not on the PATH")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "a warning of kubectl's"
    return done.stdout


def rendered(folder: Path) -> list[Manifest]:
    """What `kubectl apply -k` would send. Skips without kubectl."""
    return [written for written in yaml.safe_load_all(_rendered(folder)) if written is not None]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    """Those of one kind."""
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The only one of its kind."""
    (found,) = of_kind(manifests, kind)
    return found


def daemon_container(manifests: list[Manifest]) -> Manifest:
    """The container of the DaemonSet."""
    (container,) = only(manifests, "DaemonSet")["spec"]["template"]["spec"]["containers"]
    return dict(container)


def instructions(path: Path) -> list[tuple[str, str]]:
    """Name and rest of each instruction, continued lines joined, comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word
    ]
