"""The images: what they copy is there and passes .dockerignore, and what they start is a command of ours."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import tomllib
from typing import TYPE_CHECKING

import pytest
import yaml
from manifests import DEPLOY, KUBERNETES, daemon_container, only, rendered

from daemon_process import NLS, ROOT, nls_environment
from nls_scheduler import cli

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = sorted((DEPLOY / "images").glob("*.Containerfile"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def instructions(path: Path) -> list[tuple[str, str]]:
    """Name and rest of each instruction, continued lines joined, comments left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [
        (word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word
    ]


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
    copied = []
    for word, rest in instructions(path):
        if word != "COPY":
            continue
        *sources, _ = [part for part in rest.split() if not part.startswith("--")]
        stage = re.search(r"--from=(\S+)", rest)
        if stage is not None:
            assert stage[1] in stages
            continue
        copied += sources
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE"} <= set(copied), "the wheel is built from these"
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_nothing_of_a_checkout_but_its_sources_reaches_a_build() -> None:
    for path in (".git/config", ".venv/bin/python", "tests/conftest.py", "node_scheduler/deploy/images/x",
                 "labextension/node_modules/x/index.js", "nls_jupyter/__pycache__/x.pyc"):  # fmt: skip
        assert ignored(path), path


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.stem)
def test_an_image_installs_extras_that_there_are(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    asked = {extra for extra in re.findall(r"'\.\[(\w+)\]'|ARG CUDA=(\w+)", text) for extra in extra if extra}
    if path.stem == "daemon":
        assert asked == {"kubernetes"}
    assert asked
    assert asked <= EXTRAS.keys()


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


def test_the_hub_s_profiles_give_what_the_example_pods_have() -> None:
    values = yaml.safe_load((DEPLOY / "jupyterhub" / "values.yaml").read_text(encoding="utf-8"))
    alice = yaml.safe_load((KUBERNETES / "examples" / "third_pod" / "alice.yaml").read_text(encoding="utf-8"))
    (container,) = alice["spec"]["containers"]
    profiles = {p["slug"]: p.get("kubespawner_override", {}) for p in values["singleuser"]["profileList"]}
    assert [slug for slug, override in profiles.items() if override] == ["gpu-half", "gpu-quarter"]
    for override in (profiles["gpu-half"], profiles["gpu-quarter"]):
        assert list(override["volumes"].values()) == alice["spec"]["volumes"]
        assert list(override["volume_mounts"].values()) == container["volumeMounts"]
        assert override["scheduler_name"] == alice["spec"]["schedulerName"]
        assert override["extra_pod_config"]["runtimeClassName"] == alice["spec"]["runtimeClassName"]
        assert override["extra_labels"].items() <= alice["metadata"]["labels"].items()
        assert override["environment"].keys() == {entry["name"] for entry in container["env"]}
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
