"""Whose a module is: the user's own, or one that is installed."""

from __future__ import annotations

import functools
import sys
import sysconfig
from pathlib import Path

_INSTALLED = tuple(
    {str(Path(path).resolve()) for key, path in sysconfig.get_paths().items() if key not in {"data", "scripts"}}
)
_PACKAGES = {"site-packages", "dist-packages"}
_NO_FILES = (None, "built-in", "frozen")
_OURS = ("nls_jupyter", "nls_jupyter_server", "nls_scheduler")


@functools.cache
def is_the_users(name: str, origin: str | None) -> bool:
    """Whether a module of this name from this file is of the user's own, not an installed one."""
    if origin in _NO_FILES or name.partition(".")[0] in _OURS:
        return False
    path = Path(str(origin)).resolve()
    if _PACKAGES.intersection(path.parts) or str(path).startswith(_INSTALLED):
        return False
    above = zip(path.parents, path.parts[:0:-1], strict=True)
    return not any(part.partition(".")[0] in _installed_in(folder) for folder, part in above)


def _installed_in(folder: Path) -> frozenset[str]:
    """The modules and packages that an installer has put into `folder`, as `pip install --target` does."""
    try:
        return _recorded_in(folder, folder.stat().st_mtime_ns)
    except OSError:
        return frozenset()


@functools.cache
def _recorded_in(folder: Path, _changed_ns: int) -> frozenset[str]:
    names: set[str] = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with record.open(encoding="utf-8", errors="replace") as lines:
            names.update(line.partition(",")[0].partition("/")[0].partition(".")[0] for line in lines)
    return frozenset(names)


def is_the_users_module(name: str | None) -> bool:
    """Whether it is the notebook itself, or a module that is not installed."""
    if name is None or name == "__main__" or name not in sys.modules:
        return True
    return is_the_users(name, getattr(getattr(sys.modules[name], "__spec__", None), "origin", None))
