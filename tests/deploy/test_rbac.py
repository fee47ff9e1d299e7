"""The daemon's roles are minimal: it may do what it was seen to do, and nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from manifests import KUBERNETES, OVERLAYS, Manifest, daemon_container, name, of_kind, only, rendered
from rbac import Permission, granted, held_against, needed_for

from daemon_process import ROOT, DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACE = "nls-system"
OPERATOR = "/namespaces/gpu-operator/"


def grants(overlay: Path) -> set[Permission]:
    manifests = rendered(overlay)
    pod = only(manifests, "DaemonSet")["spec"]["template"]["spec"]
    return granted(manifests, (NAMESPACE, pod["serviceAccountName"]))


def argument(overlay: Path, option: str) -> str | None:
    """One of the daemon's arguments in that overlay, as its pod on `node-a` gets it."""
    found = (a for a in daemon_container(rendered(overlay))["args"] if a.startswith(f"{option}="))
    written = next(found, None)
    return written and written.replace("$(POD_NAMESPACE)", NAMESPACE).replace("$(NODE_NAME)", "node-a")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """Every kind of call that a real daemon makes, as a small API server has recorded them.

    The pods of the node, the claim of one, KAI's decision on one that is not bound yet, an annotation that cannot be
    read (of which an Event tells), the policy, and the topology of fake-gpu-operator.
    """
    pytest.importorskip("kubernetes", reason="pip install 'nls-jupyter[kubernetes]'")
    stand_ins = str(ROOT / "tests" / "kubernetes")
    sys.path.insert(0, stand_ins)
    try:
        from fake_api_server import FakeApiServer
        from fake_kubelet import FakeKubelet
        from objects import BIND_REQUESTS, NODE, NODES, PODS, bind_request, node, pod
    finally:
        sys.path.remove(stand_ins)
    directory = tmp_path_factory.mktemp("cluster")
    named = [argument(KUBERNETES / "overlays" / "kind", option) for option in ("--policy", "--topology")]
    with FakeApiServer() as api, FakeKubelet(directory / "kubelet.sock") as kubelet:
        api.put(NODES, node({}))
        api.put(PODS, pod("odd", annotations={"gpu-fraction": "much"}))
        api.put(PODS, pod("claiming", claim="gpu"))
        api.put(BIND_REQUESTS, bind_request("coming"))
        options = ["--kubernetes", "--node-name", NODE, "--kubelet-socket", str(kubelet.socket), *filter(None, named)]
        options += ["--kubeconfig", str(api.kubeconfig(directory)), "--first-list-within", "0.01"]
        with DaemonProcess(directory, "2x16GiB", *options):

            def complete() -> bool:
                kinds = {needed_for(*call).resource for call in api.requests if call[0] == "WATCH"}
                asked = {path.rpartition("/namespaces/default/")[2] for _, path in api.requests}
                told = any(method == "POST" for method, _ in api.requests)
                maps = {path for method, path in api.requests if method == "WATCH" and path.endswith("/configmaps")}
                every = {"pods", "nodes", "bindrequests", "configmaps", "resourceslices"}
                return kinds == every and asked >= {"pods", "resourceclaims"} and told and len(maps) == 2

            wait_until(complete, 40)
        return set(api.requests)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_every_call_of_the_daemon_is_granted_and_every_grant_is_used(
    overlay: Path, calls: set[tuple[str, str]]
) -> None:
    asked = calls if argument(overlay, "--topology") else {call for call in calls if OPERATOR not in call[1]}
    refused, idle = held_against(asked, grants(overlay))
    assert refused == set()
    assert idle == set()


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_nothing_can_be_changed_but_events_can_be_told(overlay: Path) -> None:
    writing = {p for p in grants(overlay) if p.verb not in ("get", "list", "watch")}
    assert writing == {Permission("", "events", "create")}
    for role in (*of_kind(rendered(overlay), "ClusterRole"), *of_kind(rendered(overlay), "Role")):
        words = [word for rule in role["rules"] for key in ("apiGroups", "resources", "verbs") for word in rule[key]]
        assert "*" not in words
        assert not {"secrets", "pods/exec"} & set(words)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=name)
def test_the_only_config_map_that_can_be_read_is_the_policy(overlay: Path) -> None:
    """In its own namespace; where the GPUs are fake-gpu-operator's, its ConfigMaps as well."""
    manifests: list[Manifest] = rendered(overlay)
    roles = {role["metadata"]["namespace"]: role for role in of_kind(manifests, "Role")}
    assert set(roles) == ({NAMESPACE, "gpu-operator"} if argument(overlay, "--topology") else {NAMESPACE})
    (rule,) = roles[NAMESPACE]["rules"]
    policy = argument(overlay, "--policy")
    assert policy is not None
    assert rule["resourceNames"] == [policy.rpartition("/")[2]]
    assert rule["resourceNames"] == [only(manifests, "ConfigMap")["metadata"]["name"]]


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("GET", "/api/v1/pods", Permission("", "pods", "list")),
        ("WATCH", "/api/v1/nodes", Permission("", "nodes", "watch")),
        ("GET", "/api/v1/nodes/a", Permission("", "nodes", "get")),
        ("GET", "/api/v1/namespaces/team/pods", Permission("", "pods", "list", "team")),
        ("POST", "/api/v1/namespaces/team/events", Permission("", "events", "create", "team")),
        ("WATCH", "/apis/a.b/v1/things", Permission("a.b", "things", "watch")),
        ("PATCH", "/apis/a.b/v1/namespaces/x/things/y", Permission("a.b", "things", "patch", "x")),
        ("GET", "/api/v1/namespaces/x", Permission("", "namespaces", "get")),
    ],
)
def test_what_a_call_needs(method: str, path: str, needed: Permission) -> None:
    assert needed_for(method, path) == needed


def test_a_call_without_a_grant_and_a_grant_without_a_call_are_found() -> None:
    pods, secrets = Permission("", "pods", "list"), Permission("", "secrets", "get")
    refused, idle = held_against([("GET", "/api/v1/pods"), ("WATCH", "/api/v1/namespaces/x/pods")], {pods, secrets})
    assert refused == {Permission("", "pods", "watch", "x")}
    assert idle == {secrets}
