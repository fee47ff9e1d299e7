"""Has the driver itself keep requests and limits, where it can (r615 and newer, cgroup v2).

The driver limits cgroups, and on a plain server several notebooks share one. So a limit is set only for a cgroup all of
whose processes on that Gpu belong to one workload, and lifted as soon as that is no longer so. Everywhere else, and
besides, the samples show who is above its limit.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nls_scheduler.processes.cgroups import ROOT, cgroup_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from nls_scheduler.core.model.events import GpuReading
    from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
    from nls_scheduler.daemon.ports import Driver

Sizes = tuple[int, int]
_Place = tuple["GpuUuid", "Path"]
log = logging.getLogger(__name__)


class MemoryLimits:
    """What has been set, and what is to be. Called from the driver's thread only."""

    def __init__(self, driver: Driver, where: Callable[[int], Path | None] = cgroup_of) -> None:
        """`where` finds a process's cgroup."""
        self._driver = driver
        self._where = where
        self._supported: bool | None = None
        self._set: dict[_Place, Sizes] = {}
        self._refused: dict[_Place, Sizes] = {}

    def keep(self, readings: Mapping[GpuUuid, GpuReading], sizes: Mapping[WorkloadId, Sizes]) -> None:
        """Set and lift so that it is as `readings` say; `sizes`: request and limit in bytes of each workload."""
        if self._supported is None and readings:
            self._supported = self._driver.limits_supported()
            log.info("the driver %s memory limits per cgroup", "keeps" if self._supported else "does not keep")
        if not self._supported:
            return
        wanted = {place: pair for uuid, reading in readings.items() for place, pair in self._of(uuid, reading, sizes)}
        self._refused = {place: pair for place, pair in self._refused.items() if wanted.get(place) == pair}
        for place in [place for place in self._set if place not in wanted and place[0] in readings]:
            self._apply(place, None)
        for place, pair in wanted.items():
            if self._set.get(place) != pair and place not in self._refused:
                self._apply(place, pair)

    def lift_all(self) -> None:
        """Nothing stays behind when the daemon ends."""
        for place in list(self._set):
            self._apply(place, None)

    def _of(self, uuid: GpuUuid, reading: GpuReading, sizes: Mapping[WorkloadId, Sizes]) -> list[tuple[_Place, Sizes]]:
        if reading.unplaced is None:
            return []  # who is there is not known
        who: dict[Path, set[WorkloadId | None]] = {}
        processes = [(use.process, use.workload) for use in reading.placed]
        for process, workload in [*processes, *((stranger, None) for stranger in reading.unplaced)]:
            cgroup = self._where(process.pid)
            if cgroup is not None and cgroup != ROOT:
                who.setdefault(cgroup, set()).add(workload)
        alone = {cgroup: next(iter(workloads)) for cgroup, workloads in who.items() if len(workloads) == 1}
        return [((uuid, cgroup), sizes[mine]) for cgroup, mine in alone.items() if mine is not None and mine in sizes]

    def _apply(self, place: _Place, pair: Sizes | None) -> None:
        (uuid, cgroup), (request_bytes, limit_bytes) = place, pair or (0, None)
        try:
            self._driver.limit_memory(uuid, cgroup, request_bytes, limit_bytes)
        except OSError as error:
            log.warning("%s", error)
            if pair is not None:
                self._refused[place] = pair
                return
        if pair is None:
            self._set.pop(place, None)
        else:
            self._set[place] = pair
