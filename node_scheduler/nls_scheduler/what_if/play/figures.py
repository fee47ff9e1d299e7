"""What came of a play: counts, waits in a histogram of bounded size, and a picture of the Gpus in bins of time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil, log
from typing import Final

AT_ONCE_S: Final = 1.0
BINS: Final = 360
MOST_PAIRS: Final = 10_000
_RATIO: Final = log(1.01)


class Waits:
    """Seconds that cells waited. Counts within `AT_ONCE_S` are exact, percentiles to one percent, above."""

    def __init__(self) -> None:
        self.count = 0
        self.at_once = 0
        self.none = 0
        self.sum_s = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, seconds: float, *, served: bool = True) -> None:
        """One cell; one that was not `served` had nothing at once, however soon that was clear."""
        self.count += 1
        self.sum_s += seconds
        self.none += served and seconds <= 0
        self.at_once += served and seconds <= AT_ONCE_S
        self._buckets[0 if seconds < 1e-3 else ceil(log(seconds / 1e-3) / _RATIO)] += 1

    def percentile_s(self, part: float) -> float:
        """So many seconds or fewer waited `part` (0 to 1) of all; 0 if there are none."""
        left = part * self.count
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 1e-9:
                return 0.0 if bucket == 0 else float(1e-3 * 1.01**bucket)
        return 0.0


@dataclass
class Figures:
    """Of one policy on one node.

    Attributes:
        waits: of cells, each once, when it is over: from when their user ran them, or their notebook's cell before had
            ended, until they computed on a Gpu with all their state; and again after they were broken off.
        command_waits: of commands, from their submission.
        never_ran: cells and commands that had no result before their session, or the play, ended, whatever they waited
            for; they count as waits too, from their recorded time until that end, and never as at once.
        out_of_memory: cells and commands that failed because their Gpu had too little memory for them.
        lost: how often a session lost what it held on its Gpu, by whatever the policy does.
        broken_off: cells that were stopped while they ran, and started again.
        again_s: seconds of computing that were done again.
        used_s: seconds that cells and commands computed, as on a Gpu of their own, once each.
        slowed_s: how much longer they took because they shared a Gpu's computing time.
        reserved_s: Gpu-seconds that nobody else could have, by the policy's own measure.
        open_s: seconds that sessions and commands were there, in line or not.
        waiting_s: those of them in which they had no place, or had asked for a Gpu and not got it.
        whole_gpu_s: what a whole Gpu for each would have reserved to serve them as long as they were served: the
            seconds in which they waited for nothing, of each at most as many as it was recorded for.
        moves: how often a GPU process went to another Gpu, or came back to one.
        moved_bytes: what these brought with them.
        whom: seconds of waiting, by who waited and for whom.
        busy_s: seconds in which something computed, by Gpu and bin of time.
        moved_at: moves by bin of time.
    """

    begin_s: float
    length_s: float
    gpus: int
    waits: Waits = field(default_factory=Waits)
    command_waits: Waits = field(default_factory=Waits)
    never_ran: int = 0
    out_of_memory: int = 0
    lost: int = 0
    broken_off: int = 0
    again_s: float = 0.0
    used_s: float = 0.0
    slowed_s: float = 0.0
    reserved_s: float = 0.0
    open_s: float = 0.0
    waiting_s: float = 0.0
    whole_gpu_s: float = 0.0
    moves: int = 0
    moved_bytes: int = 0
    whom: dict[tuple[str, str], float] = field(default_factory=dict)
    busy_s: list[list[float]] = field(default_factory=list)
    moved_at: list[int] = field(default_factory=lambda: [0] * BINS)
    ended_at: float = 0.0
    whole: bool = True

    def __post_init__(self) -> None:
        """A row of bins for each Gpu."""
        self.busy_s = self.busy_s or [[0.0] * BINS for _ in range(self.gpus)]

    @property
    def bin_s(self) -> float:
        """How long a bin of time is."""
        return max(1e-9, self.length_s / BINS)

    @property
    def played_part(self) -> float:
        """Which part of the workload's time was played: below 1 where somebody stopped it."""
        return 1.0 if self.whole else min(1.0, max(0.0, self.ended_at - self.begin_s) / max(self.length_s, 1e-9))

    @property
    def saved_s(self) -> float:
        """Gpu-seconds that a whole Gpu for each would have reserved for the same service, and this policy did not."""
        return self.whole_gpu_s - self.reserved_s

    @property
    def saved_part(self) -> float:
        """That as a part of what a whole Gpu for each would have reserved."""
        return self.saved_s / self.whole_gpu_s if self.whole_gpu_s else 0.0

    @property
    def late(self) -> int:
        """Cells that had no Gpu within a second, or too little memory on it."""
        return self.waits.count - self.waits.at_once

    @property
    def share_at_once(self) -> float:
        """Which part of the cells had a Gpu within a second, and all the memory that they took."""
        return self.waits.at_once / self.waits.count if self.waits.count else 1.0

    @property
    def slowed_part(self) -> float:
        """How much longer cells and commands took because they shared computing time, as a part of what they took."""
        return self.slowed_s / self.used_s if self.used_s else 0.0

    def busy(self, gpu: int, begin_s: float, end_s: float) -> None:
        """Something computed on that Gpu; what is after the workload's own end is not drawn."""
        first = (begin_s - self.begin_s) / self.bin_s
        last = min((end_s - self.begin_s) / self.bin_s, BINS)
        number = int(first)
        while number < last and number < BINS:
            part = min(number + 1, last) - max(number, first)
            self.busy_s[gpu][number] += part * self.bin_s
            number += 1

    def moved(self, at: float, size_bytes: int) -> None:
        """A GPU process came to another Gpu, or back to one, with so many bytes."""
        self.moves += 1
        self.moved_bytes += size_bytes
        number = int((at - self.begin_s) / self.bin_s)
        if 0 <= number < BINS:
            self.moved_at[number] += 1

    def waited(self, who: str, whom: tuple[str, ...], seconds: float) -> None:
        """Somebody waited for others; beyond `MOST_PAIRS` pairs no new one is counted."""
        for other in whom:
            if (who, other) in self.whom or len(self.whom) < MOST_PAIRS:
                self.whom[who, other] = self.whom.get((who, other), 0.0) + seconds

    def summary(self) -> dict[str, float | int | bool | list[dict[str, object]]]:
        """All of it but the picture, for JSON and tables; times in seconds, hours where the name says so."""
        pairs = sorted(self.whom.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        return {
            "gpus": self.gpus,
            "whole": self.whole,
            "played_part": round(self.played_part, 4),
            "cells": self.waits.count,
            "at_once": round(self.share_at_once, 6),
            "without_any_wait": round(self.waits.none / self.waits.count, 6) if self.waits.count else 1.0,
            "wait_p50_s": round(self.waits.percentile_s(0.5), 3),
            "wait_p95_s": round(self.waits.percentile_s(0.95), 3),
            "wait_p99_s": round(self.waits.percentile_s(0.99), 3),
            "never_ran": self.never_ran,
            "out_of_memory": self.out_of_memory,
            "commands": self.command_waits.count,
            "command_wait_p50_s": round(self.command_waits.percentile_s(0.5), 3),
            "open_hours": round(self.open_s / 3600, 6),
            "waiting_hours": round(self.waiting_s / 3600, 6),
            "whole_gpu_hours": round(self.whole_gpu_s / 3600, 6),
            "reserved_gpu_hours": round(self.reserved_s / 3600, 6),
            "saved_gpu_hours": round(self.saved_s / 3600, 6),
            "used_gpu_hours": round(self.used_s / 3600, 6),
            "again_gpu_hours": round(self.again_s / 3600, 6),
            "slowed_hours": round(self.slowed_s / 3600, 6),
            "slowed_part": round(self.slowed_part, 4),
            "memory_lost": self.lost,
            "broken_off": self.broken_off,
            "moves": self.moves,
            "moved_gb": round(self.moved_bytes / 1e9, 3),
            "who_waited_for_whom": [{"who": a, "for": b, "seconds": round(s, 1)} for (a, b), s in pairs if s >= 0.05],
        }
