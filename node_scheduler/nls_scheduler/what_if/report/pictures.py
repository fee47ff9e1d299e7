"""Pictures of the figures, as SVG that stands in the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.counts import counted
from nls_scheduler.what_if.play.figures import BINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.what_if.play.figures import Figures

WIDTH: Final = 900
_LEFT: Final = 60
_ROW: Final = 18
_BAR: Final = 24
_NAMES: Final = 260
OURS, OTHERS, BEST = "#1565c0", "#90a4ae", "#2e7d32"


def timeline(figures: Figures, begin_day: int = 1) -> str:
    """A line for each Gpu: the darker, the more of the time something computed there; below, the moves."""
    plot, height = WIDTH - _LEFT - 10, _ROW * figures.gpus + 62
    width = plot / BINS
    parts = [_open(height, f"What each of {counted(figures.gpus, 'GPU')} computed over time")]
    for gpu, bins in enumerate(figures.busy_s):
        y = gpu * _ROW + 2
        parts.append(_text(4, y + 12, f"GPU {gpu}"))
        parts.append(f'<rect x="{_LEFT}" y="{y}" width="{plot}" height="{_ROW - 3}" fill="#eceff1"/>')
        for begin, end, level in _runs(bins, figures.bin_s):
            x, wide = _LEFT + begin * width, (end - begin) * width
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_ROW - 3}" fill="{OURS}" '
                f'fill-opacity="{level / 4:g}"/>'
            )
    top = figures.gpus * _ROW + 4
    most = max(figures.moved_at) or 1
    parts.append(_text(4, top + 14, "moves"))
    for number, moves in enumerate(figures.moved_at):
        if moves:
            high = 4 + 14 * moves / most
            x = _LEFT + number * width
            parts.append(
                f'<rect x="{x:.1f}" y="{top + 18 - high:.1f}" width="{max(width, 1.5):.1f}" height="{high:.1f}" '
                'fill="#e65100"/>'
            )
    parts += _hours(figures, plot, top + 22, begin_day)
    return "".join([*parts, "</svg>"])


def _runs(bins: Sequence[float], bin_s: float) -> list[tuple[int, int, int]]:
    """Neighbours of one shade together: begin, end, and shade from 1 to 4."""
    levels = [min(4, round(4 * busy_s / bin_s + 0.25)) for busy_s in bins]
    runs: list[tuple[int, int, int]] = []
    for number, level in enumerate(levels):
        if runs and runs[-1][2] == level:
            runs[-1] = (runs[-1][0], number + 1, level)
        else:
            runs.append((number, number + 1, level))
    return [run for run in runs if run[2]]


def _hours(figures: Figures, plot: float, y: float, begin_day: int) -> list[str]:
    """Days where there are several, else hours."""
    days = figures.length_s / 86400
    step_s = 86400.0 if days > 1.5 else max(3600.0, 3600.0 * round(figures.length_s / 3600 / 8))
    if figures.length_s < 3600:
        step_s = max(1.0, figures.length_s / 6)
    step_s *= max(1, int(figures.length_s / step_s / 14) + 1)
    parts = []
    number = 0
    while number * step_s < figures.length_s:
        at_s = number * step_s
        x = _LEFT + plot * at_s / figures.length_s
        if step_s >= 86400:
            label = f"day {begin_day + int(at_s // 86400)}"
        else:
            label = f"{at_s / 3600:g} h" if step_s >= 3600 else f"{at_s:.0f} s"
        parts.append(f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{y}" stroke="#b0bec5" stroke-dasharray="2 3"/>')
        if at_s < 0.95 * figures.length_s:
            parts.append(_text(x + 2, y + 14, label))
        number += 1
    return parts


def bars(rows: Sequence[tuple[str, float, str, str]], most: float, title: str) -> str:
    """A bar for each (name, value, its text, colour), from 0 to `most`."""
    height, plot = _BAR * len(rows) + 6, WIDTH - _NAMES - 190
    parts = [_open(height, title)]
    for number, (name, value, text, colour) in enumerate(rows):
        y = number * _BAR + 3
        wide = plot * min(1.0, value / most) if most else 0.0
        parts.append(_text(0, y + 13, name))
        parts.append(f'<rect x="{_NAMES}" y="{y}" width="{wide:.1f}" height="{_BAR - 7}" rx="2" fill="{colour}"/>')
        parts.append(_text(_NAMES + wide + 6, y + 13, text))
    return "".join([*parts, "</svg>"])


def _open(height: float, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'font-family="sans-serif"><title>{escape(title)}</title>'
    )


def _text(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="13" fill="#37474f">{escape(words)}</text>'
