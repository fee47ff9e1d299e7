"""Wheels built from sources, and environments of their own in which they are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def hatchling(source: Path, target: str, directory: Path) -> Path:
    """Builds as pip and `python -m build` do, from the network nothing."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    without_npm = {**os.environ, "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"}
    subprocess.run(command, cwd=source, check=True, capture_output=True, env=without_npm)
    (built,) = directory.iterdir()
    return built


class Environment:
    """A fresh virtual environment that sees what this one has, except for nls-jupyter."""

    def __init__(self, directory: Path, wheel: Path) -> None:
        venv.create(directory, with_pip=False, symlinks=True)
        self.directory = directory
        self.python = directory / "bin" / "python"
        names = {"base": str(directory), "platbase": str(directory)}
        self.site_packages = Path(sysconfig.get_path("purelib", vars=names))
        # A path file is not read again in the directory that it names: an editable install there stays out of sight.
        (self.site_packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip = [sys.executable, "-m", "pip", "--python", str(directory), "install", "--quiet", "--no-index", "--no-deps"]
        subprocess.run([*pip, "--ignore-installed", str(wheel)], check=True, capture_output=True)

    def run(self, code: str, directory: Path) -> Sequence[str]:
        """The lines that `code` prints, run far from the sources."""
        command = [str(self.python), "-W", "error", "-c", code]
        done = subprocess.run(command, cwd=directory, env=plain(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return str(done.stdout).split("\n")[:-1]


def plain(**variables: str) -> dict[str, str]:
    """This process's environment without what would lead to the sources or to a daemon of this machine."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NLS_SOCKET", "NLS_SIMULATE", "PYTHONPATH"))}
    return {**kept, **variables}
