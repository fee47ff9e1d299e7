"""The real API server calls the webhook, and what it adds is enough: for notebooks, and for pods that are held."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from one_node import DEPLOY, GPUS, NOTEBOOKS, PATIENCE_S, WAITS, OneNode, changed_example, pod
from story import Stories
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from story import Story

pytestmark = pytest.mark.timeout(400)

SERVICE = "nls-webhook.nls-system.svc"
LABEL = "nls-jupyter/inject"
CONTAINER = "/spec/template/spec/containers/0"
# What the webhook is to add, and nothing else.
WITHOUT_OURS = [
    {"op": "remove", "path": f"{CONTAINER}/volumeMounts/0"},
    {"op": "remove", "path": "/spec/template/spec/volumes/0"},
    {"op": "test", "path": f"{CONTAINER}/env/1/name", "value": "NLS_SOCKET"},
    {"op": "remove", "path": f"{CONTAINER}/env/1"},
    {"op": "add", "path": "/spec/template/metadata/labels/nls-jupyter~1inject", "value": "notebook"},
]


def install(node: OneNode, folder: Path) -> None:
    """As the guide has it without cert-manager. Every runtime of this node is runc."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=nls-webhook", "-addext", f"subjectAltName=DNS:{SERVICE}"]
    command += ["-days", "825", "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    files = (f"--cert={folder / 'tls.crt'}", f"--key={folder / 'tls.key'}")
    node.kubectl("-n", "nls-system", "create", "secret", "tls", "nls-webhook-tls", *files)
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    node.apply({**runtime, "handler": "runc"})
    for name in ("deployment", "service", "webhook_configuration", "network_policy"):
        node.kubectl("apply", "-f", str(DEPLOY / f"components/webhook/{name}.yaml"))
    trusted = base64.b64encode((folder / "tls.crt").read_bytes()).decode()
    patch = [{"op": "add", "path": f"/webhooks/{n}/clientConfig/caBundle", "value": trusted} for n in (0, 1)]
    node.kubectl("patch", "mutatingwebhookconfiguration", "nls-webhook", "--type=json", "--patch", json.dumps(patch))
    node.kubectl("-n", "nls-system", "rollout", "status", "deployment/nls-webhook", "--timeout=90s")


@pytest.fixture(scope="module")
def stories(node: OneNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    """In notebooks that have only the label."""
    folder = tmp_path_factory.mktemp("webhook")
    install(node, folder)
    # A new configuration, and that its endpoints are there, is heard of a little later.
    wait_until(lambda: waits(dry_run(node, {LABEL: "owner"})), PATIENCE_S)
    stories = Stories(node, changed_example(folder, WITHOUT_OURS))
    yield stories
    stories.end()
    for name in ("webhook_configuration", "deployment", "service", "network_policy"):
        node.kubectl("delete", "-f", str(DEPLOY / f"components/webhook/{name}.yaml"))
    node.kubectl("-n", "nls-system", "delete", "secret", "nls-webhook-tls")


def dry_run(node: OneNode, labels: dict[str, str], namespace: str = "notebooks") -> Any:
    """A pod with a GPU as it would be."""
    written = json.dumps(pod("asked", namespace, gpus=1, labels=labels))
    return json.loads(node.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", given=written))


def waits(written: Any) -> bool:
    """Whether its start is held."""
    return WAITS in [container["name"] for container in written["spec"].get("initContainers", ())]


def test_a_notebook_whose_pod_has_only_the_label_is_looked_after(node: OneNode, story: Story) -> None:
    for name in NOTEBOOKS:
        spec = node.get("pod", name, "notebooks")["spec"]
        assert {"name": "NLS_SOCKET", "value": "/run/nls/nls.sock"} in spec["containers"][0]["env"]
        assert spec["runtimeClassName"] == "nvidia"
    story.third_pod()


def test_an_owner_with_the_label_starts_when_its_gpu_is_vacated(node: OneNode, story: Story) -> None:
    node.apply(pod("held", "notebooks", gpus=1, labels={LABEL: "owner"}))
    wait_until(lambda: node.running("held"), PATIENCE_S)
    assert node.current() == set(GPUS) - {node.device("held")}
    (ended,) = node.get("pod", "held", "notebooks")["status"]["initContainerStatuses"]
    assert (ended["name"], ended["state"]["terminated"]["exitCode"]) == (WAITS, 0)
    assert "starts" not in node.kubectl("-n", "notebooks", "logs", "held", "-c", WAITS)
    node.kubectl("-n", "notebooks", "delete", "pod", "held")
    story.spread()
    story.kept()


def test_the_label_of_a_namespace_is_for_all_of_its_pods_but_those_that_say_none(node: OneNode, story: Story) -> None:
    namespace = {"name": "training", "labels": {LABEL: "owner"}}
    node.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": namespace})
    wait_until(lambda: waits(dry_run(node, {}, "training")), PATIENCE_S)
    assert not waits(dry_run(node, {LABEL: "none"}, "training"))
    assert not waits(dry_run(node, {}))
    story.kept()


def test_pods_start_without_it_when_the_webhook_is_gone(node: OneNode, story: Story) -> None:
    """The last test of this story."""
    node.kubectl("-n", "nls-system", "scale", "deployment/nls-webhook", "--replicas=0")
    node.kubectl("-n", "nls-system", "delete", "pods", "-l", "app.kubernetes.io/name=nls-webhook", "--force")
    node.apply(pod("alone", "notebooks", gpus=1, labels={LABEL: "owner"}))
    assert not waits(node.get("pod", "alone", "notebooks"))
    wait_until(lambda: node.running("alone"), PATIENCE_S)
    wait_until(lambda: node.current() == set(GPUS) - {node.device("alone")}, PATIENCE_S)
    story.kept()
    node.kubectl("-n", "notebooks", "delete", "pod", "alone")
    story.spread()
