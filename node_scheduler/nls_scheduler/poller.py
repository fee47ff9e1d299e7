"""Asks the driver, in one thread, as often as the situation needs, and turns the answers into events."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from nls_scheduler.attribution import Attribution, Known
from nls_scheduler.clock import boottime_s
from nls_scheduler.events import Event, GpusDiscovered, MemorySampled
from nls_scheduler.model import Gpu, GpuUuid, NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.ports import Driver, GpuInfo, GpuSample

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PollRates:
    """Seconds between two samples.

    Attributes:
        workloads_s: while there are workloads.
        releasing_s: while memory is on its way back and somebody may wait for it.
        empty_s: without any workload.
        discover_s: between two searches for Gpus while one is missing or there is none.
    """

    workloads_s: float = 0.5
    releasing_s: float = 0.05
    empty_s: float = 2.0
    discover_s: float = 10.0


class Poller:
    """The only caller of the driver. Lives in the daemon's loop; the driver's calls run in one helper thread."""

    def __init__(
        self, driver: Driver, rates: PollRates, state: Callable[[], NodeState], apply: Callable[[Event], None]
    ) -> None:
        self._driver = driver
        self._rates = rates
        self._state = state
        self._apply = apply
        self._attribution = Attribution()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="driver")
        self._hurry = asyncio.Event()
        self._discovered_at: float | None = None
        self.message: str | None = None
        """One sentence for the status while the driver gives no answer or there is no Gpu."""
        self.failing = False
        """Whether the driver's last answer was an error."""

    def hurry(self) -> None:
        """Sample at once: something has just changed on a Gpu."""
        self._hurry.set()

    async def poll(self) -> None:
        """One sample, and a search for Gpus where it is due. A driver's failure is told in `message`, not raised."""
        at = boottime_s()
        known = Known.of(self._state())
        try:
            found = await self._discover(at) if self._discovery_is_due(at) else None
            samples = await self._in_thread(self._driver.sample)
            if found is None and self._vanished(samples):
                found = await self._discover(at)
            if found is not None:
                self._tell_gpus([info for info in found if info.uuid in samples], at)
            readings = await self._in_thread(self._attribution.readings, samples, known)
        except Exception as error:
            if not self.failing:
                log.exception("the GPU driver failed")
            self.failing, self.message = True, f"The GPU driver does not answer: {error}"
            readings = {}
        else:
            self.failing = False
            self.message = await self._in_thread(self._driver.why_none) if not self._state().gpus else None
        self._apply(MemorySampled(at, readings))

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_s()):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()
            try:
                await self.poll()
            except Exception:
                log.exception("a sample could not be used; the next one may")

    async def environment(self, gpus: Sequence[GpuUuid]) -> Mapping[str, str]:
        """Variables that mask a new GPU process to `gpus`. Raises what the driver raises."""
        return await self._in_thread(self._driver.environment, gpus)

    async def close(self) -> None:
        """Give the driver back, after its last call has returned."""
        await self._in_thread(self._driver.close)
        self._thread.shutdown(wait=False)

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _discover(self, at: float) -> Sequence[GpuInfo]:
        self._discovered_at = at
        return await self._in_thread(self._driver.discover)

    def _tell_gpus(self, there: Sequence[GpuInfo], at: float) -> None:
        """`there`: found and sampled; one that gives no sample has vanished, whatever discovery says."""
        state = self._state()
        gpus = tuple(_gpu(info, state.gpus.get(info.uuid)) for info in there)
        if {gpu.uuid: gpu for gpu in gpus} != dict(state.gpus):
            self._apply(GpusDiscovered(at, gpus))

    def _discovery_is_due(self, at: float) -> bool:
        state = self._state()
        settled = bool(state.gpus) and all(gpu.healthy for gpu in state.gpus.values())
        last = self._discovered_at
        return not settled and (last is None or at - last >= self._rates.discover_s)

    def _vanished(self, samples: Mapping[GpuUuid, GpuSample]) -> bool:
        return any(gpu.healthy and gpu.uuid not in samples for gpu in self._state().gpus.values())

    def _interval_s(self) -> float:
        state = self._state()
        if any(gpu.releasing for gpu in state.gpus.values()):
            return self._rates.releasing_s
        return self._rates.workloads_s if state.workloads else self._rates.empty_s


def _gpu(info: GpuInfo, known: Gpu | None) -> Gpu:
    if known is None:
        return Gpu(info.uuid, info.index, info.name, info.memory_total_bytes)
    return replace(known, index=info.index, name=info.name, memory_total_bytes=info.memory_total_bytes, healthy=True)
