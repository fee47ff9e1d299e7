"""The workflows that publish: they do what `make` does, with no more rights than that takes."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from daemon_process import ROOT
from nls_scheduler import __version__

WORKFLOWS = [ROOT / ".github" / "workflows" / name for name in ("images.yml", "chart.yml")]
TARGETS = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def jobs(name: str) -> dict[str, Any]:
    written = yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8"))
    assert written["permissions"] == {}
    return dict(written["jobs"])


def steps(name: str) -> list[str]:
    return [step["run"] for job in jobs(name).values() for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS])
def test_what_a_workflow_makes_is_a_target(name: str) -> None:
    asked = [word for step in steps(name) for word in re.findall(r"make (?:-s )?([a-z.][\w./-]*)", step)]
    assert asked
    assert {word for word in asked if "/" not in word} <= TARGETS


@pytest.mark.parametrize("name", [path.name for path in WORKFLOWS])
def test_only_a_version_s_tag_publishes_and_only_that_job_may_write(name: str) -> None:
    for job, written in jobs(name).items():
        if job == "publish":
            assert written["if"] == "github.event_name == 'push'"
            assert written["permissions"] == {"contents": "read", "packages": "write"}
        else:
            assert written["permissions"] == {"contents": "read"}
        assert not any("github.event." in step.get("run", "") for step in written["steps"]), "that is others' text"


def dry(*words: str) -> str:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_published_is_for_both_architectures_with_its_sbom() -> None:
    told = dry("publish-containers", "REGISTRY=registry.example.org/somebody")
    builds = [line for line in told.splitlines() if line.startswith("docker buildx build")]
    for line, (file, image) in zip(builds, (("daemon", "nls-scheduler"), ("notebook", "nls-notebook")), strict=True):
        assert "--platform=linux/amd64,linux/arm64 --sbom=true --provenance=mode=max --push" in line
        assert f"images/{file}.Containerfile --tag registry.example.org/somebody/{image}:{__version__} " in line
    assert "imagetools inspect" in told


def test_the_chart_goes_to_the_registry_by_its_version() -> None:
    told = dry("publish-chart", "REGISTRY=registry.example.org/somebody")
    assert f"push dist/nls-jupyter-{__version__}.tgz oci://registry.example.org/somebody/charts" in told
    assert told.index("lint --strict") < told.index("package") < told.index(" push ")
