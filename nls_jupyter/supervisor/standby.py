"""The next GPU process of a notebook, started in advance: it has the notebook's modules, and has touched no GPU.

A cold start takes about as long as the notebook's imports do. Whatever is wrong with a standby, the GPU process starts
cold instead; the notebook never waits for one. The daemon knows nothing of it: it holds no GPU memory, and ends with
the kernel under a guardian of its own. Everything here runs in the loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.room import own_bytes
from nls_jupyter.supervisor.channel import GpuProcess
from nls_jupyter.supervisor.launch import GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.pending import RequestFailed, accepted
from nls_jupyter.supervisor.started import world
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.supervisor.notices import NoticeLog
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.standby_settings import StandbySettings

_log = logging.getLogger(__name__)

# The notebook may go on with its next cell at once: that comes first.
START_AFTER_S = 1.0
PREPARED_WITHIN_S = 300.0
ADOPTED_WITHIN_S = 2.0
_LOOK_EVERY_S = 0.25
_FAULTS = (LaunchFailed, GpuProcessDied, RequestFailed, TimeoutError, OSError)


class _Unfit(Exception):  # noqa: N818 - says what it is
    """It works, and cannot be used."""


class Standby:
    """At most one process that stands by.

    Attributes:
        ready: it can be taken.
    """

    def __init__(
        self,
        settings: StandbySettings,
        directory: Callable[[], Path],
        forward: Callable[[Message], None],
        busy: Callable[[], bool],
        log: NoticeLog,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._forward = forward
        self._busy = busy
        self._log = log
        self._process: GpuProcess | None = None
        self._output = _Muted(forward)
        self._preparing: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Future[Any]] = set()
        self._idle: asyncio.TimerHandle | None = None
        self._environment: Mapping[str, str | None] = {}
        self._launched_with: Mapping[str, str | None] = {}
        self._modules: Sequence[str] = ()
        self._changed: Mapping[str, str | None] = {}
        self._imported_with: Mapping[str, str | None] = {}
        self._world: object = None
        self._broken: set[str] = set()
        self._given_up: frozenset[str] | None = None
        self.on_save_point: Callable[[tuple[int, ...], Manifest], None] | None = None
        self.ready = False

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def consider(self, modules: Sequence[str], changed: Mapping[str, str | None]) -> None:
        """A cell is over, after which the GPU process had these modules: have the next process ready soon.

        `changed`: the variables that cells have changed, as libraries may read them when they are imported.
        """
        self._modules, self._changed = modules, changed
        self._wait_for_idleness()
        if self.ready and not self._is_as_the_process:
            self._retire(self._process)
        wanted = [name for name in modules if name not in self._broken]
        there = self._process is not None or self._preparing is not None
        # Of one that has imported nothing, the next process is there in half a second anyway.
        if wanted and not there and self._environment and frozenset(wanted) != self._given_up:
            self._preparing = asyncio.get_running_loop().create_task(self._prepare(wanted))

    @property
    def _is_as_the_process(self) -> bool:
        return self._world == world() and self._imported_with == self._changed

    async def take(self, environment: Mapping[str, str | None]) -> GpuProcess | None:
        """The process, if one stands ready, with this environment from now on; else `None`."""
        self._environment = dict(environment)
        process = self._process if self.ready and self._is_as_the_process else None
        try:
            if process is not None:
                self._process, self.ready = None, False
                content = {"environment": {**dict.fromkeys(self._launched_with), **environment}, "cwd": str(Path.cwd())}
                accepted(await process.request("nls_adopt_request", content, timeout_s=ADOPTED_WITHIN_S))
                self._output.muted = False
        except _FAULTS as error:
            why = str(error) or f"it did not answer within {ADOPTED_WITHIN_S:g} s"
            self._log.add(f"The GPU process that stood by could not be used, so that one starts cold: {why}.")
            self._retire(process)
            return None
        except BaseException:
            self._retire(process)
            raise
        finally:
            if self._modules:
                self.consider(self._modules, self._changed)  # the next move may come before the next cell
        return process

    async def end(self) -> None:
        """No standby any more, until the next `consider`. Returns when nothing of it is left."""
        if self._idle is not None:
            self._idle.cancel()
        if (preparing := self._preparing) is not None:
            preparing.cancel()
            await asyncio.wait([preparing])
            if self._preparing is preparing:  # it had not even begun
                self._preparing = None
        self._retire(self._process)
        if self._ending:
            await asyncio.wait(tuple(self._ending))

    async def _prepare(self, modules: Sequence[str]) -> None:
        try:
            await asyncio.sleep(START_AFTER_S)
            if self._busy():
                return  # the end of that cell is another occasion
            await self._launch(modules)
        except asyncio.CancelledError:
            self._retire(self._process)
            raise
        except (*_FAULTS, _Unfit) as error:
            self._retire(self._process)
            self._given_up = frozenset(modules)
            why = str(error) or f"it took longer than {PREPARED_WITHIN_S:g} s"
            self._log.add(f"No GPU process stands by until the notebook's modules change: {why}.")
        finally:
            self._preparing = None
        if self.ready and self._imported_with != self._changed:  # by a cell that ran meanwhile
            self.consider(self._modules, self._changed)

    async def _launch(self, modules: Sequence[str]) -> None:
        budget_bytes = self._settings.budget_bytes()
        if not budget_bytes:
            return
        self._world, self._output, self._launched_with = world(), _Muted(self._forward), self._environment
        self._imported_with = dict(self._changed)
        process = self._process = await GpuProcess.launch(
            # Masked as the notebook's process: an import that uses a GPU uses the notebook's own, and is found out.
            environment={**self._environment, "NLS_STANDBY": "1"},
            directory=self._directory(),
            forward=self._output,
            on_save_point=self.on_save_point,
        )
        process.exited.add_done_callback(lambda _: self._gone(process))
        await process.ready()
        content = {"modules": list(modules), "environment": dict(self._imported_with)}
        asked = process.request("nls_prepare_request", content, timeout_s=PREPARED_WITHIN_S)
        answer = accepted(await self._watched(process, asked, budget_bytes))
        self._broken.update(answer["failed"])
        if answer["touched"] is not None:
            raise _Unfit(f"one of its modules uses the GPU when it is imported ({answer['touched']})")
        self.ready = self._process is process

    async def _watched(self, process: GpuProcess, asked: Coroutine[Any, Any, Message], budget_bytes: int) -> Message:
        """The answer, unless the process takes more memory meanwhile than it may."""
        answer = asyncio.ensure_future(asked)
        try:
            while True:
                done, _ = await asyncio.wait([answer], timeout=_LOOK_EVERY_S)
                taken_bytes = own_bytes(process.pid)
                if taken_bytes > budget_bytes:
                    size, most = format_bytes(taken_bytes), format_bytes(budget_bytes)
                    raise _Unfit(f"the modules take {size} of host memory, more than the {most} of standby_memory")
                if done:
                    return answer.result()
        finally:
            answer.cancel()

    def _retire(self, process: GpuProcess | None) -> None:
        if process is None:
            return
        if self._process is process:
            self._process, self.ready = None, False
        process.kill()
        self._ending.add(process.exited)
        process.exited.add_done_callback(self._ending.discard)

    def _gone(self, process: GpuProcess) -> None:
        if self._process is process:
            self._process, self.ready = None, False

    def _wait_for_idleness(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._settings.idle_s, self._end_if_idle)

    def _end_if_idle(self) -> None:
        if self._busy() or self._preparing is not None:
            self._wait_for_idleness()
        else:
            _log.debug("No cell ran for %g s: the process that stood by is ended.", self._settings.idle_s)
            self._retire(self._process)


class _Muted:
    """Nobody wants to see what modules say when they are imported."""

    def __init__(self, forward: Callable[[Message], None]) -> None:
        self._forward = forward
        self.muted = True

    def __call__(self, message: Message) -> None:
        if not self.muted:
            self._forward(message)
