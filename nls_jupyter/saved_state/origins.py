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
    return not _PACKAGES.intersection(path.parts) and not str(path).startswith(_INSTALLED)


def is_the_users_module(name: str | None) -> bool:
    """Whether it is the notebook itself, or a module that is not installed."""
    if name is None or name == "__main__" or name not in sys.modules:
        return True
    return is_the_users(name, getattr(getattr(sys.modules[name], "__spec__", None), "origin", None))
