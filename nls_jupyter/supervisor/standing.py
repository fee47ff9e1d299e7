"""Carries out the daemon's orders to freeze a notebook's GPU process in mid-cell, and to let it go on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from nls_jupyter.supervisor.freezer import Lost, NotDone, Stuck
from nls_jupyter.supervisor.launch import GpuProcessDied
from nls_jupyter.supervisor.pending import RequestFailed
from nls_scheduler.units.clock import monotonic_s, wall_s

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.keeper import Keeper
    from nls_jupyter.supervisor.notices import NoticeLog
    from nls_scheduler.wire.protocol import CommandMessage


_TRY_AGAIN_S: Final = 10.0
_SAYS_WITHIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Stands:
    """A cell that stands still.

    Attributes:
        process: whose it is.
        bytes: what of that is in host memory.
        at: since when, as the clock on the wall showed then; seconds since the epoch.
        since: the same moment by monotonic_s(), which nobody sets.
        for_whom: the name of who needs its GPU; `None`: that is not told.
        gpu: where it goes on, by label.
    """

    process: GpuProcess
    bytes: int
    at: float
    since: float
    for_whom: str | None
    gpu: str

    @property
    def seconds(self) -> float:
        """For how long it has stood by now."""
        return monotonic_s() - self.since


class Tell(Protocol):
    """Has the daemon know a fact."""

    async def __call__(self, event: str, **fields: Any) -> None:
        """Raises Problem when it is malformed."""


class Standing:
    """What stands still of one workload. Everything runs in the loop's thread.

    Attributes:
        stands: the cell that does; `None` without one.
    """

    def __init__(
        self,
        keeper: Keeper,
        log: NoticeLog,
        tell: Tell,
        end: Callable[[str], Awaitable[None]],
        on_stands: Callable[[], None],
    ) -> None:
        """`end` ends a process that is lost, and tells; `on_stands` is called when a cell begins to stand still."""
        self._keeper = keeper
        self._log = log
        self._tell = tell
        self._end = end
        self._on_stands = on_stands
        self._tested: GpuProcess | None = None
        self._refused: GpuProcess | None = None
        self._stands: Stands | None = None

    @property
    def stands(self) -> Stands | None:
        """The cell that stands still, as long as its process is there."""
        known = self._stands
        return known if known is not None and known.process is self._keeper.process else None

    async def test(self, view: Mapping[str, Any]) -> None:
        """Tell each daemon once whether the process that is there now could be frozen, if `view` says that it may."""
        process = self._keeper.process
        if not view.get("freezes") or process is None or not self._keeper.usable or process is self._tested:
            return
        self._tested = process
        why_not = await self._keeper.freezer.why_not()
        if process is self._keeper.process:
            await self._tell("freeze_tested", **({} if why_not is None else {"refusal": why_not}))
            if why_not is not None and process is not self._refused:
                self._refused = process
                self._log.add(f"A running cell here cannot stand still for others: {why_not}.")

    def reported(self) -> None:
        """Another daemon may be there, which was told nothing; or the same one, which has lost what it knew."""
        self._tested = None

    async def freeze(self, command: CommandMessage, view: Mapping[str, Any]) -> None:
        """Answers with process_frozen or freeze_failed; not at all where the driver does not answer either."""
        keeper, process = self._keeper, self._keeper.process
        if process is None or not keeper.executing or not keeper.still_usable():
            await self._tell("freeze_failed", command_id=command.command_id, reason="no cell runs any more")
            return
        try:
            left_s = await self._asked(process, command.timeout_s)
            held_bytes = int(view["memory_used_bytes"])
            frozen_bytes = await keeper.freezer.freeze(process, left_s, held_bytes, command.beside_bytes)
        except NotDone as error:
            await self._tell("freeze_failed", command_id=command.command_id, reason=str(error))
            self._log.add(f"The running cell could not be made to stand still: {error}.")
            return
        except (Lost, Stuck) as error:
            await self._given_up(error)
            return
        for_whom = None if command.cause is None else command.cause.name
        gpu = " and ".join(view["gpus"]) or "the GPU"
        self._stands = Stands(process, frozen_bytes, wall_s(), monotonic_s(), for_whom, gpu)
        await self._tell("process_frozen", command_id=command.command_id, frozen_bytes=frozen_bytes)
        self._log.add(f"The running cell stands still: {command.reason}.")
        self._on_stands()

    async def _asked(self, process: GpuProcess, timeout_s: float) -> float:
        """What is left of the time when the process has said that nothing is known against it. Raises NotDone."""
        within_s = min(_SAYS_WITHIN_S, timeout_s / 2)
        began = monotonic_s()
        try:
            refusal = await process.why_not_frozen(timeout_s=within_s)
        except TimeoutError:
            raise NotDone(f"the GPU process did not say within {within_s:.1f} s what it uses of the GPU") from None
        except (RequestFailed, GpuProcessDied) as error:
            raise NotDone(f"the GPU process could not say what it uses of the GPU: {error}") from error
        if refusal is not None:
            raise NotDone(refusal)
        return timeout_s - (monotonic_s() - began)

    async def thaw(self, command: CommandMessage) -> None:
        """Answers with process_thawed or thaw_failed; not at all where the driver does not answer either."""
        process, stands = self._keeper.process, self.stands
        if process is None:
            return  # its end is told, or was
        try:
            await self._keeper.freezer.thaw(process, command.timeout_s)
        except NotDone as error:
            await self._tell("thaw_failed", command_id=command.command_id, reason=str(error))
            self._log.add(f"The cell that stands still could not go on yet: {error}.")
            return
        except (Lost, Stuck) as error:
            await self._given_up(error)
            return
        self._stands = None
        await self._tell("process_thawed", command_id=command.command_id)
        stood = "" if stands is None else f" after {stands.seconds:.0f} s"
        self._log.add(f"The cell goes on{stood}.")

    async def let_go(self) -> bool:
        """For who is to end the process: it runs, or is lost, and may be. False: the driver may hold it still."""
        process = self._keeper.process
        if process is not None:
            try:
                await self._keeper.freezer.go_on(process)
            except (NotDone, Stuck) as error:
                await self._given_up(Stuck(str(error)))
                return False
            except Lost:
                pass
        self._stands = None
        return True

    async def until_let_go(self) -> None:
        """Without the daemon's word, as soon as the driver can: nobody else would have the cell go on."""
        while (stands := self.stands) is not None:
            try:
                await self._keeper.freezer.go_on(stands.process)
            except (NotDone, Stuck):
                await asyncio.sleep(_TRY_AGAIN_S)
                continue
            except Lost as error:
                await self._given_up(error)
            self._stands = None

    async def _given_up(self, error: Lost | Stuck) -> None:
        if isinstance(error, Lost):
            self._stands = None
            process = self._keeper.process
            if process is not None and process.alive:  # else its end is told by whoever saw it
                await self._end(f"the GPU driver has given it up while its cell stood still ({error})")
            return
        # Whoever kills what the driver may have locked can hang the node: it is the administrator's to decide.
        self._log.add(
            f"The GPU driver may hold the GPU process, which is left as it is: {error}. To end it could hang the node.",
            important=True,
        )
