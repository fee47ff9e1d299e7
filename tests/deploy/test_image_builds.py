"""The images' steps, run one by one in a folder that stands for the root: what a build does, but for the base image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from manifests import DEPLOY, instructions

from daemon_process import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BUILD_ARGUMENTS = {"CUDA": "none"}
OF_THIS_NETWORK = ("_proxy", "_cert")
AT_THE_ROOT = re.compile(r"(?<![\w./])/(?=(?:opt|src|locks|wheels|tmp/wheels)\b)")

pytestmark = [
    pytest.mark.long("fetches what the images install, and Node, for minutes"),
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.environ.get("NLS_IMAGES") != "1", reason="make images"),
]


class Build:
    """One build, stage after stage in the same folder, from the files that are committed or about to be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.workdir = root
        self.environment = {
            "HOME": str(root / "home"),
            "PATH": f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            **{name: value for name, value in os.environ.items() if name.lower().endswith(OF_THIS_NETWORK)},
            **BUILD_ARGUMENTS,
        }
        for folder in ("bin", "home"):
            (root / folder).mkdir()
        base = root / "base"
        subprocess.run(["python3.13", "-m", "venv", str(base)], check=True)
        for name in ("python", "pip"):
            (root / "bin" / name).symlink_to(base / "bin" / name)

    def at(self, text: str) -> str:
        """Paths of the image in our folder."""
        return AT_THE_ROOT.sub(f"{self.root}/", text)

    def copy(self, words: list[str]) -> None:
        *sources, target = words
        destination = self.workdir / self.at(target)
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *sources]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        for name in filter(None, names.split("\0")):
            below = next(name.removeprefix(f"{source}/") for source in sources if name.startswith(source))
            copied = destination / (below if len(sources) == 1 else name)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copied)

    def run(self, command: str) -> None:
        bind = re.search(r"--mount=type=bind,from=\w+,source=(\S+),target=(\S+) ", command)
        if bind is not None:
            command = command.replace(bind[0], "")
            mounted = self.at(bind[2])
            os.makedirs(os.path.dirname(mounted), exist_ok=True)  # noqa: PTH103, PTH120 - a path of the image
            os.symlink(self.at(bind[1]), mounted)  # noqa: PTH211
        done = subprocess.run(
            ["/bin/sh", "-ec", self.at(command)],
            cwd=self.workdir, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    def step(self, word: str, rest: str) -> None:
        if word == "WORKDIR":
            self.workdir = self.root / rest.lstrip("/")
            self.workdir.mkdir(parents=True, exist_ok=True)
        elif word == "ENV":
            for name, value in (pair.split("=", 1) for pair in rest.split()):
                self.environment[name] = self.at(value).replace("$PATH", self.environment["PATH"])
        elif word == "COPY" and "--from=" not in rest:
            self.copy(rest.split())
        elif word == "RUN":
            self.run(rest)


def built(name: str, root: Path) -> Build:
    build = Build(root)
    stages = 0
    for word, rest in instructions(DEPLOY / "images" / f"{name}.Containerfile"):
        stages += word == "FROM"
        if stages == 2 and word == "FROM":
            build.environment["PATH"] = f"{root / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        build.step(word, rest)
    return build


def test_the_daemon_s_image_is_built_from_a_clean_checkout(tmp_path: Path) -> None:
    build = built("daemon", tmp_path)
    build.run("/opt/nls/bin/nls --version")
    build.run("/opt/nls/bin/python -c 'import kubernetes, grpc, nls_scheduler.kubernetes_driver.api'")


def test_the_notebook_s_image_is_built_from_a_clean_checkout(tmp_path: Path) -> None:
    build = built("notebook", tmp_path)
    build.run(f"{tmp_path}/base/bin/nls --version")
    extension = tmp_path / "base" / "share" / "jupyter" / "labextensions" / "nls-jupyter"
    assert (extension / "package.json").is_file()
    assert (extension / "install.json").is_file()
