"""Asks the driver, in one thread, as often as the situation needs, and turns the answers into events."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from nls_scheduler.core.model.events import GpusDiscovered, MemorySampled
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.reasons import Reason, Why, said
from nls_scheduler.daemon.attribution import Attribution, Known
from nls_scheduler.daemon.driver_thread import DriverThread
from nls_scheduler.daemon.limits import MemoryLimits
from nls_scheduler.units.clock import awake_s
from nls_scheduler.views.sentences import Names, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from nls_scheduler.core.model.events import Event, GpuReading, PlacedUse
    from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
    from nls_scheduler.core.model.state import NodeState
    from nls_scheduler.daemon.ports import Driver, GpuInfo, GpuSample

T = TypeVar("T")
_GONE: Final = (Why(Reason.VANISHED), Why(Reason.LEFT_OUT))
PATIENCE_S: Final = 10.0
"""A poll that is late by more than this means a driver that hangs."""
CLOSES_WITHIN_S: Final = 5.0
"""The end of the daemon does not wait longer for one."""
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
        self.rates = rates
        self._state = state
        self._apply = apply
        self._attribution = Attribution()
        self._limits = MemoryLimits(driver)
        self._thread = DriverThread()
        self._hurry = asyncio.Event()
        self._discovered_at: float | None = None
        self._polling = asyncio.Lock()
        self._infos: Sequence[GpuInfo] = ()
        self._left_out: frozenset[GpuUuid] = frozenset()
        self._absent: set[GpuUuid] = set()
        self._ever_seen: set[GpuUuid] = set()
        self._returned: set[GpuUuid] = set()
        self._polled_at: float | None = None
        self.on_poll: Callable[[float], None] | None = None
        """Called after each poll with the seconds that it took."""
        self.message: str | None = None
        """One sentence for the status while the driver gives no answer or there is no Gpu."""
        self.failing = False
        """Whether the driver's last answer was an error."""

    def tell_tenants_by(self, tenant_of: Callable[[int], str]) -> None:
        """See `Attribution`."""
        self._attribution = Attribution(tenant_of)

    def hurry(self) -> None:
        """Sample at once: something has just changed on a Gpu."""
        self._hurry.set()

    @property
    def not_ready(self) -> str | None:
        """Why what is known of the Gpus' memory cannot be relied on now; `None` when it can."""
        if self.failing:
            return self.message
        age_s = None if self._polled_at is None else awake_s() - self._polled_at
        if age_s is None or age_s > self._interval_s() + PATIENCE_S:
            since = "yet" if age_s is None else f"for {age_s:.0f} s"
            return f"The GPU driver has not answered {since}: see `nvidia-smi` and the kernel's log."
        return None

    def search(self) -> None:
        """Look for Gpus at the next poll: somebody may have added some, or cut one into slices."""
        self._discovered_at = None
        self.hurry()

    async def poll(self) -> None:
        """One sample, and a search for Gpus where it is due. A driver's failure is told in `message`, not raised."""
        async with self._polling:
            at = awake_s()
            readings = await self._readings(at)
            self._polled_at = awake_s()
            if self.on_poll is not None:
                self.on_poll(self._polled_at - at)
            self._apply(MemorySampled(at, readings))

    async def _readings(self, at: float) -> Mapping[GpuUuid, GpuReading]:
        known = Known.of(self._state())
        try:
            searched = self._discovery_is_due(at)
            if searched:
                await self._discover(at)
            samples = await self._in_thread(self._driver.sample)
            if not searched and self._vanished(samples):
                searched = True
                await self._discover(at)
            unhealthy = await self._in_thread(self._driver.health)
            there = [info for info in self._infos if info.uuid in samples]
            self._tell_gpus(there, unhealthy, at, searched=searched)
            readings = await self._in_thread(self._attribution.readings, samples, known)
            await self._in_thread(self._limits.keep, readings, known.sizes)
        except Exception as error:
            if not self.failing:
                log.exception("the GPU driver failed")
            self.failing, self.message = True, f"The GPU driver does not answer: {error}"
            return {}
        self.failing = False
        trouble = await self._in_thread(self._driver.trouble)
        if trouble is not None and trouble != self.message:
            log.warning("%s", trouble)
        self.message = trouble
        return readings

    async def return_to_service(self, gpu: GpuUuid) -> None:
        """An administrator says that `gpu` is well: it is used again unless the driver already says otherwise."""
        await self._in_thread(self._driver.return_to_service, gpu)
        self._returned.add(gpu)
        await self.poll()

    async def uses_of(self, workload: WorkloadId, process: ProcessId) -> Mapping[GpuUuid, tuple[PlacedUse, ...]]:
        """What `process` and its descendants use at this moment, as `workload`'s. Raises what the driver raises."""

        def ask() -> Mapping[GpuUuid, tuple[PlacedUse, ...]]:
            readings = Attribution().readings(self._driver.sample(), Known({process: workload}, {}))
            return {uuid: reading.placed for uuid, reading in readings.items() if reading.placed}

        return await self._in_thread(ask)

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
        """Give the driver back, after its last call has returned; one that hangs is left alone."""
        try:
            async with asyncio.timeout(CLOSES_WITHIN_S):
                await self._in_thread(self._limits.lift_all)
                await self._in_thread(partial(self._driver.close, in_use=bool(self._state().workloads)))
        except TimeoutError:
            log.error("the GPU driver does not answer: the daemon ends without it")  # noqa: TRY400 - nothing else is known
        self._thread.shutdown()

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def _discover(self, at: float) -> None:
        self._discovered_at = at
        self._infos = await self._in_thread(self._driver.discover)
        self._left_out = await self._in_thread(self._driver.left_out)
        self._ever_seen |= {info.uuid for info in self._infos}

    def _tell_gpus(
        self, there: Sequence[GpuInfo], unhealthy: Mapping[GpuUuid, str], at: float, *, searched: bool
    ) -> None:
        """`there`: found and sampled; one that gives no sample has vanished, whatever discovery says."""
        known = self._state().gpus
        forgiven = self._absent | self._returned
        gpus = tuple(_gpu(info, known.get(info.uuid), unhealthy.get(info.uuid), forgiven) for info in there)
        gone = known.keys() - {gpu.uuid for gpu in gpus}
        self._absent = set(gone)
        self._returned.clear()
        # A vanished Gpu on which somebody still is stays known as unhealthy: it is told again with each search only.
        news = searched or any(known[uuid].healthy for uuid in gone)
        if any(known.get(gpu.uuid) != gpu for gpu in gpus) or (gone and news):
            told = GpusDiscovered(at, gpus, self._left_out)
            _log_health(known, told)
            self._apply(told)

    def _discovery_is_due(self, at: float) -> bool:
        state = self._state()
        settled = bool(state.gpus) and all(gpu.healthy for gpu in state.gpus.values())
        settled = settled and self._ever_seen <= state.gpus.keys()
        last = self._discovered_at
        # What a journal says is there has not been seen yet.
        return last is None or (not settled and at - last >= self.rates.discover_s)

    def _vanished(self, samples: Mapping[GpuUuid, GpuSample]) -> bool:
        return any(gpu.healthy and gpu.uuid not in samples for gpu in self._state().gpus.values())

    def _interval_s(self) -> float:
        state = self._state()
        if any(gpu.releasing for gpu in state.gpus.values()):
            return self.rates.releasing_s
        return self.rates.workloads_s if state.workloads else self.rates.empty_s


