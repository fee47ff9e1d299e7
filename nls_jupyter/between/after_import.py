"""Calls back when a library has been imported, whoever imports it; costs each import a look into a dictionary."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_log = logging.getLogger(__name__)


class AfterImport:
    """A finder that finds nothing by itself: it notes when others have found and loaded one of its modules.

    Args:
        wanted: what gets each module.
        failed: gets the module's name, and what that has raised.
    """

    def __init__(
        self,
        wanted: Mapping[str, Callable[[ModuleType], None]],
        failed: Callable[[str, Exception], object] | None = None,
    ) -> None:
        self._wanted = dict(wanted)
        self._failed = failed or _log_failure
        self._finding: set[str] = set()

    def install(self) -> None:
        """Call back at once for what is imported already, and from now on after each import."""
        for name in [name for name in self._wanted if name in sys.modules]:
            self._tell(name, sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Call back no more. Idempotent."""
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the finders behind this one find, with a loader that tells when it is done."""
        if name not in self._wanted or name in self._finding:
            return None
        self._finding.add(name)
        try:
            spec = found_behind(self, name, path, target)
        finally:
            self._finding.discard(name)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name: str, loader: Any) -> None:
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            loader.exec_module = load
            self._tell(name, module)

        loader.exec_module = exec_module

    def _tell(self, name: str, module: ModuleType) -> None:
        """A library that cannot be looked after is no reason to fail the user's import."""
        wanted = self._wanted.pop(name, None)
        if wanted is None:
            return
        try:
            wanted(module)
        except Exception as error:  # noqa: BLE001 - whatever an unknown version of the library raises
            self._failed(name, error)


def _log_failure(name: str, error: Exception) -> None:
    _log.error("What was to follow the import of %s failed.", name, exc_info=error)


def found_behind(
    finder: object, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
) -> ModuleSpec | None:
    """What is found by those who are asked after `finder`. Several that asked all others would ask in circles."""
    finders = iter([*sys.meta_path])
    if not any(each is finder for each in finders):
        return None
    found = (each.find_spec(name, path, target) for each in finders if hasattr(each, "find_spec"))
    return next((spec for spec in found if spec is not None), None)
