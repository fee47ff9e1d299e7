"""Writes what the images install anew: every version by the hashes of its files, for Python 3.13 or newer.

Versions that still fit stay as they are; with `--upgrade` they are the newest. Each lock is then tried, without
installing anything: there is a wheel of everything for both architectures.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "node_scheduler" / "deploy" / "images" / "locks"
PYTHON = "3.13"
PROJECT = "pyproject.toml"
SOURCES = {
    "build": [str((LOCKS / "build.in").relative_to(ROOT))],
    "daemon": [PROJECT, "--extra=kubernetes"],
    "notebook-none": [PROJECT],
    "notebook-cuda12": [PROJECT, "--extra=cuda12"],
    "notebook-cuda13": [PROJECT, "--extra=cuda13"],
}
WRITTEN = ["--universal", "--generate-hashes", "--no-annotate", "--custom-compile-command=make locks"]
PLATFORMS = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")


def uv(*words: str) -> None:
    """One command of uv, for the images' Python; ends this process if it fails."""
    command = [sys.executable, "-m", "uv", "pip", *words, "--quiet", f"--python-version={PYTHON}"]
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def main(*arguments: str) -> None:
    """`--upgrade`, or nothing."""
    for name, sources in SOURCES.items():
        lock = str(LOCKS / f"{name}.txt")
        uv("compile", *sources, *WRITTEN, f"--output-file={lock}", *arguments)
        for platform in PLATFORMS:
            with tempfile.TemporaryDirectory() as nothing:
                uv("install", "--dry-run", "--require-hashes", "--only-binary=:all:", f"--target={nothing}",
                   f"--python-platform={platform}", "--requirement", lock)  # fmt: skip


main(*sys.argv[1:])
