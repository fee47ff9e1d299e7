"""The webhook's manifests: asked for labelled pods only, with no rights, and away it holds nobody up."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from manifests import KUBERNETES, of_kind, only, rendered
from test_guides import INSTALL, blocks
from test_manifests import check

from nls_scheduler import __version__
from nls_scheduler.cli import _parser
from nls_scheduler.kubernetes_driver.injecting import LABEL, Role
from nls_scheduler.kubernetes_driver.webhook import OWNERS, PODS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def manifests(tmp_path: Path) -> list[dict[str, Any]]:
    """The overlay that the guide shows."""
    written = blocks(INSTALL, "yaml")[1]
    assert yaml.safe_load(written)["kind"] == "Kustomization"
    here = os.path.relpath(KUBERNETES, tmp_path)
    text = written.replace("../nls-jupyter/node_scheduler/deploy/kubernetes", here)
    (tmp_path / "kustomization.yaml").write_text(text)
    found = rendered(tmp_path)
    for manifest in found:
        check(manifest)
    return found


def test_nobody_without_a_label_is_sent_there_and_nobody_waits_for_it(manifests: list[dict[str, Any]]) -> None:
    labelled, owners = only(manifests, "MutatingWebhookConfiguration")["webhooks"]
    (wanted,) = labelled["objectSelector"]["matchExpressions"]
    assert (wanted["key"], wanted["operator"], set(wanted["values"])) == (LABEL, "In", set(Role))
    assert owners["namespaceSelector"]["matchExpressions"] == [{"key": LABEL, "operator": "In", "values": ["owner"]}]
    assert owners["objectSelector"]["matchExpressions"] == [{"key": LABEL, "operator": "DoesNotExist"}]
    assert [hook["clientConfig"]["service"]["path"] for hook in (labelled, owners)] == [PODS, OWNERS]
    for hook in (labelled, owners):
        assert (hook["failurePolicy"], hook["sideEffects"], hook["reinvocationPolicy"]) == (
            "Ignore",
            "None",
            "IfNeeded",
        )
        assert hook["rules"][0]["operations"] == ["CREATE"]
        assert hook["rules"][0]["resources"] == ["pods"]


def test_it_is_reached_by_the_name_of_its_certificate(manifests: list[dict[str, Any]]) -> None:
    deployment, service = only(manifests, "Deployment"), only(manifests, "Service")
    template = deployment["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert service["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    certificate = only(manifests, "Certificate")
    assert name in certificate["spec"]["dnsNames"]
    assert certificate["spec"]["secretName"] == template["spec"]["volumes"][0]["secret"]["secretName"]
    issued = f"{certificate['metadata']['namespace']}/{certificate['metadata']['name']}"
    configuration = only(manifests, "MutatingWebhookConfiguration")
    assert configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == issued
    for hook in configuration["webhooks"]:
        reached = hook["clientConfig"]["service"]
        assert (reached["name"], reached["namespace"]) == (service["metadata"]["name"], "nls-system")
    (policy,) = (p for p in of_kind(manifests, "NetworkPolicy") if p["metadata"]["name"] == "nls-webhook")
    assert policy["spec"]["ingress"][0]["ports"] == [
        {"protocol": "TCP", "port": container["ports"][0]["containerPort"]}
    ]


def test_one_that_ends_answers_until_nobody_is_sent_there_any_more(manifests: list[dict[str, Any]]) -> None:
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert 3 <= container["lifecycle"]["preStop"]["sleep"]["seconds"] <= 10


def test_a_drain_leaves_one_of_them_and_waits_for_none_that_is_not_ready(manifests: list[dict[str, Any]]) -> None:
    """While nobody answers, pods start without what they need, and nobody is told."""
    budget, deployment = only(manifests, "PodDisruptionBudget"), only(manifests, "Deployment")
    assert budget["metadata"]["namespace"] == deployment["metadata"]["namespace"]
    assert budget["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": deployment["spec"]["selector"],
    }
    assert deployment["spec"]["replicas"] > 1


def test_it_has_no_rights_and_no_powers(manifests: list[dict[str, Any]]) -> None:
    spec = only(manifests, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC"}
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    security = container["securityContext"]
    assert (security["capabilities"], security["readOnlyRootFilesystem"]) == ({"drop": ["ALL"]}, True)


def test_its_command_is_one_of_ours_and_init_containers_have_its_image(manifests: list[dict[str, Any]]) -> None:
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    (image,) = (entry["value"] for entry in container["env"] if entry["name"] == "NLS_IMAGE")
    assert image == container["image"] == f"registry.example.org/nls-scheduler:{__version__}"
    options = _parser().parse_args([*container["command"][1:], *container["args"]])
    assert options.image == "$(NLS_IMAGE)"
    assert options.runtime_class == "nvidia"
    assert options.address.endswith(f":{container['ports'][0]['containerPort']}")
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(options.certificate) in mounted
