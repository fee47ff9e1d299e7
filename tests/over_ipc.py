"""Managers of kernels over Unix sockets: a TCP port that one has chosen another process may take before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from jupyter_client.manager import KernelManager

    Manager = TypeVar("Manager", bound=KernelManager)


def over_ipc(kind: type[Manager], directory: Path, **options: Any) -> Manager:
    """A manager of this kind for one kernel, whose files are in `directory`: its path is short enough for sockets."""
    manager = kind(transport="ipc", **options)
    manager.connection_file = str(directory / "c.json")
    return manager
