"""The page: what a manager reads first, then what an engineer wants to know; one file, no script, no network."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Final

from nls_scheduler.what_if.play.costs import SOURCES
from nls_scheduler.what_if.policies import TITLES
from nls_scheduler.what_if.report.pictures import BEST, OTHERS, OURS, bars, timeline
from nls_scheduler.what_if.report.results import part_played, percent
from nls_scheduler.what_if.report.sentences import conclusions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nls_scheduler.what_if.report.results import Results

_STYLE: Final = """
body { font: 15px/1.5 sans-serif; color: #263238; max-width: 980px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.7em; margin-bottom: 0; } h2 { font-size: 1.2em; margin: 1.8em 0 .4em; }
.lead { font-size: 1.1em; } .lead li { margin: .3em 0; } .quiet { color: #607d8b; }
table { border-collapse: collapse; width: 100%; font-size: .85em; } th { text-align: left; }
th, td { padding: .25em .6em .25em 0; border-bottom: 1px solid #cfd8dc; vertical-align: top; }
tr.ours td { font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.n { white-space: nowrap; } .wide table { font-size: .75em; } .wide td:last-child { white-space: normal; }
svg { width: 100%; height: auto; } .wide { overflow-x: auto; }
"""
_COLUMNS: Final = (
    ("at once", "cells that had their GPU, with all that they held, within a second"),
    ("wait p50, p95, p99", "how long cells waited: half, 95 % and 99 % of them waited no longer"),
    (
        "never ran",
        "cells whose session ended first: all are late, for want of a GPU or behind their notebook's longer cells",
    ),
    ("reserved", "GPU-hours that nobody else could have, by that policy's own measure"),
    (
        "saved",
        "which part of what a whole GPU for each would have reserved to serve them as long; waiting is no saving",
    ),
    ("waiting", "hours in which notebooks and commands had no place, or had asked for a GPU and not got it"),
    ("used", "GPU-hours that cells and commands computed, each counted once as on a GPU of its own"),
    ("longer", "by how much cells took longer because they shared computing time, see below"),
    ("again", "GPU-hours that were computed again, because the memory was lost or a cell was broken off"),
    ("broken", "cells that were stopped in the middle, and ran again"),
    ("lost", "how often a notebook lost what it held on its GPU"),
    ("no memory", "cells and commands that failed because there was too little memory for them where they were"),
    ("moves, moved", "how often a GPU process came to another GPU, or back, and with how much"),
    ("GPUs needed", "the fewest on which 99 % of the cells have theirs within a second, and how far that varies"),
)


def page(results: Results) -> str:
    """The whole document; the same results give the same bytes."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<title>What sharing would bring</title>",
        f"<style>{_STYLE}</style></head><body>",
        "<h1>What sharing would bring</h1>",
        f'<p class="quiet">{escape(results.what)}, on {escape(str(results.node))}</p>',
    ]
    if not results.whole:
        parts.append("<p><b>Stopped before its end:</b> the figures are those of what had been played.</p>")
    parts.append('<ul class="lead">')
    parts += [f"<li>{escape(sentence)}</li>" for sentence in conclusions(results)]
    parts.append("</ul>")
    for section in (_needed, _at_once, _figures, _timelines, _whom, _workload, _costs, _limits):
        parts += section(results)
    return "\n".join([*parts, "</body></html>", ""])


def _needed(results: Results) -> Iterator[str]:
    if not results.needed:
        return
    rows = []
    for name, needed in results.needed.items():
        colour = BEST if name == "oracle" else _colour(name)
        rows.append((_title(name), needed.gpus, str(needed), colour))
    rows.sort(key=lambda row: row[1])
    yield "<h2>GPUs needed, so that 99 % of the cells have theirs within a second</h2>"
    yield bars(rows, max(row[1] for row in rows), "GPUs needed by each policy")
    if results.seeds > 1:
        words = f"The middle of {results.seeds} workloads of the same kind; in brackets from the least to the most."
        yield f'<p class="quiet">{words}</p>'


def _at_once(results: Results) -> Iterator[str]:
    if not any(figures.whole for figures in results.figures.values()) or not results.extent.cells:
        return
    yield f"<h2>Cells that had their GPU within a second, on {escape(str(results.node))}</h2>"
    rows = [
        (_title(name), figures.share_at_once, percent(figures.share_at_once), _colour(name))
        for name, figures in results.figures.items()
        if figures.whole  # what was stopped had other hours of the day
    ]
    if results.best is not None:
        rows.append((_title("oracle"), results.best, percent(results.best), BEST))
    rows.sort(key=lambda row: -row[1])
    yield bars(rows, 1.0, "Part of the cells that had their GPU within a second, by policy")


def _figures(results: Results) -> Iterator[str]:
    heading, *rows = results.table()
    yield "<h2>All figures</h2>"
    yield '<div class="wide"><table><tr>' + _cells("th", heading) + "</tr>"
    for row in rows:
        yield f'<tr class="{"ours" if row[0].startswith("nls") else ""}">{_cells("td", row)}</tr>'
    yield "</table></div>"
    yield "<ul>" + "".join(f"<li><b>{escape(a)}</b>: {escape(b)}</li>" for a, b in _COLUMNS) + "</ul>"


def _timelines(results: Results) -> Iterator[str]:
    yield "<h2>The GPUs over time</h2>"
    yield '<p class="quiet">The darker, the more of the time a cell or a command computed there.</p>'
    for name, figures in results.figures.items():
        yield f"<h3>{escape(_title(name))}{'' if figures.whole else ', stopped ' + part_played(figures)}</h3>"
        yield timeline(figures)


def _whom(results: Results) -> Iterator[str]:
    pairs = [(name, pair) for name, figures in results.figures.items() for pair in _pairs(figures.summary())]
    if not pairs:
        return
    yield "<h2>Who waited for whom</h2>"
    yield "<table><tr>" + _cells("th", ["policy", "who waited", "for", "seconds in all"], numbers_from=3) + "</tr>"
    for name, pair in pairs:
        row = [name, str(pair["who"]), str(pair["for"]), str(pair["seconds"])]
        yield f"<tr>{_cells('td', row, numbers_from=3)}</tr>"
    yield "</table>"


def _pairs(summary: Mapping[str, object]) -> list[dict[str, object]]:
    pairs = summary["who_waited_for_whom"]
    return pairs[:3] if isinstance(pairs, list) else []


def _workload(results: Results) -> Iterator[str]:
    if not results.portrait:
        return
    yield "<h2>The workload, beside what others have published of theirs</h2>"
    yield "<table><tr>" + _cells("th", ["figure", "here", "published", "unit"], numbers_from=1) + "</tr>"
    for line in results.portrait:
        yield f"<tr>{_cells('td', [line.what, f'{line.own:.1f}', line.published, line.unit], numbers_from=1)}</tr>"
    yield "</table>"


def _costs(results: Results) -> Iterator[str]:
    yield "<h2>What moves were taken to cost</h2>"
    yield "<table><tr>" + _cells("th", ["value", "", "source"], numbers_from=9) + "</tr>"
    for name, value in asdict(results.costs).items():
        yield f"<tr><td>{name}</td><td class='n'>{value:g}</td><td>{escape(SOURCES[name])}</td></tr>"
    yield "</table>"
    if results.asked:
        yield f"<p>Settings that were given: {escape(', '.join(results.asked))}.</p>"


def _limits(results: Results) -> Iterator[str]:
    del results
    yield "<h2>What this does not model</h2>"
    yield (
        "<p>Of several cells that compute on one GPU at once each is taken to go at its part of the speed (gpu_part): "
        "what a driver really makes of it depends on the cells. A user runs each cell at its recorded time, or as soon "
        "as the one before has ended, and leaves at the session's end: nobody changes what they do because they wait. "
        "Processor, host memory, disks and networks are never short. Workloads of several GPUs are not played. Other "
        "projects' policies are modelled by what is published of them, on one node, and not by their code. No cost has "
        "been measured by this project on a GPU.</p>"
    )


def _cells(kind: str, row: Sequence[str], numbers_from: int = 1) -> str:
    return "".join(
        f"<{kind}{' class=' + chr(34) + 'n' + chr(34) if number >= numbers_from else ''}>{escape(value)}</{kind}>"
        for number, value in enumerate(row)
    )


def _title(name: str) -> str:
    return "Best possible, knowing the future" if name == "oracle" else TITLES[name]


def _colour(name: str) -> str:
    return OURS if name.startswith("nls") else OTHERS
