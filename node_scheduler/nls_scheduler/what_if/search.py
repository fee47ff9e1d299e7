"""How many Gpus each policy needs so that 99 % of the cells have theirs within a second."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from statistics import median_high
from typing import TYPE_CHECKING, Final

from nls_scheduler.what_if.plays import Crew, Play
from nls_scheduler.what_if.policies.oracle import bound, places_of
from nls_scheduler.what_if.workload_file.rows import EmptyWorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.what_if.play.figures import Figures
    from nls_scheduler.what_if.scenario import Scenario
    from nls_scheduler.what_if.workload_file.rows import Extent

WANTED: Final = 0.99
_BEARABLE: Final = 1 - WANTED


@dataclass(frozen=True, slots=True)
class Needed:
    """For each seed the fewest Gpus; one more than were tried if even a Gpu for each notebook is too few."""

    policy: str
    by_seed: tuple[int, ...]
    most_tried: int

    @property
    def gpus(self) -> int:
        """The middle one; of two the larger."""
        return median_high(self.by_seed)

    @property
    def is_known(self) -> bool:
        """Whether so many were enough."""
        return self.gpus <= self.most_tried

    def as_json(self) -> dict[str, object]:
        """A number that was not enough is none: `None` says that it takes more than were tried."""
        known = [gpus if gpus <= self.most_tried else None for gpus in self.by_seed]
        gpus = self.gpus if self.is_known else None
        return {"gpus": gpus, "by_seed": known, "most_tried": self.most_tried, "wanted": WANTED}

    def __str__(self) -> str:
        """`7`, or `7 (6 to 8)` where the seeds differ; `more than 18` where none was enough."""
        middle = str(self.gpus) if self.is_known else f"more than {self.most_tried}"
        least, most = min(self.by_seed), max(self.by_seed)
        upper = str(most) if most <= self.most_tried else f"more than {self.most_tried}"
        return middle if least == most else f"{middle} ({least} to {upper})"


def is_enough(figures: Figures) -> bool:
    """Whether 99 % of all cells had their Gpu within a second, and all the memory that they took."""
    return figures.late <= _BEARABLE * figures.waits.count


def extents_by_seed(scenario: Scenario, first: Extent, seeds: int) -> dict[int, Extent]:
    """Of so many workloads, the `first` known already, without those that are empty. Raises WorkloadFileError."""
    extents = {0: first}
    for seed in range(1, seeds):
        with suppress(EmptyWorkloadError):
            extents[seed] = scenario.extent(seed)
    return extents


def search(scenario: Scenario, policies: Sequence[str], extents: Mapping[int, Extent], crew: Crew) -> list[Needed]:
    """One more at a time, for all policies and seeds side by side. What Ctrl-C leaves undecided is left out.

    Not by halving: with one more Gpu everybody is somewhere else, and by chance that can be worse. Too few are cheap to
    try, as a play ends when it is hopeless.
    """
    most = max(extent.most_at_once for extent in extents.values())
    asked = dict.fromkeys(((policy, seed) for policy in policies for seed in extents), 1)
    found: dict[tuple[str, int], int] = {}
    told = crew.progress
    while asked and not crew.stopped:
        done = min(asked.values()) - 1
        crew.progress = _part_of(told, done, most)
        plays = {Play(scenario.on(gpus), *key, extents[key[1]], _BEARABLE): key for key, gpus in asked.items()}
        for play, figures in crew.all_of(list(plays)):
            key = plays[play]
            if not figures.whole:
                continue
            if is_enough(figures) or asked[key] == most:
                found[key] = asked.pop(key) + (not is_enough(figures))
            else:
                asked[key] += 1
    return [
        Needed(policy, tuple(found[policy, seed] for seed in extents), most)
        for policy in policies
        if all((policy, seed) in found for seed in extents)
    ]


def _part_of(told: Callable[[float], None], done: int, rounds: int) -> Callable[[float], None]:
    return lambda part: told((done + part) / rounds)


def best_possible(scenario: Scenario, extent: Extent, told: Callable[[float], None]) -> float:
    """The oracle's part at once on this node."""
    places = places_of(extent.least_request_bytes, scenario.node.gpu_bytes)
    return bound(scenario.rows(told=told), places * scenario.node.gpus)


def fewest_possible(scenario: Scenario, extents: Mapping[int, Extent]) -> Needed:
    """The Gpus that the oracle would need."""
    needed = []
    most = max(extent.most_at_once for extent in extents.values())
    for seed, extent in extents.items():
        places = places_of(extent.least_request_bytes, scenario.node.gpu_bytes)
        low, high = 1, most + 1
        while low < high:  # of the bound it is true that more are never worse
            middle = (low + high) // 2
            enough = bound(scenario.rows(seed), places * middle) >= WANTED
            low, high = (low, middle) if enough else (middle + 1, high)
        needed.append(low)
    return Needed("oracle", tuple(needed), most)
