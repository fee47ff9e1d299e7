"""IPython itself and its parts: a new process has its own, and what led to one of them leads to the other."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.looks import Look
from nls_jupyter.saved_state.places import is_librarys_object
from nls_jupyter.saved_state.regions import UnsavableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PARTS = ("display_formatter", "events", "history_manager", "kernel", "magics_manager")


def handlers() -> Mapping[type, Callable[[Any], Any]]:
    """Reducers per exact type, as a library's."""
    return {} if (shell := _running()) is None else dict.fromkeys(_kinds(shell), _reduce)


def lookers() -> Mapping[type, Callable[[Any], Look | None]]:
    """How a walk sees them: it ends there."""
    return {} if (shell := _running()) is None else dict.fromkeys(_kinds(shell), _look)


def part_of_shell(*path: str) -> Any:
    """The running shell, or what lies at this path in it; called by the unpickler."""
    from IPython.core.interactiveshell import InteractiveShell

    return _parts(InteractiveShell.instance())[path]


def _running() -> Any:
    shells = getattr(sys.modules.get("IPython.core.interactiveshell"), "InteractiveShell", None)
    return shells.instance() if shells is not None and shells.initialized() else None


def _parts(shell: Any) -> dict[tuple[str, ...], Any]:
    parts: dict[tuple[str, ...], Any] = {(): shell}
    parts |= {(name,): getattr(shell, name) for name in _PARTS if hasattr(shell, name)}
    formatters = shell.display_formatter.formatters.items()
    return parts | {("display_formatter", mime): part for mime, part in formatters if is_librarys_object(part)}


@functools.cache
def _kinds(shell: Any) -> frozenset[type]:
    return frozenset(map(type, _parts(shell).values()))


def _path(part: Any) -> tuple[str, ...] | None:
    found = _parts(_running())
    return next((path for path, candidate in found.items() if candidate is part), None)


def _look(part: Any) -> Look | None:
    path = _path(part)
    return None if path is None else Look("/".join(path).encode())


def _reduce(part: Any) -> Any:
    path = _path(part)
    if path is not None:
        return part_of_shell, path
    if hasattr(part, "run_cell"):
        raise UnsavableError("IPython itself", part)
    return NotImplemented
