"""What the webhook adds to pods: enough, once, and nothing of the user's is touched."""

from __future__ import annotations

import base64
import json
from collections import Counter
from copy import deepcopy
from decimal import Decimal
from itertools import product
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nls_scheduler.kubernetes_driver import admission
from nls_scheduler.kubernetes_driver.admission import UnreadableReview
from nls_scheduler.kubernetes_driver.injecting import (
    ALL_GPUS,
    EVICTABLE,
    LABEL,
    WAITING,
    Injection,
    Role,
    Unpatchable,
    patch_for,
)
from nls_scheduler.kubernetes_driver.pods import pod_record
from nls_scheduler.kubernetes_driver.quantities import parse_quantity

INJECTION = Injection("nls-scheduler:0.1.0", runtime_class="nvidia", tolerations=("nvidia.com/gpu",))


def applied(pod: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902, as far as `add` goes; fails where the API server would."""
    made: Any = deepcopy(pod)
    for operation in operations:
        assert operation["op"] == "add"
        *path, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        holder = made
        for part in path:
            holder = holder[int(part)] if isinstance(holder, list) else holder[part]
        if isinstance(holder, list):
            holder.insert(len(holder) if last == "-" else int(last), operation["value"])
        else:
            was = holder.get(last)
            assert was in (None, "", [], {}) or operation["value"].startswith(f"{was},"), "something is replaced"
            holder[last] = operation["value"]
    return dict(made)


def injected(pod: dict[str, Any], injection: Injection = INJECTION, default: Role | None = None) -> dict[str, Any]:
    return applied(pod, patch_for(pod, injection, default))


def pod(role: str | None = None, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"labels": {LABEL: role}} if role is not None else {}
    metadata: dict[str, Any] = {"name": "a", "namespace": "team", **labels}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def container(name: str = "main", gpus: int = 0, **fields: Any) -> dict[str, Any]:
    resources = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {"name": name, "image": "none", **resources, **fields}


AT_THE_SOCKET = {"name": "mine", "mountPath": "/run/nls"}


def with_metadata(role: str, **metadata: Any) -> dict[str, Any]:
    written = pod(role, container(gpus=1))
    written["metadata"].update(metadata)
    return written


FIRST_HAS_THE_PART = with_metadata("owner", annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "first"})
FIRST_HAS_THE_PART["spec"] = {"containers": [container()], "initContainers": [container("first")]}


def nested(levels: int) -> Any:
    return [nested(levels - 1)] if levels else "x"


def managed(pod: dict[str, Any]) -> bool:
    written = {**pod, "metadata": {**pod["metadata"], "uid": "1"}}
    record = pod_record(written, INJECTION.socket_directory)
    assert record is not None
    return record.managed


def test_a_notebook_gets_the_socket_and_sees_the_gpus() -> None:
    made = injected(pod("notebook"))
    (main,) = made["spec"]["containers"]
    assert {mount["mountPath"]: mount.get("readOnly", False) for mount in main["volumeMounts"]} == {
        "/run/nls": True,
        ALL_GPUS: False,
    }
    assert main["env"] == [{"name": "NLS_SOCKET", "value": "/run/nls/nls.sock"}]
    assert made["spec"]["runtimeClassName"] == "nvidia"
    assert made["spec"]["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert managed(made)


def test_an_owner_waits_before_all_others_and_is_no_notebook() -> None:
    made = injected(pod("owner", container(gpus=1), initContainers=[container("mine")]))
    wait, mine = made["spec"]["initContainers"]
    assert (wait["name"], wait["command"][:2], mine["name"]) == (WAITING, ["nls", "wait-for-gpus"], "mine")
    assert wait["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert wait["securityContext"]["runAsUser"] == 65532
    assert wait["volumeMounts"][0]["readOnly"] is True
    # A node without our daemon has no such folder, and must not keep the pod from starting.
    assert made["spec"]["volumes"][0]["hostPath"]["type"] == "DirectoryOrCreate"
    assert made["spec"]["containers"] == [container(gpus=1)]
    assert not managed(made)


@pytest.mark.parametrize(
    ("annotations", "wanted"),
    [
        ({}, "nls-jupyter-socket"),
        ({"other": "x"}, "nls-jupyter-socket"),
        ({EVICTABLE: "scratch, more"}, "scratch, more,nls-jupyter-socket"),
        ({EVICTABLE: ""}, "nls-jupyter-socket"),
        ({EVICTABLE: "nls-jupyter-socket"}, "nls-jupyter-socket"),
    ],
)
def test_an_owner_s_node_may_go_as_before(annotations: dict[str, str], wanted: str) -> None:
    """Cluster Autoscaler keeps a node with a pod that has a volume of it, unless the pod names the volume."""
    made = injected(with_metadata("owner", annotations=annotations))
    assert made["metadata"]["annotations"][EVICTABLE] == wanted


def test_a_volume_of_its_node_that_an_owner_had_keeps_the_node_as_before() -> None:
    mine, first = {"name": "mine", "hostPath": {"path": "/run/nls"}}, container("first", volumeMounts=[AT_THE_SOCKET])
    made = injected(pod("owner", container(gpus=1), volumes=[mine], initContainers=[first]))
    assert made["spec"]["initContainers"][0]["volumeMounts"][0]["name"] == "mine"
    assert made["metadata"]["annotations"] == {"nls-jupyter/managed": "false"}


def test_where_the_cluster_gives_user_ids_none_is_asked_for() -> None:
    made = injected(pod("owner", container(gpus=1)), Injection("nls:1", user=None))
    assert not made["spec"]["initContainers"][0]["securityContext"].keys() & {"runAsUser", "runAsNonRoot"}


@pytest.mark.parametrize(
    "written",
    [
        pod(),
        pod("none", container(gpus=1)),
        pod("owner"),
        pod("owner", container(gpus=1, volumeMounts=[{"name": "s", "mountPath": "/run/nls"}]),
            volumes=[{"name": "s", "hostPath": {"path": "/run/nls"}}]),
    ],
    ids=["no label", "another label", "no GPU", "a notebook that says owner"],
)  # fmt: skip
def test_others_are_not_touched(written: dict[str, Any]) -> None:
    assert patch_for(written, INJECTION) == []


def test_in_a_namespace_of_owners_those_with_a_gpu_wait_and_a_label_still_counts() -> None:
    assert patch_for(pod(None, container(gpus=1)), INJECTION, Role.OWNER)
    sidecar = container("side", gpus=1, restartPolicy="Always")
    assert patch_for(pod(None, initContainers=[sidecar]), INJECTION, Role.OWNER)
    assert not patch_for(pod(None), INJECTION, Role.OWNER)
    assert not patch_for(pod("none", container(gpus=1)), INJECTION, Role.OWNER)
    assert managed(injected(pod("notebook"), default=Role.OWNER))


def test_what_a_notebook_has_already_is_used() -> None:
    mine = {"name": "mine", "hostPath": {"path": "/run/nls/"}}
    variable = {"name": "NLS_SOCKET", "value": "/elsewhere"}
    made = injected(pod("notebook", container(env=[variable]), volumes=[mine], runtimeClassName="other"))
    assert made["spec"]["runtimeClassName"] == "other"
    assert made["spec"]["containers"][0]["env"] == [variable]
    assert made["spec"]["containers"][0]["volumeMounts"][0]["name"] == "mine"
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["mine", "nls-jupyter-all-gpus"]


def test_the_container_with_the_gpu_is_the_notebook_s() -> None:
    made = injected(pod("notebook", container("proxy"), container("book", gpus=1)))
    assert ["volumeMounts" in each for each in made["spec"]["containers"]] == [False, True]


TEXTS = st.text("abc-", min_size=1, max_size=4).map(lambda text: f"n{text}n")
MOUNTS = st.fixed_dictionaries(
    {"name": st.sampled_from(["v", "s"]), "mountPath": st.sampled_from(["/run/nls", "/run/nls/", "/data", ALL_GPUS])}
)
CONTAINERS = st.fixed_dictionaries(
    {"name": TEXTS | st.just(WAITING), "image": st.just("none")},
    optional={
        "env": st.none() | st.lists(st.fixed_dictionaries({"name": st.sampled_from(["A", "NLS_SOCKET"])}), max_size=2),
        "volumeMounts": st.none() | st.lists(MOUNTS, max_size=2, unique_by=lambda m: m["mountPath"].rstrip("/")),
        "resources": st.sampled_from(
            [
                {},
                {"limits": {"nvidia.com/gpu": "1"}},
                {"limits": {"memory": "1Gi"}},
                {"limits": {"nvidia.com/gpu": "1", "cpu": "2", "memory": "1Gi"}},
                {"limits": {"nvidia.com/gpu": "1", "cpu": "0.1"}, "requests": {"nvidia.com/gpu": "1", "cpu": "50m"}},
            ]
        ),
    },
)
PODS = st.fixed_dictionaries(
    {
        "apiVersion": st.just("v1"),
        "kind": st.just("Pod"),
        "metadata": st.fixed_dictionaries(
            {"labels": st.sampled_from([{LABEL: "notebook"}, {LABEL: "owner"}, {LABEL: "no"}, {}])},
            optional={
                "generateName": TEXTS,
                "annotations": st.sampled_from(
                    [{}, {"gpu-fraction": "0.5"}, {"nls-jupyter/managed": "true"}, {"gpu-memory": "x"}]
                ),
            },
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(CONTAINERS, min_size=1, max_size=3, unique_by=lambda c: c["name"])},
            optional={
                "initContainers": st.none() | st.lists(CONTAINERS, max_size=2, unique_by=lambda c: c["name"]),
                "volumes": st.sampled_from(
                    [
                        [{"name": "v", "emptyDir": {}}],
                        [{"name": "s", "hostPath": {"path": "/run/nls"}}],
                        [{"name": "nls-jupyter-socket", "hostPath": {"path": "/run/nls"}}],
                    ]
                ),
                "tolerations": st.sampled_from([[], [{"key": "nvidia.com/gpu", "operator": "Exists"}]]),
                "runtimeClassName": TEXTS,
            },
        ),
    }
)


def quality(pod: dict[str, Any]) -> str:
    """The QoS class that Kubernetes gives a pod, after the API server has put missing requests at their limits.

    https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/; what the pod as a whole is given counts alone.
    """
    spec = pod["spec"]
    whole = spec.get("resources") or {}
    given = [whole] if any(whole.get(side) for side in ("requests", "limits")) else []
    every = given or [
        each.get("resources") or {} for each in (*spec["containers"], *(spec.get("initContainers") or ()))
    ]
    pairs = []
    for resources in every:
        limits = {k: v for k, v in (resources.get("limits") or {}).items() if k in ("cpu", "memory") and v != "0"}
        requests = {k: v for k, v in (resources.get("requests") or {}).items() if k in ("cpu", "memory") and v != "0"}
        pairs.append(({**limits, **requests}, limits))
    if not any(requests or limits for requests, limits in pairs):
        return "BestEffort"
    both = all(requests == limits and limits.keys() == {"cpu", "memory"} for requests, limits in pairs)
    return "Guaranteed" if both else "Burstable"


def sized(requests: dict[str, str], limits: dict[str, str]) -> dict[str, Any]:
    """A container with a GPU and more."""
    gpu = {"nvidia.com/gpu": "1"}
    return container(resources={"requests": {**requests, **gpu}, "limits": {**limits, **gpu}})


MUCH = {"cpu": "16", "memory": "64Gi"}
NOTHING = {"cpu": "0", "memory": "0"}


@pytest.mark.parametrize(
    ("written", "class_"),
    [
        (pod("owner", sized(MUCH, MUCH)), "Guaranteed"),
        (pod("owner", sized({}, MUCH)), "Guaranteed"),
        (pod("owner", sized(MUCH, MUCH), initContainers=[container(resources={"limits": MUCH})]), "Guaranteed"),
        (pod("owner", sized({}, {}), resources={"requests": MUCH, "limits": MUCH}), "Guaranteed"),
        (pod("owner", sized(MUCH, {})), "Burstable"),
        (pod("owner", sized({"cpu": "1"}, MUCH)), "Burstable"),
        (pod("owner", sized(MUCH, MUCH), container("side")), "Burstable"),
        (pod("owner", sized({}, {}), initContainers=[container(resources={"limits": MUCH})]), "Burstable"),
        (pod("owner", sized({}, {}), resources={"requests": MUCH}), "Burstable"),
        (pod("owner", sized({}, {}), container("side"), initContainers=[container("first")]), "BestEffort"),
        (pod("owner", sized(NOTHING, {})), "BestEffort"),
    ],
)
def test_an_owner_s_quality_of_service_stays(written: dict[str, Any], class_: str) -> None:
    made = injected(written)
    assert made["spec"]["initContainers"][0]["name"] == WAITING
    assert (quality(written), quality(made)) == (class_, class_)


def counted(pod: dict[str, Any]) -> dict[str, Decimal]:
    """What Kubernetes counts for a pod, the most that it has at once; a request is its limit where there is none."""

    def sizes(each: dict[str, Any], side: str, name: str) -> Decimal:
        resources = each.get("resources") or {}
        given = {**((resources.get("limits") or {}) if side == "requests" else {}), **(resources.get(side) or {})}
        return parse_quantity(given.get(name, "0")) or Decimal(0)

    found = {}
    for side, name in product(("requests", "limits"), ("cpu", "memory")):
        first, stay = (
            [sizes(each, side, name) for each in pod["spec"].get(kind) or ()]
            for kind in ("initContainers", "containers")
        )
        found[f"{side}.{name}"] = max(*first, sum(stay, Decimal(0)), Decimal(0))
    return found


LITTLE = {"cpu": "250m", "memory": "100Mi"}


@pytest.mark.parametrize(
    ("requests", "limits", "wanted"),
    [
        (MUCH, MUCH, {side: {"cpu": "500m", "memory": "128Mi"} for side in ("requests", "limits")}),
        (LITTLE, LITTLE, {"requests": LITTLE, "limits": LITTLE}),
        ({}, LITTLE, {"requests": LITTLE, "limits": LITTLE}),
        (LITTLE, MUCH, {"requests": LITTLE, "limits": {"cpu": "500m", "memory": "128Mi"}}),
        ({"cpu": "4"}, {}, {"requests": {"cpu": "500m"}}),
        ({}, {"memory": "64Gi"}, {side: {"memory": "128Mi"} for side in ("requests", "limits")}),
    ],
)
def test_an_owner_asks_for_no_more_than_before_and_what_waits_is_as_large_as_may_be(
    requests: dict[str, str], limits: dict[str, str], wanted: dict[str, dict[str, str]]
) -> None:
    """A quota or a limit range of its namespace that lets its container be lets what waits be."""
    written = pod("owner", container("side", resources={"limits": {"memory": "1Gi"}}), sized(requests, limits))
    made = injected(written)
    assert made["spec"]["initContainers"][0]["resources"] == wanted
    assert counted(made) == counted(written)


def is_within(old: object, new: object) -> bool:
    """Whether all of `old` is still in `new`, lists in their order."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and is_within(value, new[key]) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        rest = iter(new)
        return all(any(is_within(item, candidate) for candidate in rest) for item in old)
    return old == new or (old is None and new is not None)


def calls_twice(pod: dict[str, Any]) -> set[str]:
    """What the API server refuses: names of several containers, and paths where a container has several mounts."""
    containers = [each for name in ("initContainers", "containers") for each in pod["spec"].get(name) or ()]
    found = Counter(each["name"] for each in containers)
    for each in containers:
        found += Counter(f"{each['name']} {mount['mountPath']}" for mount in each.get("volumeMounts") or ())
    return {name for name, times in found.items() if times > 1}


@given(PODS, st.sampled_from([None, Role.OWNER]))
def test_a_second_time_nothing_is_added_and_nothing_of_the_user_s_ever_goes(
    written: dict[str, Any], default: Role | None
) -> None:
    before = deepcopy(written)
    try:
        made = injected(written, default=default)
    except Unpatchable:
        return  # it stays as it is
    finally:
        assert written == before
    assert is_within(before, made)
    assert calls_twice(made) <= calls_twice(before)
    assert quality(made) == quality(before)
    assert counted(made) == counted(before)
    assert patch_for(made, INJECTION, default) == []
    kubernetes_validate.validate(made, "1.34", strict=True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "labels", "containers", "volumes", "name", LABEL, "annotations"]),
            inner,
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_whatever_a_pod_is_the_answer_is_a_patch_or_a_sentence(nonsense: Any) -> None:
    written = nonsense if isinstance(nonsense, dict) else {"spec": nonsense}
    for default in (None, Role.OWNER, Role.NOTEBOOK):
        try:
            said = json.dumps(patch_for(written, INJECTION, default))
        except Unpatchable as why:
            said = str(why)
        assert said


