"""What there is to report, from which every form of it is made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import floor
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.what_if.policies import TITLES

if TYPE_CHECKING:
    from nls_scheduler.what_if.generator.portrait import Line
    from nls_scheduler.what_if.play.costs import Costs
    from nls_scheduler.what_if.play.figures import Figures
    from nls_scheduler.what_if.scenario import Node
    from nls_scheduler.what_if.search import Needed
    from nls_scheduler.what_if.workload_file.rows import Extent


@dataclass
class Results:
    """Of one scenario.

    Attributes:
        what: the workload in words, and how it was made.
        asked: settings that were given, as NAME=VALUE.
        figures: by policy's name, in the order that was asked for.
        best: the oracle's part at once on this node; `None` where it was not looked for.
        needed: by policy's name, the oracle's under `oracle`.
        whole: false where it was stopped before its end.
    """

    what: str
    node: Node
    extent: Extent
    costs: Costs
    asked: tuple[str, ...]
    portrait: list[Line]
    figures: dict[str, Figures] = field(default_factory=dict)
    best: float | None = None
    needed: dict[str, Needed] = field(default_factory=dict)
    seeds: int = 0
    whole: bool = True

    def as_json(self) -> dict[str, Any]:
        """All figures but the pictures."""
        return {
            "version": 1,
            "workload": {"what": self.what, **asdict(self.extent)},
            "node": {"gpus": self.node.gpus, "gpu_bytes": self.node.gpu_bytes},
            "whole": self.whole,
            "costs": asdict(self.costs),
            "settings": list(self.asked),
            "policies": {
                name: {"title": TITLES[name], **figures.summary(), **self._saved(name)}
                for name, figures in self.figures.items()
            },
            "best_possible_at_once": self.best,
            "gpus_needed": {name: needed.as_json() for name, needed in self.needed.items()},
            "generator": [asdict(line) for line in self.portrait],
        }

    def _saved(self, name: str) -> dict[str, float]:
        saved = self.saved(name)
        return {} if saved is None else {"gpus_saved": round(saved, 4)}

    def saved(self, name: str) -> float | None:
        """Which part of the Gpus that a whole one each needs this policy does without; `None`: not known."""
        whole, own = self.needed.get("whole"), self.needed.get(name)
        if whole is None or own is None or not (whole.is_known and own.is_known):
            return None
        return 1 - own.gpus / whole.gpus

    def table(self) -> list[list[str]]:
        """One row for each policy, with a heading; for the terminal and the page."""
        rows = [
            [
                "policy", "at once", "wait p50", "p95", "p99", "never ran", "reserved", "saved", "waiting", "used",
                "longer", "again",
                "broken", "lost", "no memory", "moves", "moved", "GPUs needed",
            ]
        ]  # fmt: skip
        rows += [self._row(name, figures) for name, figures in self.figures.items()]
        if self.best is not None:
            needed = str(self.needed["oracle"]) if "oracle" in self.needed else ""
            rows.append(["best possible", percent(self.best), *[""] * 15, needed])
        return rows

    def _row(self, name: str, figures: Figures) -> list[str]:
        waits = figures.waits
        return [
            name if figures.whole else f"{name} ({part_played(figures)})",
            percent(figures.share_at_once) if waits.count else "",
            *(duration(waits.percentile_s(part)) if waits.count else "" for part in (0.5, 0.95, 0.99)),
            str(figures.never_ran),
            hours(figures.reserved_s),
            f"{round(100 * figures.saved_part)} %",
            hours(figures.waiting_s),
            hours(figures.used_s),
            f"{100 * figures.slowed_part:.0f} %",
            hours(figures.again_s),
            str(figures.broken_off),
            str(figures.lost),
            str(figures.out_of_memory),
            str(figures.moves),
            f"{figures.moved_bytes / 1e9:.0f} GB",
            str(self.needed.get(name, "")),
        ]


_MANY_S: Final = 10 * 3600.0


def percent(part: float) -> str:
    """Never more than it is: `100.00 %` are all."""
    return f"{floor(1e4 * part + 1e-6) / 100:.2f} %"


def part_played(figures: Figures) -> str:
    """How far it came before somebody stopped it."""
    return f"after {100 * figures.played_part:.0f} %"


def hours(seconds: float) -> str:
    """`0`, `57.6 s`, `17 min`, `3.1 h`, `310 h`."""
    return f"{seconds / 3600:.0f} h" if seconds >= _MANY_S else duration(seconds)


def duration(seconds: float) -> str:
    """`0`, `1.2 s`, `5 min`, `3.1 h`."""
    if seconds <= 0:
        return "0"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
