"""The code that this kernel has begun with, for the processes that it starts later.

A kernel and what it starts are of one version: they share memory and messages whose form changes. `pip install` over a
running notebook removes the files of its version, and writes those of another. So a copy of them is made when the first
process is started, in memory that goes with the kernel; from it those are started that come after a file has changed.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import nls_scheduler
from nls_scheduler.processes import guardian

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_log = logging.getLogger(__name__)

_PACKAGES: Final = (Path(__file__).parents[1], Path(nls_scheduler.__file__).parent)
# No process of a notebook imports from these.
_ROOMS_OF_COMMANDS: Final = frozenset({"bundle", "cli", "demo", "kubernetes_driver", "what_if"})
_GUARDIAN: Final = "nls_scheduler/processes/guardian.py"
_LOWEST_COMPRESSION: Final = 1

# A package finds what is in it where it was found itself. What cells import is nowhere else than it would be.
_MAIN: Final = """
import os, runpy, sys
archive = sys.path.pop(0)
del sys.argv[0]
if sys.argv[0] != "-m":
    exec(compile(__loader__.get_data(sys.argv[0]), sys.argv[0], "exec"))
else:
    del sys.argv[0]
    os.set_inheritable(int(os.path.basename(archive)), False)
    sys.path.insert(0, archive)
    import nls_scheduler, nls_jupyter
    del sys.path[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class OwnCode:
    """Of this process. Its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._copying: threading.Thread | None = None
        self._archive: int | None = None
        self._files: dict[Path, tuple[int, int]] = {}
        self._replaced = False

    def keep(self) -> None:
        """Have a copy made, beside what else the kernel does. Idempotent."""
        with self._lock:
            if self._copying is None:
                self._copying = threading.Thread(target=self._copy, name="nls-own-code", daemon=True)
                self._copying.start()

    def module(self, name: str) -> Sequence[str]:
        """The words behind the interpreter that run a module of ours."""
        return ("-m", name) if (archive := self._needed()) is None else (archive, "-m", name)

    def guardian(self) -> Sequence[str]:
        """As `guardian.beginning`."""
        return guardian.beginning(*(() if (archive := self._needed()) is None else (archive, _GUARDIAN)))

    @property
    def descriptors(self) -> Sequence[int]:
        """What a process inherits that is started with these words."""
        return (self._archive,) if self._replaced and self._archive is not None else ()

    def _needed(self) -> str | None:
        """Where the copy is, once the files are no longer those that it was made of."""
        if self._archive is None:
            return None
        archive = f"/proc/self/fd/{self._archive}"
        with self._lock:
            if not self._replaced and any(_stamp_of(path) != stamp for path, stamp in self._files.items()):
                self._replaced = True
                _import_from(archive)
                _log.warning("nls-jupyter was replaced under this kernel, which goes on with the version it has.")
        return archive if self._replaced else None

    def _copy(self) -> None:
        try:
            archive = os.memfd_create("nls-own-code", os.MFD_CLOEXEC)
        except OSError as error:
            _log.warning("No copy of this version's code could be made: %s", error)
            return
        try:
            with open(archive, "wb", closefd=False) as file:
                self._write(file)
        except OSError as error:
            os.close(archive)
            _log.warning("No copy of this version's code could be made: %s", error)
        else:
            self._archive = archive

    def _write(self, file: IO[bytes]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=_LOWEST_COMPRESSION) as archive:
            archive.writestr("__main__.py", _MAIN)
            for name, path in _sources():
                self._files[path] = _stamp_of(path)
                archive.writestr(name, path.read_bytes())


def _sources() -> Iterator[tuple[str, Path]]:
    """The name in the archive, and the file."""
    for package in _PACKAGES:
        for directory, below, files in os.walk(package):
            below[:] = [name for name in below if name not in _ROOMS_OF_COMMANDS]
            for path in (Path(directory, name) for name in files if name.endswith(".py")):
                yield str(path.relative_to(package.parent)), path


def _stamp_of(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _import_from(archive: str) -> None:
    """Have this process too find there what it imports late."""
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] in {package.name for package in _PACKAGES} and hasattr(module, "__path__"):
            module.__path__ = [f"{archive}/{name.replace('.', '/')}", *module.__path__]


OWN_CODE: Final = OwnCode()
