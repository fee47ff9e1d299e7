"""Prints the version, or sets another one wherever it is written: `version.py [X.Y.Z]`.

It is decided in one place, `nls_scheduler.__version__`; what is read without Python (package.json, charts, manifests,
guides) repeats it, and a test holds that all say the same.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = "node_scheduler/nls_scheduler/__init__.py"
_DECIDED = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
# What stands before it where it is ours; others have versions as well.
_BEFORE = (
    r"(?:nls-(?:scheduler|notebook):|nls-jupyter-|nls-jupyter --version "
    r'|^__version__ = "|^version: "?|^appVersion: "|^    tag: "|^  version: "|^ {2,6}"version": ")'
)
_ELSEWHERE = ("CHANGELOG.md", "benchmarks", "labextension/yarn.lock", "node_scheduler/nls_scheduler/wire/openapi.json")


def current(root: Path = ROOT) -> str:
    """The version. Raises ValueError where it is not written as it should be."""
    found = _DECIDED.search((root / PLACE).read_text(encoding="utf-8"))
    if found is None or not _VERSION.fullmatch(found[1]):
        raise ValueError(f'{PLACE} has no line such as __version__ = "1.2.3".')
    return found[1]


def places(root: Path = ROOT) -> dict[str, set[str]]:
    """By file of the repository, which versions of ours it names."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    pattern = re.compile(rf"{_BEFORE}({_VERSION.pattern})\b", re.MULTILINE)
    named = {}
    for name in listed:
        path = root / name
        if name.startswith(_ELSEWHERE) or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if found := set(pattern.findall(text)):
            named[name] = found
    return named


def change(new: str, root: Path = ROOT) -> list[str]:
    """Write `new` in place of the current version; returns the files. Raises ValueError."""
    if not _VERSION.fullmatch(new):
        raise ValueError(f"{new} is no version such as 1.2.3 or 1.2.3rc1.")
    old = current(root)
    pattern = re.compile(rf"({_BEFORE}){re.escape(old)}(?![\w.]*\d)", re.MULTILINE)
    changed = [name for name, versions in places(root).items() if old in versions]
    for name in changed:
        path = root / name
        path.write_text(pattern.sub(rf"\g<1>{new}", path.read_text(encoding="utf-8")), encoding="utf-8")
    return changed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write("\n".join(change(sys.argv[1])) + "\n")
    sys.stdout.write(f"{current()}\n")
