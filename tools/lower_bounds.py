"""Prints the oldest versions that we say to work with, as requirements for pip: `lower_bounds.py NAME...`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

_PROJECT = Path(__file__).parent.parent / "pyproject.toml"
_AT_LEAST = re.compile(r"([\w.-]+)>=(\d+)(?:\.(\d+))?")


def lower_bound(name: str) -> str:
    """Of a dependency, such as `pyzmq==26.0.*` for `pyzmq>=26,<28`. Raises LookupError for one that has none."""
    for dependency in tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
        bound = _AT_LEAST.match(dependency)
        if bound is not None and bound[1] == name:
            return f"{name}=={bound[2]}.{bound[3] or 0}.*"
    raise LookupError(f"{_PROJECT.name} has no lower bound of {name}")


if __name__ == "__main__":
    sys.stdout.write("\n".join(map(lower_bound, sys.argv[1:])) + "\n")
