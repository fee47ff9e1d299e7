"""The manifests are valid for Kubernetes, render in every overlay, and ask for no more than they say."""

from __future__ import annotations

import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
from manifests import COMPONENTS, EXAMPLES, KUBERNETES, OVERLAYS, daemon_container, name, of_kind, only, read, rendered

from nls_scheduler import __version__
from nls_scheduler.daemon.http.addresses import parse_address
from nls_scheduler.kubernetes_driver.injecting import ALL_GPUS
from nls_scheduler.wire import locate

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("1.34", "1.37")
OURS = sorted(
    path for path in KUBERNETES.rglob("*.yaml") if path.name not in ("kustomization.yaml", "alert_rules.yaml")
)
# Kinds of other projects, of which Kubernetes has no schema.
FOREIGN = {
    "monitoring.coreos.com/v1": {"PodMonitor": {"selector", "podMetricsEndpoints"}, "PrometheusRule": {"groups"}},
    "cert-manager.io/v1": {"Issuer": {"selfSigned"}, "Certificate": {"secretName", "dnsNames", "issuerRef"}},
    "security.openshift.io/v1": {"SecurityContextConstraints": set()},
}
SCC_FIELDS = {
    "allowHostDirVolumePlugin", "allowHostIPC", "allowHostNetwork", "allowHostPID", "allowHostPorts",
    "allowPrivilegeEscalation", "allowPrivilegedContainer", "allowedCapabilities", "apiVersion",
    "defaultAddCapabilities", "fsGroup", "groups", "kind", "metadata", "priority", "readOnlyRootFilesystem",
    "requiredDropCapabilities", "runAsUser", "seLinuxContext", "seccompProfiles", "supplementalGroups", "users",
    "volumes",
}  # fmt: skip


def check(manifest: dict[str, Any]) -> None:
    """Fails for what Kubernetes would refuse. Overlays have most of their objects in common."""
    _check(json.dumps(manifest))


@functools.cache
def _check(text: str) -> None:
    manifest = json.loads(text)
    kinds = FOREIGN.get(manifest["apiVersion"])
    if kinds is not None:
        assert kinds[manifest["kind"]] <= manifest.get("spec", {}).keys()
        return
    for version in VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("path", OURS, ids=name)
def test_every_manifest_is_strictly_valid(path: Path) -> None:
    manifests = read(path)
    assert manifests
    for manifest in manifests:
        check(manifest)


