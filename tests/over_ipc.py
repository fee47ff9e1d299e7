"""Kernels over Unix sockets: a TCP port that one has chosen another process may take before it is used."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_client.manager import KernelManager

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jupyter_client.blocking.client import BlockingKernelClient

    Manager = TypeVar("Manager", bound=KernelManager)

READY_WITHIN_S = 60


def over_ipc(kind: type[Manager], directory: Path, **options: Any) -> Manager:
    """
    A manager of this kind for one kernel, whose files are in `directory`: its path is short enough for sockets.

    Without a folder of its own, kernels that start at once take each other's names in the working directory.
    """
    manager = kind(transport="ipc", **options)
    manager.connection_file = str(directory / "c.json")
    return manager


@contextmanager
def kernel_over_ipc(directory: Path, **options: Any) -> Iterator[BlockingKernelClient]:
    """A client of a new plain kernel, started with `options`; nothing of it is left behind."""
    manager = over_ipc(KernelManager, directory, kernel_name="python3")
    manager.start_kernel(**options)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=READY_WITHIN_S)
        yield client
    finally:
        client.stop_channels()
        client.context.destroy(linger=0)
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()
