"""A GPU process that was started, before anybody talks to it."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_jupyter.supervisor.connection import Connection
from nls_jupyter.supervisor.launch import GuardedProcess, LaunchFailed, interpreter
from nls_jupyter.supervisor.own_code import OWN_CODE
from nls_jupyter.supervisor.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MODULE: Final = "nls_jupyter.gpu_process"


@dataclass(frozen=True, slots=True)
class Started:
    """The process, and the kernel's ends of all ways to it. Belongs to the event loop's thread."""

    process: GuardedProcess
    connection: Connection
    shares: Shares

    @classmethod
    async def start(
        cls,
        *,
        environment: Mapping[str, str | None],
        directory: Path,
        cwd: Path | None = None,
        arguments: Sequence[str] = (),
    ) -> Started:
        """Start one; arguments and errors as those of `GpuProcess.launch`."""
        try:
            connection = Connection.create(directory)
        except OSError as error:
            raise LaunchFailed(f"no place for the GPU process's sockets: {error}") from error
        OWN_CODE.keep()
        try:
            shares = Shares()
            with shares.handed_over():
                process = await GuardedProcess.start(
                    [*interpreter(), *OWN_CODE.module(_MODULE), "-f", str(connection.file), *arguments],
                    environment={**environment, "NLS_GPU_PROCESS": "1", **shares.environment},
                    directory=connection.directory,
                    pass_fds=shares.pass_fds,
                    cwd=cwd,
                )
        except BaseException:
            connection.remove()
            raise
        return cls(process, connection, shares)

    async def end(self) -> None:
        """End one that nobody talks to; returns when nothing of it is left."""
        self.process.kill()
        self.shares.states.close()
        self.shares.lane.close()
        self.shares.close()
        await asyncio.shield(self.process.exited)


def world() -> object:
    """What a process sees once and for all when it starts: other than this, and it would not be the same process."""
    searched = [Path(path) for path in sys.path if isinstance(path, str)]  # as Python, which passes over all else
    installed = [path for path in searched if path.name in ("site-packages", "dist-packages")]
    return dict(os.environ), [(path, _changed_at(path)) for path in installed]


def _changed_at(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except (OSError, ValueError):  # it is not there, or for others
        return None
