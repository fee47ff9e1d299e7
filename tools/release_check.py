"""Builds the sdist and the wheel into dist/, twice, and holds them against what an index asks for.

`make release-check` runs `release_check.py [TAG]`: with a tag, the version and the changes have to be those of that
release. Nothing is published.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import version

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
BIN = Path(sys.executable).parent
# Of 10: the project has no address for letters, which is the rest.
_PYROMA = 8


def main(tag: str | None) -> int:
    """Returns the exit code."""
    if wrong := _said_of(tag):
        print(wrong, file=sys.stderr)  # noqa: T201 - what the release lacks
        return 1
    environment = {"SOURCE_DATE_EPOCH": _of_the_commit(), **os.environ}
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        built = [_built(Path(folder) / name, environment) for name in ("one", "other")]
        for one, other in zip(*built, strict=True):
            if one.read_bytes() != other.read_bytes():
                print(f"{one.name} is not the same twice", file=sys.stderr)  # noqa: T201
                return 1
        DIST.mkdir()
        files = [shutil.copy(file, DIST / file.name) for file in built[0]]
    checks = [
        ["twine", "check", "--strict", *map(str, files)],
        ["pyroma", f"--min={_PYROMA}", str(files[0])],
        ["check-wheel-contents", str(files[1])],
    ]
    for command in checks:
        subprocess.run([BIN / command[0], *command[1:]], check=True)
    _render_recipe()
    return 0


def _render_recipe() -> None:
    """As conda-forge's tools read it, without its channels. Raises RecipeParseError and the like."""
    from rattler_build import Stage0Recipe

    (made,) = Stage0Recipe.from_file(str(ROOT / "conda" / "recipe.yaml")).render()
    print(f"conda: {made}")  # noqa: T201 - what was checked


def _said_of(tag: str | None) -> str | None:
    now = version.current()
    if others := {name: found for name, found in version.places().items() if found != {now}}:
        return f"the version is {now}, and these say otherwise: {others}"
    if tag is None:
        return None
    if tag != f"v{now}":
        return f"the tag is {tag}, and the version is {now}"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(now)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        return f"CHANGELOG.md has no heading of {now} with its date"
    return None


def _of_the_commit() -> str:
    command = ["git", "log", "-1", "--format=%ct"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _built(folder: Path, environment: dict[str, str]) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, as an index's users may have to."""
    sdist = _hatchling(ROOT, "sdist", folder / "sdist", environment)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return sdist, _hatchling(source, "wheel", folder / "wheel", environment)


def _hatchling(source: Path, target: str, directory: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(directory)]
    subprocess.run(command, cwd=source, check=True, env=environment)
    (built,) = directory.iterdir()
    return built


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
