"""The GPU process's side of standing by: which modules a notebook uses, importing them early, and becoming real."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import site
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nls_jupyter.gpu_process import given_gpus, priority
from nls_jupyter.saved_state.process_settings import changed_since, set_environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_CUDA_NOT_INITIALIZED = 3
_CONTENT: Any = vars(ModuleType)["__dict__"]


class Imports:
    """What was imported in this process since it began, and what it may have read of the environment then."""

    def __init__(self) -> None:
        self._before = frozenset(sys.modules)
        self._environment = dict(os.environ)
        # A module next to the notebook is still being written: it is imported when it is asked for, not before.
        paths = [*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))]
        self._installed = tuple(f"{path}{os.sep}" for path in (*paths, site.getusersitepackages()))

    def names(self, namespace: Mapping[str, Any]) -> list[str]:
        """Modules to import in advance: packages that were loaded, and modules that are values of the user's names."""
        loaded = tuple(sys.modules)  # a thread of the user's may import another one meanwhile
        packages = [name for name in loaded if "." not in name and name not in self._before]
        # By what they are, never by what they say: a value of the user's may raise when it is asked.
        modules = [value for value in namespace.values() if issubclass(type(value), ModuleType)]
        values = [_CONTENT.__get__(module).get("__name__") for module in modules]
        wanted = dict.fromkeys(
            [*packages, *(name for name in values if type(name) is str and name not in self._before)]
        )
        return [name for name in wanted if self._can_be_imported(name, sys.modules.get(name))]

    def environment(self) -> dict[str, str | None]:
        """What cells have changed of it, for whoever imports the same: many a library reads a variable just then."""
        return changed_since(self._environment)

    def _can_be_imported(self, name: str, module: ModuleType | None) -> bool:
        spec = getattr(module, "__spec__", None)
        if spec is None or spec.name != name or name.startswith("_"):
            return False
        ours = name.partition(".")[0] == "nls_jupyter"
        return ours or (isinstance(spec.origin, str) and spec.origin.startswith(self._installed))


@contextlib.contextmanager
def as_in_a_cell(shell: Any) -> Iterator[None]:
    """What is imported meanwhile sees what it would in a cell: many a library asks where it is, once and for all."""
    with shell.builtin_trap, shell.display_trap:
        yield


@contextlib.contextmanager
def _quiet(stream: Any) -> Iterator[None]:
    """Nothing is written; the stream stays the one that it is, for those who look at it or keep it."""
    stream.write = len
    try:
        yield
    finally:
        del stream.write


def import_quietly(names: Iterable[str]) -> list[str]:
    """Import what can be imported, without a word. Returns the names that cannot."""
    failed = []
    with _quiet(sys.stdout), _quiet(sys.stderr):
        for name in names:
            try:
                importlib.import_module(name)
            except (Exception, SystemExit):  # noqa: BLE001 - the user's cell gets the error when it imports the module
                failed.append(name)
    return failed


def cuda_touched() -> str | None:
    """How this process has touched a GPU so far, `None` if it has not: then CUDA will read its mask when it does.

    CUDA reads `CUDA_VISIBLE_DEVICES` once, when it is initialized. Asking whether it is does not initialize it.
    """
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if (opened := str(descriptor.readlink())).startswith("/dev/nvidia"):
                return f"{opened} is open"
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None  # it is not even loaded
    if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _CUDA_NOT_INITIALIZED:
        return "CUDA is initialized"
    return None


def adopt(environment: Mapping[str, str | None], cwd: str) -> None:
    """Stand by no longer; see `become`."""
    become(environment, cwd)
    priority.restore()


def become(environment: Mapping[str, str | None], cwd: str) -> None:
    """Become the GPU process that was ordered with this environment. Raises `RuntimeError` if it is too late."""
    touched = cuda_touched()
    if touched is not None:
        raise RuntimeError(f"the GPU was touched in advance: {touched}")
    given_gpus.give(environment)
    set_environment(environment)
    os.chdir(cwd)
