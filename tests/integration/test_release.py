"""A release: one version everywhere, the same bytes twice; workflows and recipes say what pyproject.toml says."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from daemon_process import ROOT
from nls_scheduler import __version__

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
# Names on conda-forge, where they are others.
ON_CONDA = {"xxhash": "python-xxhash"}
in_a_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="the files of a release are git's")


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.replace("/", "_").removesuffix(".py"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def yaml_of(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@in_a_checkout
def test_whatever_repeats_the_version_says_the_same() -> None:
    named = loaded("tools/version.py").places()
    assert {"labextension/package.json", "CITATION.cff", "conda/recipe.yaml"} < named.keys()
    assert "node_scheduler/deploy/helm/nls-jupyter/Chart.yaml" in named
    assert {name: found for name, found in named.items() if found != {__version__}} == {}


@in_a_checkout
@pytest.mark.long("a copy of the repository with another version")
def test_another_version_is_set_everywhere_at_once(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True, capture_output=True)
    tool = loaded("tools/version.py")
    before = tool.places(copy).keys()
    assert set(tool.change("1.2.3rc1", copy)) == set(before)
    assert tool.current(copy) == "1.2.3rc1"
    assert set().union(*tool.places(copy).values()) == {"1.2.3rc1"}
    with pytest.raises(ValueError, match="no version"):
        tool.change("next", copy)


def test_an_index_gets_links_that_lead_somewhere() -> None:
    text = loaded("hatch_build.py").readme((ROOT / "README.md").read_text(encoding="utf-8"), "1.2.3")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert [target for target in targets if not target.startswith("https://")] == []
    pictures = re.findall(r"!\[[^\]]*\]\(https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/v1\.2\.3/([^)]+)\)", text)
    assert pictures
    assert [picture for picture in pictures if not (ROOT / picture).exists()] == []


@pytest.mark.parametrize(
    ("says", "builds"),
    [("echo v24.19.0", True), ("echo v20.0.0", True), ("echo v18.20.4", False), ("exit 1", False), (None, False)],
)
def test_the_extension_is_built_only_by_a_node_that_can(
    says: str | None, builds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12 and Ubuntu 24.04 have Node 18; a wrapper in a virtual environment does not run in pip's build."""
    if says is not None:
        (node := tmp_path / "node").write_text(f"#!/bin/sh\n{says}\n")
        node.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HATCH_JUPYTER_BUILDER_SKIP_NPM", raising=False)
    hook = loaded("hatch_build.py").LabExtensionHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    assert bool(hook.dependencies()) is builds
    ours = loaded("tools/labextension.py")
    monkeypatch.setitem(ours.ENVIRONMENT, "PATH", str(tmp_path))
    assert ours.node_is_there() is builds