def test_the_validation_is_strict() -> None:
    manifest = read(KUBERNETES / "base" / "daemon_set.yaml")[0]
    manifest["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        check(manifest)


def test_openshift_s_constraints_have_no_field_that_it_does_not_know() -> None:
    for constraints in read(KUBERNETES / "overlays" / "openshift" / "security_context_constraints.yaml"):
        assert constraints.keys() <= SCC_FIELDS


def _denied(pod: dict[str, Any], constraints: dict[str, Any]) -> set[str]:
    """What these constraints would not let a pod be, where they are of a kind that leaves the choice to OpenShift."""
    contexts = [pod.get("securityContext", {}), *(c.get("securityContext", {}) for c in pod["containers"])]
    chosen = {"runAsUser": "runAsUser", "fsGroup": "fsGroup", "seLinuxContext": "seLinuxOptions"}
    denied = {
        field
        for rule, field in chosen.items()
        if constraints[rule]["type"] in ("MustRunAs", "MustRunAsRange") and any(field in own for own in contexts)
    }
    denied |= {kind for volume in pod["volumes"] for kind in volume.keys() - {"name", *constraints["volumes"]}}
    return denied | {own for own in ("hostPID", "hostIPC", "hostNetwork") if pod.get(own)}


def test_openshift_lets_the_notebooks_of_its_example_be() -> None:
    openshift = KUBERNETES / "overlays" / "openshift" / "security_context_constraints.yaml"
    (constraints,) = (c for c in read(openshift) if c["metadata"]["name"] == "nls-notebook")

    def denied(example: str) -> list[set[str]]:
        notebooks = of_kind(rendered(KUBERNETES / "examples" / example), "StatefulSet")
        return [_denied(notebook["spec"]["template"]["spec"], constraints) for notebook in notebooks]

    assert denied("third_pod") == 2 * [{"runAsUser", "fsGroup"}]
    assert denied("third_pod_openshift") == 2 * [set()]


def test_every_file_of_an_overlay_a_component_and_an_example_is_named_and_there() -> None:
    for folder in (KUBERNETES / "base", *OVERLAYS, *COMPONENTS, *EXAMPLES):
        (written,) = read(folder / "kustomization.yaml")
        files = [*written.get("resources", ()), *written.get("components", ())]
        files += [patch["path"] for patch in written.get("patches", ()) if "path" in patch]
        files += [f.partition("=")[2] for g in written.get("configMapGenerator", ()) for f in g["files"]]
        assert all((folder / file).exists() for file in files), folder
        here = {path.name for path in folder.iterdir()} - {"kustomization.yaml"}
        # A rule file for a Prometheus without the operator, and the pod that is applied by hand.
        assert here - set(files) <= {"alert_rules.yaml", "training.yaml"}


@pytest.mark.parametrize("folder", [*OVERLAYS, *EXAMPLES], ids=name)
def test_it_renders_and_what_comes_out_is_strictly_valid(folder: Path) -> None:
    manifests = rendered(folder)
    for manifest in manifests:
        check(manifest)
    named = [(m["kind"], m["metadata"].get("namespace"), m["metadata"]["name"]) for m in manifests]
    assert len(set(named)) == len(named)


def with_component(component: Path, folder: Path) -> list[dict[str, Any]]:
    """The base with one component, as somebody's own overlay elsewhere has it."""
    where = [os.path.relpath(path, folder) for path in (KUBERNETES / "base", component)]
    (folder / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [{where[0]}]\ncomponents: [{where[1]}]\n"
    )
    return rendered(folder)


@pytest.mark.parametrize("component", COMPONENTS, ids=name)
def test_every_component_goes_onto_the_base_and_changes_something(component: Path, tmp_path: Path) -> None:
    manifests = with_component(component, tmp_path)
    for manifest in manifests:
        check(manifest)
    assert manifests != rendered(KUBERNETES / "base")


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_the_daemon_has_no_power_but_looking_into_processes(overlay: Path) -> None:
    manifests = rendered(overlay)
    pod, container = only(manifests, "DaemonSet")["spec"]["template"]["spec"], daemon_container(manifests)
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}
    assert security["readOnlyRootFilesystem"] is True
    assert (security["privileged"], security["allowPrivilegeEscalation"]) == (False, False)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["hostPID"] is True
    assert not pod.keys() & {"hostNetwork", "hostIPC", "initContainers"}
    written = {v["name"] for v in pod["volumes"] if "hostPath" in v}
    writable = {m["name"] for m in container["volumeMounts"] if m["name"] in written and not m.get("readOnly")}
    assert writable == {"socket", "state"}


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_the_daemon_sees_all_gpus_where_a_variable_does_not_ask_for_them(overlay: Path) -> None:
    """NVIDIA's runtime may take volume mounts alone for a request, of a container that is not privileged."""
    manifests = rendered(overlay)
    (mount,) = (m for m in daemon_container(manifests)["volumeMounts"] if m["mountPath"] == ALL_GPUS)
    volumes = only(manifests, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    assert [v["hostPath"]["path"] for v in volumes if v["name"] == mount["name"]] == ["/dev/null"]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
@pytest.mark.parametrize(
    ("label", "runs"),
    [(None, True), ("true", True), ("paused-for-driver-upgrade", False), ("paused-for-mig-change", False)],
)
def test_the_daemon_leaves_the_gpus_to_who_changes_their_driver_or_slices(
    overlay: Path, label: str | None, runs: bool
) -> None:
    """NVIDIA's GPU Operator says so by a label of the node, from 26.7 on; an older one has none."""
    affinity = only(rendered(overlay), "DaemonSet")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    def holds(expression: dict[str, Any]) -> bool:
        assert expression["key"] == "nvidia.com/gpu.deploy.client"
        return {"DoesNotExist": label is None, "In": label in expression.get("values", ())}[expression["operator"]]

    assert any(all(map(holds, term["matchExpressions"])) for term in terms) is runs


def test_ending_others_processes_is_a_component_of_its_own(tmp_path: Path) -> None:
    container = daemon_container(with_component(KUBERNETES / "components" / "end_processes", tmp_path))
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE", "KILL"]


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_an_update_never_takes_the_daemon_from_many_nodes_at_once(overlay: Path) -> None:
    manifests = rendered(overlay)
    spec = only(manifests, "DaemonSet")["spec"]
    assert spec["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}
    priority = only(manifests, "PriorityClass")
    assert spec["template"]["spec"]["priorityClassName"] == priority["metadata"]["name"]
    assert priority["value"] <= 1_000_000_000  # more is the system's own


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_probes_ask_where_the_daemon_is_told_to_answer(overlay: Path) -> None:
    container = daemon_container(rendered(overlay))
    (address,) = (a.partition("observe_address=")[2] for a in container["args"] if "observe_address" in a)
    (port,) = container["ports"]
    assert parse_address(address) == ("::", port["containerPort"])
    asked = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {"/livez", "/readyz"}
    assert {container[p]["httpGet"]["port"] for p in ("startupProbe", "livenessProbe", "readinessProbe")} == {"metrics"}
    template = only(rendered(overlay), "DaemonSet")["spec"]["template"]
    assert template["metadata"]["annotations"]["prometheus.io/port"] == str(port["containerPort"])


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_a_notebook_reaches_the_socket_of_the_daemon_and_cannot_replace_it(example: Path) -> None:
    base = rendered(KUBERNETES / "overlays" / "kai")
    spec = only(base, "DaemonSet")["spec"]["template"]["spec"]
    directory = next(v["hostPath"]["path"] for v in spec["volumes"] if v["name"] == "socket")
    assert directory == str(locate.SYSTEM_SOCKET.parent)
    assert of_kind(rendered(example), "Pod") == [], "a pod without a controller stops a drain"
    pods = [each["spec"]["template"] for each in of_kind(rendered(example), "StatefulSet")]
    assert len(pods) == 2
    for pod in pods:
        (volume,) = (v for v in pod["spec"]["volumes"] if v.get("hostPath", {}).get("path") == directory)
        (container,) = pod["spec"]["containers"]
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == volume["name"])
        assert (mount["mountPath"], mount["readOnly"]) == (directory, True)
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        assert environment["NLS_SOCKET"] == str(locate.SYSTEM_SOCKET)


def test_a_pod_that_was_there_before_its_namespace_is_guarded_can_be_changed_and_can_end() -> None:
    policy, _ = read(KUBERNETES / "components" / "host_paths" / "admission_policy.yaml")
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    asked = {(operation, kind) for rule in rules for operation in rule["operations"] for kind in rule["resources"]}
    assert asked == {("CREATE", "pods"), ("UPDATE", "pods/ephemeralcontainers")}


def test_images_have_the_version_of_this_release() -> None:
    tags = [
        re.findall(r"image: (nls-[a-z]+):(\S+)", path.read_text(encoding="utf-8"))
        for path in KUBERNETES.rglob("*.yaml")
    ]
    found = {image for images in tags for image in images}
    assert found == {("nls-scheduler", __version__), ("nls-notebook", __version__)}


def test_the_probes_port_is_open_to_the_cluster_and_with_monitoring_to_prometheus_alone(tmp_path: Path) -> None:
    base = rendered(KUBERNETES / "base")
    policy, template = only(base, "NetworkPolicy"), only(base, "DaemonSet")["spec"]["template"]
    chosen = policy["spec"]["podSelector"]["matchLabels"]
    assert chosen.items() <= template["metadata"]["labels"].items()
    assert policy["metadata"]["namespace"] == only(base, "DaemonSet")["metadata"]["namespace"]
    # In its node's network no policy would count for it.
    assert "hostNetwork" not in template["spec"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    (rule,) = policy["spec"]["ingress"]
    assert rule["ports"] == [{"protocol": "TCP", "port": daemon_container(base)["ports"][0]["containerPort"]}]
    assert rule["from"] == [{"namespaceSelector": {}}]
    narrowed = only(with_component(KUBERNETES / "components" / "monitoring", tmp_path), "NetworkPolicy")
    (source,) = narrowed["spec"]["ingress"][0]["from"]
    assert source["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "prometheus"}}
