"""The images: what they copy is there and passes .dockerignore, and what they start is a command of ours."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml
from manifests import DEPLOY, KUBERNETES, daemon_container, instructions, only, rendered

from daemon_process import NLS, ROOT, nls_environment
from nls_scheduler import cli

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = sorted((DEPLOY / "images").glob("*.Containerfile"))
LOCKS = DEPLOY / "images" / "locks"


def daemon_image() -> list[tuple[str, str]]:
    return instructions(DEPLOY / "images" / "daemon.Containerfile")


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps `path` out: the last line that says something about it or a folder of it counts."""
    parts = path.split("/")
    ancestors = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    out = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if not line or line.startswith("#"):
            continue
        names = [*ancestors, *parts] if line.startswith("**/") else ancestors
        if any(fnmatch.fnmatch(name, pattern) for name in names if "/" in pattern or "/" not in name):
            out = not line.startswith("!")
    return out


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_what_an_image_copies_is_there_and_reaches_the_build(path: Path) -> None:
    stages = {rest.split()[-1] for word, rest in instructions(path) if word == "FROM" and " AS " in rest}
    assert set(re.findall(r"from=(\w+)", path.read_text(encoding="utf-8"))) <= stages
    copied = []
    for word, rest in instructions(path):
        if word != "COPY":
            continue
        *sources, _ = [part for part in rest.split() if not part.startswith("--")]
        copied += [] if "--from=" in rest else sources
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"} <= set(copied), "the wheel is built from these"
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_nothing_of_a_checkout_but_its_sources_reaches_a_build() -> None:
    for path in (".git/config", ".venv/bin/python", "tests/conftest.py", "node_scheduler/deploy/images/x",
                 "node_scheduler/deploy/systemd/nls.service",
                 "labextension/node_modules/x/index.js", "nls_jupyter/__pycache__/x.pyc"):  # fmt: skip
        assert ignored(path), path


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_is_built_on_one_base_that_its_digest_names(path: Path) -> None:
    (base,) = [rest.removeprefix("BASE=") for word, rest in instructions(path) if word == "ARG" and "BASE=" in rest]
    assert re.fullmatch(r"[\w.-]+/[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    assert {rest.split()[0] for word, rest in instructions(path) if word == "FROM"} == {"$BASE"}


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_installs_nothing_but_what_a_lock_names_by_its_hashes(path: Path) -> None:
    commands = [command for word, rest in instructions(path) if word == "RUN" for command in rest.split("&&")]
    locked = set()
    for command in commands:
        if not re.search(r"\bpip (install|download|wheel)\b", command):
            continue
        lock = re.search(r"--require-hashes .*-r /locks/(\S+)", command)
        ours = "--no-build-isolation --no-deps" in command
        assert lock or ours or "--no-index" in command, command
        locked |= {lock[1]} if lock else set()
    expected = {"daemon": {"build.txt", "daemon.txt"}, "notebook": {"build.txt", "notebook-$CUDA.txt"}}
    assert locked == expected[path.stem]
    default = [rest.partition("=")[2] for word, rest in instructions(path) if word == "ARG" and "CUDA=" in rest]
    for name in locked:
        assert (LOCKS / name.replace("$CUDA", "".join(default))).is_file()


def test_node_fetches_by_the_certificate_authorities_that_pip_fetches_by() -> None:
    steps = instructions(DEPLOY / "images" / "notebook.Containerfile")
    wheel = next(n for n, (word, rest) in enumerate(steps) if word == "RUN" and "pip wheel" in rest)
    assert any(word == "ENV" and "NODE_USE_SYSTEM_CA=1" in rest.split() for word, rest in steps[:wheel])


def test_notebooks_run_as_no_root_and_the_daemon_as_its_daemon_set_says() -> None:
    users = {path.stem: [rest for word, rest in instructions(path) if word == "USER"][-1] for path in IMAGES}
    alice = yaml.safe_load((KUBERNETES / "examples" / "third_pod" / "alice.yaml").read_text(encoding="utf-8"))["spec"][
        "template"
    ]
    pod = alice["spec"]["securityContext"]
    assert users["notebook"] == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert pod["runAsNonRoot"]
    daemon = daemon_container(rendered(KUBERNETES / "overlays" / "plain"))["securityContext"]
    assert users["daemon"] == f"{daemon['runAsUser']}:{daemon['runAsGroup']}"
    assert daemon["capabilities"] == {"drop": ["ALL"], "add": ["SYS_PTRACE"]}


def test_the_daemon_s_image_starts_a_command_of_ours() -> None:
    (entry,) = [json.loads(rest) for word, rest in daemon_image() if word == "ENTRYPOINT"]
    assert entry[0] == "nls"
    done = subprocess.run(
        [*NLS, *entry[1:], "up", "--help"], env=nls_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--simulate" in done.stdout


@pytest.mark.parametrize("overlay", ["plain", "kind"])
def test_the_daemon_understands_the_arguments_that_it_is_given(overlay: str) -> None:
    parser = cli._parser()
    (entry,) = [json.loads(rest) for word, rest in daemon_image() if word == "ENTRYPOINT"]
    (default,) = [json.loads(rest) for word, rest in daemon_image() if word == "CMD"]
    parser.parse_args([*entry[1:], *default])
    manifests = rendered(KUBERNETES / "overlays" / overlay)
    arguments = [_expanded(argument) for argument in daemon_container(manifests)["args"]]
    options = parser.parse_args([*entry[1:], *arguments])
    assert options.kubernetes
    policy = only(manifests, "ConfigMap")["metadata"]
    assert options.policy == f"{policy['namespace']}/{policy['name']}"
    if overlay == "kind":
        assert options.simulate == "/etc/nls/topology/worker.yml"


def _expanded(argument: str) -> str:
    """As the kubelet does it, on the node `worker` in the base's namespace."""
    return argument.replace("$(POD_NAMESPACE)", "nls-system").replace("$(NODE_NAME)", "worker")


def test_the_image_s_directories_are_those_that_the_daemon_set_mounts() -> None:
    (entry,) = [json.loads(rest) for word, rest in daemon_image() if word == "ENTRYPOINT"]
    environment = dict(pair.split("=", 1) for word, rest in daemon_image() if word == "ENV" for pair in rest.split())
    mounts = {
        mount["mountPath"] for mount in daemon_container(rendered(KUBERNETES / "overlays" / "plain"))["volumeMounts"]
    }
    assert entry[entry.index("--state-dir") + 1] in mounts
    assert environment["NLS_SOCKET"].rpartition("/")[0] in mounts
    assert environment["HOME"] in mounts, "the root is read-only"


@pytest.mark.parametrize("overlay", ["plain", "kai", "runai"])
def test_the_policy_of_an_overlay_is_one_that_the_daemon_accepts(overlay: str) -> None:
    from nls_scheduler.daemon import config
    from nls_scheduler.kubernetes_driver import policy

    data = only(rendered(KUBERNETES / "overlays" / overlay), "ConfigMap")["data"]
    pools = json.loads(data["policy.json"]).get("pools", {})
    for label in [*pools, "no=pool"]:
        key, _, value = label.partition("=")
        values, pool = policy.chosen(data, {key: value})
        assert pool == (label if label in pools else None)
        config.load([], [], defaults=policy.DEFAULTS, cluster=values)


def test_pods_that_keep_their_variables_have_a_folder_on_a_volume_a_hook_and_time() -> None:
    values = yaml.safe_load((DEPLOY / "jupyterhub" / "values.yaml").read_text(encoding="utf-8"))
    (pod, *_) = (m for m in rendered(KUBERNETES / "examples" / "kept_variables") if m["kind"] == "StatefulSet")
    spec = pod["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (volume,) = pod["spec"]["volumeClaimTemplates"]
    (place,) = (
        mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["metadata"]["name"]
    )
    (folder,) = (entry["value"] for entry in container["env"] if entry["name"] == "NLS_KEPT_FOLDER")
    assert folder.startswith(f"{place}/")
    _, flag, module, *_ = container["lifecycle"]["preStop"]["exec"]["command"]
    assert flag == "-m"
    assert importlib.util.find_spec(module) is not None
    for profile in values["singleuser"]["profileList"][1:]:
        override = profile["kubespawner_override"]
        assert override["lifecycle_hooks"] == container["lifecycle"]
        seconds = override["extra_pod_config"]["terminationGracePeriodSeconds"]
        assert override["delete_grace_period"] == seconds == spec["terminationGracePeriodSeconds"]


def test_the_hub_s_profiles_give_what_the_example_pods_have() -> None:
    values = yaml.safe_load((DEPLOY / "jupyterhub" / "values.yaml").read_text(encoding="utf-8"))
    alice = yaml.safe_load((KUBERNETES / "examples" / "third_pod" / "alice.yaml").read_text(encoding="utf-8"))["spec"][
        "template"
    ]
    (container,) = alice["spec"]["containers"]
    profiles = {p["slug"]: p.get("kubespawner_override", {}) for p in values["singleuser"]["profileList"]}
    assert [slug for slug, override in profiles.items() if override] == ["gpu-half", "gpu-quarter"]
    for override in (profiles["gpu-half"], profiles["gpu-quarter"]):
        assert list(override["volumes"].values()) == alice["spec"]["volumes"]
        assert list(override["volume_mounts"].values()) == container["volumeMounts"]
        assert override["scheduler_name"] == alice["spec"]["schedulerName"]
        assert override["extra_pod_config"]["runtimeClassName"] == alice["spec"]["runtimeClassName"]
        assert override["extra_labels"].items() <= alice["metadata"]["labels"].items()
        assert override["environment"].keys() == {"NLS_KEPT_FOLDER", *(entry["name"] for entry in container["env"])}
        assert float(override["extra_annotations"]["gpu-fraction"]) < float(
            override["environment"]["RUNAI_GPU_MEMORY_LIMIT"]
        ), "only what has a limit above its request bursts"
    image = values["singleuser"]["image"]
    assert f"{image['name']}:{image['tag']}" == container["image"]


def test_kubespawner_knows_everything_that_a_profile_sets() -> None:
    kubespawner = pytest.importorskip("kubespawner", reason="pip install jupyterhub-kubespawner to check it against it")
    values = yaml.safe_load((DEPLOY / "jupyterhub" / "values.yaml").read_text(encoding="utf-8"))
    for profile in values["singleuser"]["profileList"]:
        for trait in profile.get("kubespawner_override", {}):
            assert kubespawner.KubeSpawner.class_traits(config=True)[trait]
