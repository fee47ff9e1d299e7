"""The guides name what is there, and what they show can be used as it stands."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest
import yaml
from manifests import COMPONENTS, KUBERNETES, OVERLAYS, daemon_container, rendered

from daemon_process import ROOT
from nls_scheduler import __version__

if TYPE_CHECKING:
    from pathlib import Path

GUIDES = [ROOT / "docs" / f"{name}.md" for name in ("kubernetes_install", "kind", "zero_to_jupyterhub")]
SERVERS = [ROOT / "docs" / f"{name}.md" for name in ("shared_server", "upgrading")]
INSTALL = GUIDES[0].read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def _apart(named: str) -> tuple[str, list[str]]:
    """As a shell takes `nls.{socket,service}`."""
    path, _, ends = named.partition("{")
    return path, ends.removesuffix("}").split(",")


@pytest.mark.parametrize("guide", [*GUIDES, *SERVERS], ids=lambda path: path.stem)
def test_every_file_that_a_guide_names_is_there(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    named = set(re.findall(r"node_scheduler/deploy/[\w./-]*\w(?:\.\{[\w,]+\})?", text))
    assert named
    paths = {f"{path}{end}" for path, ends in (_apart(each) for each in named) for end in ends}
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    assert set(re.findall(r"nls-(?:scheduler|notebook):(\d[\d.]*\d)", text)) <= {__version__}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_every_guide_says_what_has_not_been_tried(guide: Path) -> None:
    assert re.search(r"has not been run|has run on a real cluster|have not run", guide.read_text(encoding="utf-8"))


def test_a_hub_s_own_values_count_more_than_ours() -> None:
    (command,) = blocks(GUIDES[2].read_text(encoding="utf-8"), "console")
    ours, own = re.findall(r"--values (\S+)", command)
    assert (ROOT / ours).exists()
    assert own == "my-hub.yaml"


@pytest.mark.parametrize(("heading", "folders"), [("overlay", OVERLAYS), ("component", COMPONENTS)])
def test_every_overlay_and_every_component_is_in_the_guide(heading: str, folders: list[Path]) -> None:
    table = INSTALL.partition(f"| {heading} |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == {folder.name for folder in folders}


def test_the_overlay_of_the_guide_renders(tmp_path: Path) -> None:
    written = blocks(INSTALL, "yaml")[0]
    assert yaml.safe_load(written)["kind"] == "Kustomization"
    here = os.path.relpath(KUBERNETES, tmp_path)
    text = written.replace("../nls-jupyter/node_scheduler/deploy/kubernetes", here)
    (tmp_path / "kustomization.yaml").write_text(text)
    container = daemon_container(rendered(tmp_path))
    assert container["image"] == f"registry.example.org/nls-scheduler:{__version__}"
    assert container["securityContext"]["capabilities"]["add"] == ["SYS_PTRACE", "KILL"]


def test_the_image_s_line_that_the_guide_changes_is_in_the_example() -> None:
    (pattern,) = re.findall(r"sed 's\|(.*?)\|", INSTALL)
    images = [c["image"] for pod in rendered(KUBERNETES / "examples" / "third_pod") for c in _containers(pod)]
    assert len(images) == 2
    assert all(f"image: {image}".startswith(pattern) for image in images)


def _containers(manifest: dict) -> list[dict]:
    return manifest["spec"]["template"]["spec"]["containers"] if manifest["kind"] == "StatefulSet" else []