def _gpu(info: GpuInfo, known: Gpu | None, told: str | None, forgiven: Collection[GpuUuid]) -> Gpu:
    """Out of service stays out of service until somebody says otherwise, or it has been away."""
    why = None if told is None else said(told)
    if known is None:
        known = Gpu(info.uuid, info.index, info.name, info.memory_total_bytes)
    elif why is None and not known.healthy and info.uuid not in forgiven and known.unhealthy_reason not in _GONE:
        why = known.unhealthy_reason or said("it was out of service before")
    return replace(
        known,
        index=info.index,
        name=info.name,
        memory_total_bytes=info.memory_total_bytes,
        healthy=why is None,
        unhealthy_reason=why,
        parent=info.parent,
        numa_node=info.numa_node,
        links=info.links,
    )


def _log_health(known: Mapping[GpuUuid, Gpu], told: GpusDiscovered) -> None:
    for gpu in told.gpus:
        before = known.get(gpu.uuid)
        if not gpu.healthy and (before is None or before.unhealthy_reason != gpu.unhealthy_reason):
            log.error("%s (%s) is out of service: %s", gpu.label, gpu.uuid, _told(gpu))
        elif gpu.healthy and before is not None and not before.healthy:
            log.info("%s (%s) is back in service", gpu.label, gpu.uuid)
    for uuid in known.keys() - {gpu.uuid for gpu in told.gpus}:
        if known[uuid].healthy:
            gone = replace(known[uuid], unhealthy_reason=Why(told.why_gone(uuid)))
            log.error("%s (%s) is out of service: %s", gone.label, uuid, _told(gone))


def _told(gpu: Gpu) -> str:
    return "" if gpu.unhealthy_reason is None else sentence(gpu.unhealthy_reason, Names(lambda _: gpu.label))