def review(written: Any, **request: Any) -> bytes:
    asked = {
        "uid": "42",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "object": written,
        "dryRun": False,
        **request,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def answer(body: bytes, injection: Injection) -> dict[str, Any]:
    """The answer, in which no defect shows."""

    def on_defect(told: str) -> None:
        raise AssertionError(told)

    return admission.answer(body, injection, on_defect=on_defect)


def test_the_answer_is_yes_with_the_patch_and_a_dry_run_is_like_any_other() -> None:
    said = answer(review(pod("notebook")), INJECTION)
    response = said["response"]
    assert (said["kind"], response["uid"], response["allowed"], response["patchType"]) == (
        "AdmissionReview", "42", True, "JSONPatch",
    )  # fmt: skip
    assert json.loads(base64.b64decode(response["patch"])) == patch_for(pod("notebook"), INJECTION)
    assert answer(review(pod("notebook"), dryRun=True), INJECTION) == said


@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE"},
        {"subResource": "exec"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": None},
        {"object": None},
    ],
)
def test_anything_but_a_new_pod_is_let_through(request_: dict[str, Any]) -> None:
    said = answer(review(pod("notebook"), **request_), INJECTION)
    assert said["response"] == {"uid": "42", "allowed": True}


def test_a_pod_that_cannot_be_patched_is_let_through_with_a_warning() -> None:
    taken = pod("notebook", volumes=[{"name": "nls-jupyter-socket", "emptyDir": {}}])
    response = answer(review(taken), INJECTION)["response"]
    assert response["allowed"] is True
    assert "patch" not in response
    assert "another volume of the name nls-jupyter-socket" in response["warnings"][0]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (pod("owner", container(WAITING, gpus=1)), "another container of the name nls-wait-for-gpus"),
        (pod("notebook", container(volumeMounts=[AT_THE_SOCKET]), volumes=[{"name": "mine", "emptyDir": {}}]),
         "something else mounted at /run/nls"),
        (pod("notebook", container(volumeMounts=[AT_THE_SOCKET])), "something else mounted at /run/nls"),
        (pod("owner", container(gpus=1), os={"name": "windows"}), "another operating system"),
        (with_metadata("owner", annotations=3), "annotations are no object"),
        (with_metadata("owner", annotations={"kubernetes.io/config.mirror": "0" * 32}), "a static pod's"),
        (with_metadata("notebook", annotations={"kubernetes.io/config.mirror": "0" * 32}), "a static pod's"),
        (FIRST_HAS_THE_PART, "KAI Scheduler counts its init containers"),
        (pod("owner", container(resources={"limits": {"nvidia.com/gpu": "1", "memory": "63Mi"}})), "needs 64Mi"),
        (with_metadata("owner", managedFields=nested(600)), "nested too deeply"),
    ],
    ids=["named alike", "its own there", "nothing there", "Windows", "annotations", "static owner", "static notebook",
         "counted", "little memory", "deep"],
)  # fmt: skip
def test_what_would_be_refused_or_cannot_be_understood_is_let_through_with_a_warning(
    written: dict[str, Any], why: str
) -> None:
    response = answer(review(written), INJECTION)["response"]
    assert (response["allowed"], "patch" in response) == (True, False)
    assert why in response["warnings"][0]


def test_a_pod_in_which_nobody_foresaw_what_is_wrong_is_let_through_and_somebody_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "patch_for", lambda *_: {}["missing"])
    told: list[str] = []
    response = admission.answer(review(pod("notebook")), INJECTION, on_defect=told.append)["response"]
    assert (response["allowed"], "patch" in response) == (True, False)
    assert "KeyError" in response["warnings"][0]
    assert told == ["DEFECT: a pod cannot be patched, and is let through as it is"]


def test_a_toleration_with_a_strange_key_is_none_of_ours() -> None:
    made = injected(pod("notebook", tolerations=[{"key": ["x"]}]), INJECTION)
    assert [each["key"] for each in made["spec"]["tolerations"]] == [["x"], "nvidia.com/gpu"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"kind": "Pod"}', b"[" * 100_000, b"\xff\xfe",
     b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 1}}'],
    ids=["nothing", "half", "a list", "no review", "deep", "no text", "no uid"],
)  # fmt: skip
def test_what_is_no_review_is_refused_with_a_sentence(body: bytes) -> None:
    with pytest.raises(UnreadableReview, match=r"\.$"):
        answer(body, INJECTION)
