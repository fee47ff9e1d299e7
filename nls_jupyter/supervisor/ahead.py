"""The first GPU process of a notebook whose every cell goes there: started with the kernel, before its first cell.

It imports what all GPU processes need, which is most of their start, and waits: nothing of the user's is loaded, as
that may ask which GPU it has, and the daemon is asked for nothing. The first order makes it the notebook's process.
Whatever is wrong with it, that one starts cold instead.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_core.paths import jupyter_runtime_dir

from nls_jupyter.between.ahead import ENVIRONMENT, give_order
from nls_jupyter.supervisor.launch import LaunchFailed
from nls_jupyter.supervisor.loop_thread import LoopThread
from nls_jupyter.supervisor.started import Started, world
from nls_jupyter.supervisor.tasks import Tasks
from nls_scheduler.processes.proc import WORKLOAD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_jupyter.supervisor.standby_settings import StandbySettings

_log = logging.getLogger(__name__)


class Ahead:
    """At most one process, which is taken once. It costs host memory as a standby does, and follows its settings.

    Made in the thread of the notebook's cells; its methods belong to the loop's.

    Attributes:
        thread: the supervisor's, in which the process is started.
    """

    def __init__(self, settings: StandbySettings) -> None:
        self._settings = settings
        self._world = world()
        self.thread = LoopThread("nls-supervisor")
        self._over = False
        self._tasks = Tasks(lambda error: _log.error("A GPU process that nobody needs did not end: %r", error))
        self._starting = self.thread.submit(self._start())

    async def take(self, environment: Mapping[str, str | None]) -> Started | None:
        """The process, if there is one, with this environment from now on; else `None`."""
        started = await self._only_once()
        if started is None:
            return None
        try:
            if self._world == world() and started.process.alive:
                give_order(started.shares.lane, environment, str(Path.cwd()))
                if (workload := environment.get(WORKLOAD_VARIABLE)) is not None:
                    started.process.belong_to(workload)
                return started
        except OSError as error:
            _log.info("The GPU process that was started ahead could not be used: %s", error)
        await started.end()
        return None

    async def end(self) -> None:
        """None any more. Returns when nothing of it is left."""
        if (started := await self._only_once()) is not None:
            await started.end()

    async def _only_once(self) -> Started | None:
        if self._over:
            return None
        self._over = True
        return await asyncio.wrap_future(self._starting)

    async def _start(self) -> Started | None:
        directory = Path(jupyter_runtime_dir()) / "nls" / f"gpu-{os.getpid()}-0"
        try:
            if not self._settings.budget_bytes():
                return None
            started = await Started.start(environment=ENVIRONMENT, directory=directory)
        except (LaunchFailed, OSError) as error:
            _log.info("No GPU process was started ahead: %s", error)
            return None
        asyncio.get_running_loop().call_later(self._settings.idle_s, lambda: self._tasks.spawn(self.end()))
        return started
