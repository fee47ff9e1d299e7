"""Modules that `%%cython` has compiled: it loads each from IPython's cache, and Python does not know it by its name.

What a cell has of one is saved as the name of that module and its own; a new process finds the module where it lies.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_MAGIC: Final = "Cython.Build.IpythonMagic"
_PREFIX: Final = "_cython_magic_"


def of_cython_cells() -> Aspect:
    """Kept as soon as there may be such a module."""
    return Aspect("modules of %%cython", _folder, _look_there, early=True)


def _folder() -> str | None:
    magic = sys.modules.get(_MAGIC)
    if magic is not None:
        return str(Path(magic.get_ipython_cache_dir(), "cython"))
    return next((finder.folder for finder in sys.meta_path if isinstance(finder, _Finder)), None)


def _look_there(folder: str) -> None:
    sys.meta_path.append(_Finder(folder))


class _Finder(MetaPathFinder):
    """Finds them in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See the base class."""
        file = Path(self.folder, fullname + EXTENSION_SUFFIXES[0])
        is_one = fullname.startswith(_PREFIX) and path is None and target is None and file.exists()
        return spec_from_file_location(fullname, file) if is_one else None
