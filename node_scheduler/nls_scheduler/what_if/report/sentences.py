"""What the figures come to, in sentences for whoever pays for the GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nls_scheduler.units.counts import counted, times
from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.report.results import duration, hours, part_played, percent

if TYPE_CHECKING:
    from nls_scheduler.what_if.report.results import Results
    from nls_scheduler.what_if.search import Needed

AT_ONCE_AIM: Final = 0.999
SAVED_AIM: Final = 0.65
"""What this project wants of itself (docs/simulate.md). Where it is missed the sentences say why."""
_OURS: Final = ("nls-on-demand", "nls")


def conclusions(results: Results) -> list[str]:
    """Three or four, the most important first. Only what was played to its end is held against each other."""
    if not results.figures:
        return ["Nothing had been played yet."]
    whole = [name for name, figures in results.figures.items() if figures.whole]
    has_cells = results.extent.cells > 0
    sentences = [] if has_cells else ["There are no cells in it, of which it could be said how many had a GPU at once."]
    if (ours := next((name for name in _OURS if name in whole), None)) is not None and has_cells:
        sentences += [*_of_needed(results, ours), _at_once(results, ours), *_why_late(results, ours)]
    if whole:
        sentences.append(_of_hours(results, ours or whole[0]))
    if ours is not None and has_cells:
        sentences.append(_of_moves(results, ours))
    stopped = [
        f"{_quoted(name)} {part_played(figures)}" for name, figures in results.figures.items() if not figures.whole
    ]
    if stopped:
        sentences.append(f"Stopped before the end, and compared with nothing: {', '.join(stopped)} of the time.")
    return sentences


def _of_needed(results: Results, ours: str) -> list[str]:
    if (saved := results.saved(ours)) is None:
        return []
    needed, whole = results.needed[ours], results.needed["whole"]
    fewer = (
        f"{_quoted(ours)} needs {_gpus(needed)} where a whole GPU for each needs {_gpus(whole)}, so that 99 % of the "
        f"cells have theirs within a second: {100 * saved:.0f} % fewer."
    )
    sentences = [fewer]
    if saved < SAVED_AIM and "oracle" in results.needed:
        sentences.append(
            f"{_gpus(results.needed['oracle'])} would do for who knows the future; not knowing it, a GPU is kept for "
            "the requests promised on it, whoever computes, and leaving it for another takes a moment."
        )
    return sentences


def _gpus(needed: Needed) -> str:
    return f"{needed} GPU" if str(needed) == "1" else f"{needed} GPUs"


def _quoted(name: str) -> str:
    return f"“{TITLES[name]}”"


def _at_once(results: Results, ours: str) -> str:
    share = results.figures[ours].share_at_once
    others = {name: f.share_at_once for name, f in results.figures.items() if name in ("whole", "replicas") and f.whole}
    beside = " and ".join(f"{percent(part)} under {_quoted(name)}" for name, part in others.items())
    best = "" if results.best is None else f"; {percent(results.best)} would be possible for who knows the future"
    return (
        f"On {results.node} {percent(share)} of the cells had their GPU within a second under {_quoted(ours)}"
        + (f", {beside}" if beside else "")
        + best
        + "."
    )


def _why_late(results: Results, ours: str) -> list[str]:
    """What those cells waited for that had no Gpu within a second; nothing if too few to miss what we want."""
    figures, costs = results.figures[ours], results.costs
    if figures.share_at_once >= AT_ONCE_AIM:
        return []
    late = f"{counted(figures.late, 'cell')} {'was' if figures.late == 1 else 'were'} late, the longest wait was "
    late += duration(figures.waits.percentile_s(1.0))
    if figures.out_of_memory:
        late += f", and {figures.out_of_memory} had too little memory"
    behind = ""
    if figures.never_ran:
        late += f"; {figures.never_ran} never ran, as their session ended first"
        behind = "; or their notebook's own cells before took longer, beside others" if figures.slowed_s else ""
    if ours == "nls":
        return [f"{late}: every request that fits was promised to others{behind}."]
    back_s = 2 * costs.order_s + costs.stop_s + costs.release_s + costs.start_s(0, standing_by=True)
    why = (
        f"{late}: not all requests fit at the same time, and some notebooks are in host memory. To be back takes "
        f"{back_s:.2g} s, and a second more for each {costs.restore_bytes_per_s / 1e9:g} GB that they hold; where all "
        f"others compute, until one of them ends{behind}."
    )
    return [why]


def _of_moves(results: Results, ours: str) -> str:
    figures = results.figures[ours]
    p99_s = figures.waits.percentile_s(0.99)
    p99 = "did not wait" if p99_s <= 0 else f"waited {duration(p99_s)} or less"
    moved = f"GPU processes moved {times(figures.moves)}, with what they held" if figures.moves else "nobody moved"
    longer = f"sharing computing time made cells {100 * figures.slowed_part:.0f} % longer"
    return f"99 % of the cells {p99}; {moved}; {longer}."


def _of_hours(results: Results, name: str) -> str:
    figures = results.figures[name]
    used_part = figures.used_s / figures.whole_gpu_s if figures.whole_gpu_s else 0.0
    waited = f" They waited for {hours(figures.waiting_s)} besides, which is no saving." if figures.waiting_s else ""
    return (
        f"To serve these notebooks and commands as long as {_quoted(name)} did, a whole GPU for each would have "
        f"reserved GPUs for {hours(figures.whole_gpu_s)}, of which they compute {hours(figures.used_s)}: "
        f"{100 * used_part:.0f} %. Reserved were {hours(figures.reserved_s)}: "
        f"{round(100 * figures.saved_part)} % saved.{waited}"
    )