@pytest.mark.parametrize(("written_at", "builds"), [(0, False), (1, True)])
def test_an_upgrade_from_the_same_clone_builds_the_extension_of_today(
    written_at: int, builds: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip builds in the clone, and leaves the extension there."""
    build = loaded("hatch_build.py")
    monkeypatch.setattr(build, "_node_can_build", lambda: True)
    monkeypatch.delenv("HATCH_JUPYTER_BUILDER_SKIP_NPM", raising=False)
    for path, at in ((f"{build.OUTPUT}/package.json", 0), (f"{build.SOURCE}/src/index.ts", written_at)):
        (file := tmp_path / path).parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (at, at))
    hook = build.LabExtensionHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel")
    assert bool(hook.dependencies()) is builds


def test_an_install_goes_on_without_the_extension_where_it_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Node and without a registry of npm's: a wheel without it is better than none."""

    def no_registry(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(1, ["jlpm", "install"])

    build = loaded("hatch_build.py")
    monkeypatch.setattr(build, "_node_can_build", lambda: True)
    monkeypatch.delenv("HATCH_JUPYTER_BUILDER_SKIP_NPM", raising=False)
    monkeypatch.setitem(sys.modules, "hatch_jupyter_builder", SimpleNamespace(npm_builder=no_registry))
    told: list[str] = []
    app = SimpleNamespace(display_warning=told.append)
    hook = build.LabExtensionHook(str(tmp_path), {}, None, None, str(tmp_path), "wheel", app)
    hook.initialize("standard", {})
    assert re.search("could not be built .*HATCH_JUPYTER_BUILDER_SKIP_NPM=1.*jlpm", told[0])
    assert told[1:] == [build.MISSING]


def built(source: Path, target: str, directory: Path, umask: int) -> bytes:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"}
    subprocess.run(command, cwd=source, check=True, capture_output=True, env=environment, umask=umask)
    (file,) = directory.iterdir()
    return file.read_bytes()


@in_a_checkout
@pytest.mark.long("wheels and sdists are built twice")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_what_is_built_is_the_same_twice_elsewhere_and_by_somebody_else(target: str, tmp_path: Path) -> None:
    results = []
    for name, umask, mtime in (("one", 0o022, 1_600_000_000), ("a folder of another length", 0o002, 1_750_000_000)):
        copy = tmp_path / name
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True, capture_output=True)
        for path in copy.rglob("*"):
            if path.is_file() and ".git" not in path.parts:
                os.utime(path, (mtime, mtime))
        results.append(built(copy, target, tmp_path / f"{name}-dist", umask))
        shutil.rmtree(copy)
    assert results[0] == results[1]


def test_the_conda_recipe_requires_what_the_package_requires() -> None:
    recipe = yaml_of(ROOT / "conda" / "recipe.yaml")
    wanted = {ON_CONDA.get(r.name, r.name): str(r.specifier) for r in map(Requirement, PROJECT["dependencies"])}
    run = [line.partition(" ") for line in recipe["requirements"]["run"]]
    conda = {name: ",".join(sorted(ranges.split(","), reverse=True)) for name, _, ranges in run}
    assert conda.pop("python") == ">=${{ python_min }}"
    assert conda.pop("__linux") == ""
    assert {name: set(r.split(",")) for name, r in conda.items()} == {n: set(r.split(",")) for n, r in wanted.items()}
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    (entry_point,) = recipe["build"]["python"]["entry_points"]
    assert entry_point == f"nls = {PROJECT['scripts']['nls']}"


def test_workflows_run_what_make_does_and_nothing_else_of_ours() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    ours = [path for path in WORKFLOWS if path.name in ("test.yml", "nightly.yml", "release.yml")]
    assert len(ours) == 3
    for path in ours:
        jobs = yaml_of(path)["jobs"]
        lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
        named = {found for line in lines for found in re.findall(r"^make ([a-z-]+)", line)}
        matrices = [job.get("strategy", {}).get("matrix", {}) for job in jobs.values()]
        named |= {value.split()[0] for matrix in matrices for value in matrix.get("target", [])}
        assert named
        assert named <= targets, path.name
        assert all(line.startswith(("make ", "git diff ")) for line in lines), lines


def test_the_matrix_of_tests_is_what_the_package_says_to_work_with() -> None:
    jobs = yaml_of(GITHUB / "workflows" / "test.yml")["jobs"]
    pythons = {
        Version(line.rpartition(" ")[2]) for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    }
    assert {Version(python) for python in jobs["test"]["strategy"]["matrix"]["python"]} == pythons
    (lab,) = (r for r in map(Requirement, PROJECT["optional-dependencies"]["lab"]) if r.name == "jupyterlab")
    oldest, newest = jobs["jupyterlab"]["strategy"]["matrix"]["jupyterlab"]
    assert f">={oldest}" in str(lab.specifier).split(",")
    assert lab.specifier.contains(f"{newest}.99")
    (ipykernel,) = (r for r in map(Requirement, PROJECT["dependencies"]) if r.name == "ipykernel")
    assert all(ipykernel.specifier.contains(f"{major}.99") for major in jobs["test"]["strategy"]["matrix"]["ipykernel"])


def test_a_release_needs_no_secret_and_only_the_step_that_publishes_may_do_so() -> None:
    text = (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")
    release = yaml_of(GITHUB / "workflows" / "release.yml")
    assert "secrets." not in text
    assert "password" not in text
    assert release["permissions"] == {"contents": "read"}
    allowed = {name: job.get("permissions", {}) for name, job in release["jobs"].items()}
    assert allowed == {"build": {}, "publish": {"id-token": "write"}}


def test_who_reports_a_problem_is_asked_for_a_bundle() -> None:
    forms = {
        path.name: yaml_of(path) for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
    }
    for name in ("problem.yml", "real_gpu.yml"):
        (field,) = (item for item in forms[name]["body"] if item.get("id") == "bundle")
        assert "nls doctor --bundle" in field["attributes"]["description"]
        assert field["validations"] == {"required": True}
    assert all({"name", "description", "body"} <= form.keys() for form in forms.values())
