"""What the figures come to, in sentences for whoever pays for the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.report.results import duration

if TYPE_CHECKING:
    from nls_scheduler.what_if.report.results import Results

AT_ONCE_AIM: Final = 0.999
SAVED_AIM: Final = 0.65
"""What this project wants of itself: see docs/simulate.md."""
_OURS: Final = ("nls-on-demand", "nls")


def conclusions(results: Results) -> list[str]:
    """Three or four, the most important first."""
    sentences = []
    if not results.figures:
        return ["Nothing had been played yet."]
    ours = next((name for name in _OURS if name in results.figures), None)
    if ours is None:
        return [_of_open(results)]
    if (saved := results.saved(ours)) is not None:
        needed, whole = results.needed[ours], results.needed["whole"]
        sentences.append(
            f"{needed} GPUs under {TITLES[ours]} serve these notebooks as well as {whole} do with a whole GPU each: "
            f"{100 * saved:.0f} % fewer{_gap(saved, SAVED_AIM)}."
        )
        if saved < SAVED_AIM and "oracle" in results.needed:
            sentences.append(
                f"{results.needed['oracle']} would do for who knows the future; not knowing it, a GPU is kept "
                "for the requests promised on it, whoever computes, and leaving it for another takes a moment."
            )
    sentences.append(_at_once(results, ours))
    if (why := _why_late(results, ours)) is not None:
        sentences.append(why)
    sentences.append(_of_open(results))
    waits = results.figures[ours].waits
    p99 = "did not wait" if (p99_s := waits.percentile_s(0.99)) <= 0 else f"waited {duration(p99_s)} or less"
    moves, slowed = results.figures[ours].moves, results.figures[ours].slowed_part
    sentences.append(
        f"99 % of the cells {p99}; GPU processes moved {moves} times, with what they held; sharing computing time made "
        f"cells {100 * slowed:.0f} % longer."
    )
    return sentences


def _at_once(results: Results, ours: str) -> str:
    share = results.figures[ours].share_at_once
    others = {name: f.share_at_once for name, f in results.figures.items() if name in ("whole", "replicas")}
    beside = " and ".join(f"{100 * part:.1f} % under “{TITLES[name]}”" for name, part in others.items())
    best = "" if results.best is None else f"; {100 * results.best:.2f} % would be possible for who knows the future"
    return (
        f"On {results.node} {100 * share:.2f} % of the cells had their GPU within a second under {TITLES[ours]}"
        f"{_gap(share, AT_ONCE_AIM)}" + (f", {beside}" if beside else "") + best + "."
    )


def _why_late(results: Results, ours: str) -> str | None:
    """What those cells waited for that had no Gpu within a second; `None`: there are too few to miss what we want."""
    figures, costs = results.figures[ours], results.costs
    if figures.share_at_once >= AT_ONCE_AIM:
        return None
    longest = duration(figures.waits.percentile_s(1.0))
    if ours == "nls":
        return (
            f"{figures.late} cells were late, the longest by {longest}: every request that fits was promised to others."
        )
    back_s = 2 * costs.order_s + costs.stop_s + costs.release_s + costs.start_s(0, standing_by=True)
    return (
        f"{figures.late} cells were late, the longest by {longest}: not all requests fit at the same time, and some "
        f"notebooks are in host memory. To be back takes {back_s:.2g} s, and a second more for each "
        f"{costs.restore_bytes_per_s / 1e9:g} GB that they hold; where all others compute, until one of them ends."
    )


def _gap(value: float, aim: float) -> str:
    """By how much what this project wants of itself is missed, if it is."""
    return "" if value >= aim else f" ({100 * (aim - value):.2g} points below the {100 * aim:g} % that we want)"


def _of_open(results: Results) -> str:
    name = next((name for name in _OURS if name in results.figures), next(iter(results.figures)))
    figures = results.figures[name]
    saved_part = 1 - figures.reserved_s / figures.open_s if figures.open_s else 0.0
    used_part = figures.used_s / figures.open_s if figures.open_s else 0.0
    return (
        f"A whole GPU for each would reserve {figures.open_s / 3600:.0f} GPU-hours, of which cells and commands "
        f"compute {figures.used_s / 3600:.0f}: {100 * used_part:.0f} %. Under {TITLES[name]} "
        f"{figures.reserved_s / 3600:.0f} are reserved: {100 * saved_part:.0f} % saved."
    )
