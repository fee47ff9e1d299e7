"""What is seen: one frame of lines from the node's status, the history and what was chosen. Pure."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from nls_scheduler.cli.live.choices import listed, selected
from nls_scheduler.cli.status import ID_SHOWN
from nls_scheduler.units.clock import local, local_time
from nls_scheduler.units.sizes import format_bytes
from nls_scheduler.views.bars import pieces
from nls_scheduler.wire.told import how_many_gpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nls_scheduler.cli.live.choices import Choices, Page
    from nls_scheduler.cli.live.glyphs import Glyphs
    from nls_scheduler.client.following import Look

KEYS_LINE: Final = "q quit  ? help  s suspend  r resume  k keep  e explain  f filter  o order"
LEAST_ROWS: Final = 10
LEAST_COLUMNS: Final = 40
_TWO_COLUMNS: Final = 120
_STYLES: Final = {"guaranteed": "green", "burst": "yellow", "unplaced": "red", "free": "dim"}
_PHASES: Final = {"running": "green", "queued": "yellow", "suspended": "cyan", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Canvas:
    """Where it is drawn: its size in characters, and those of its bars."""

    columns: int
    rows: int
    glyphs: Glyphs

    def cut(self, text: str, columns: int) -> str:
        """Exactly so wide; what does not fit loses its end."""
        if cell_len(text) <= columns:
            return set_cell_size(text, columns)
        return set_cell_size(text, max(0, columns - 1)) + self.glyphs.more[:columns]


def page_rows(canvas: Canvas) -> int:
    """How many lines of a page are seen at once."""
    return max(1, canvas.rows - 2)


def frame(look: Look, choices: Choices, canvas: Canvas) -> list[Text]:
    """Exactly `canvas.rows` lines, none wider than `canvas.columns`."""
    if canvas.rows < LEAST_ROWS or canvas.columns < LEAST_COLUMNS:
        lines = [Text(f"nls top wants {LEAST_COLUMNS}x{LEAST_ROWS} characters; q ends it")]
    elif choices.page is not None:
        lines = _page(choices.page, canvas)
    else:
        lines = _node(look, choices, canvas)
    for line in lines:
        line.truncate(canvas.columns)
    return [*lines, *(Text() for _ in range(canvas.rows - len(lines)))][: canvas.rows]


def _node(look: Look, choices: Choices, canvas: Canvas) -> list[Text]:
    head = [_title(look, canvas), *_trouble(look, canvas)]
    if look.status is None:
        return head
    gpus, foot = _gpus(look.status, canvas), _foot(choices, canvas)
    left = canvas.rows - len(head) - len(gpus) - len(foot)
    workloads = listed(look, choices)
    # What was said of the chosen one, then as many workloads as there is room for, then what happened.
    detail = _detail(look, choices, canvas) if left > 8 else []
    wanted = len(workloads) + 1
    happened = min(len(look.history) + 1, max(3, left - len(detail) - wanted)) if left > 6 else 0
    table = _workloads(look, choices, canvas, max(2, left - len(detail) - happened))
    lines = [*head, *gpus, *table, *detail]
    rest = max(0, canvas.rows - len(lines) - len(foot))
    return [*lines, *_history(look, canvas, rest), *foot]


def _title(look: Look, canvas: Canvas) -> Text:
    if look.status is None:
        return Text("nls top", style="reverse")
    workloads = look.status["workloads"]
    waiting = sum(w["position"] is not None for w in workloads)
    parts = ["nls top", _count(look.status["gpus"], "GPU") + (" (simulated)" if look.status["simulated"] else "")]
    parts += [_count(workloads, "workload"), f"{waiting} in line"]
    return Text(canvas.cut("   ".join(parts), canvas.columns), style="reverse")


def _count(things: Sequence[object], word: str) -> str:
    return f"{len(things)} {word}" if len(things) == 1 else f"{len(things)} {word}s"


def _trouble(look: Look, canvas: Canvas) -> list[Text]:
    said = []
    if look.trouble is not None:
        said.append((f"{look.trouble} Waiting for a daemon; what is shown is how it was.", "bold red"))
    elif look.status is not None and look.status["message"]:
        said.append((look.status["message"], "yellow"))
    return [Text(line, style=style) for text, style in said for line in _wrapped(text, canvas.columns, 3)]


def _wrapped(text: str, columns: int, at_most: int) -> list[str]:
    return textwrap.wrap(text, columns, max_lines=at_most, placeholder=" ...") or [""]


# GPUs --------------------------------------------------------------------------------------------------------------


def _gpus(status: Mapping[str, Any], canvas: Canvas) -> list[Text]:
    side_by_side = 2 if canvas.columns >= _TWO_COLUMNS and len(status["gpus"]) > 1 else 1
    columns = (canvas.columns - 2 * (side_by_side - 1)) // side_by_side
    room = max(2, canvas.rows // 3) * side_by_side
    gpus = status["gpus"]
    shown = gpus if len(gpus) <= room else gpus[: room - side_by_side]
    drawn = [_gpu(gpu, status["workloads"], columns, canvas) for gpu in shown]
    lines = [Text("  ").join(drawn[at : at + side_by_side]) for at in range(0, len(drawn), side_by_side)]
    if len(shown) < len(gpus):
        lines.append(Text(f"{len(gpus) - len(shown)} more GPUs; a taller window shows them", style="dim"))
    return lines


def _gpu(gpu: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]], columns: int, canvas: Canvas) -> Text:
    label = f"GPU {gpu['index']:<3}"
    used, total = format_bytes(gpu["memory_used_bytes"]), format_bytes(gpu["memory_total_bytes"])
    busy = "" if gpu["utilisation"] is None else f"{gpu['utilisation']:.0%} busy"
    figures = f" {used:>9} of {total:<9} {busy:>9}"
    if not gpu["healthy"]:
        figures = canvas.cut(f" OUT OF SERVICE: {gpu['unhealthy_reason']}", len(figures))
    line = Text(label, style="bold")
    line.append(canvas.glyphs.left, style="dim not bold")
    for piece in pieces(gpu, workloads, max(4, columns - len(label) - len(figures) - 2)):
        line.append(getattr(canvas.glyphs, piece.kind) * piece.cells, style=f"{_STYLES[piece.kind]} not bold")
    line.append(canvas.glyphs.right, style="dim not bold")
    line.append(figures, style="not bold" if gpu["healthy"] else "red")
    line.truncate(columns, pad=True)
    return line


# Workloads ---------------------------------------------------------------------------------------------------------

_NAME_COLUMNS: Final = 16
_PHASE_COLUMNS: Final = 12
_PLACE_COLUMNS: Final = 5
_SIZES: Final = "USED/REQUEST/LIMIT"


def _workloads(look: Look, choices: Choices, canvas: Canvas, rows: int) -> list[Text]:
    workloads, chosen = listed(look, choices), selected(look, choices)
    name = _NAME_COLUMNS if canvas.columns < _TWO_COLUMNS else 2 * _NAME_COLUMNS
    heading = f"  {'WORKLOAD':<{name}} {'PHASE':<{_PHASE_COLUMNS}} {'ON':<{_PLACE_COLUMNS}} {_SIZES} WHY"
    lines = [Text(canvas.cut(heading, canvas.columns), style="bold underline")]
    if chosen is None:
        owners = (look.status or {}).get("owners")
        nobody = "Pods alone own GPUs: `nls status` says which." if owners else "Nobody asks for a GPU."
        return [*lines, Text(f"Nobody's line has {choices.filter!r} in it." if choices.filter else nobody)]
    alike = Counter(w["name"] for w in look.status["workloads"]) if look.status else Counter()
    at, room = workloads.index(chosen), rows - 1
    first = max(0, min(at - room // 2, len(workloads) - room))
    for workload in workloads[first : first + room]:
        label = workload["name"] if alike[workload["name"]] < 2 else f"{workload['id'][:ID_SHOWN]} {workload['name']}"
        lines.append(_workload(workload, label, canvas, name, chosen=workload is chosen))
    hidden = len(workloads) - len(lines) + 1
    if hidden > 0:
        lines[0] = Text(
            canvas.cut(f"{heading}   ({at + 1} of {len(workloads)})", canvas.columns), style="bold underline"
        )
    return lines


def _workload(workload: Mapping[str, Any], label: str, canvas: Canvas, name: int, *, chosen: bool) -> Text:
    cut = canvas.cut
    line = Text(canvas.glyphs.chosen + " " if chosen else "  ", style="bold" if chosen else "")
    line.append(cut(label, name) + " ")
    line.append(cut(phase_text(workload), _PHASE_COLUMNS) + " ", style=_PHASES.get(workload["phase"], ""))
    line.append(cut(place_text(workload), _PLACE_COLUMNS) + " ")
    line.append(cut(sizes_text(workload), len(_SIZES)) + " ")
    line.append(cut(workload["reason"], max(1, canvas.columns - cell_len(line.plain))).rstrip(), style="dim")
    return line


def phase_text(workload: Mapping[str, Any]) -> str:
    """Its phase in a few letters, with its place in the line or that a cell runs."""
    if workload["position"] is not None:
        return f"{workload['position']}. in line"
    if workload["executing"] and workload["kind"] == "notebook":
        return f"{workload['phase']} cell"
    return f"{workload['phase']} kept" if workload["keep_until"] else str(workload["phase"])


def place_text(workload: Mapping[str, Any]) -> str:
    """`GPU 0`; of several their numbers; `-`: it is on none."""
    gpus = workload["gpus"]
    return ",".join(gpu.removeprefix("GPU ") for gpu in gpus) if len(gpus) > 1 else "".join(gpus) or "-"


def sizes_text(workload: Mapping[str, Any]) -> str:
    """Used, requested and limit on all of its Gpus, in the unit of the limit: `6.2 / 8 / 16 GiB`."""
    gpus = how_many_gpus(workload)
    limit_bytes = gpus * workload["limit_bytes"]
    number, _, unit = format_bytes(limit_bytes).partition(" ")
    factor = limit_bytes / float(number) if float(number) else 1
    figures = (workload["memory_used_bytes"], gpus * workload["request_bytes"])
    return " / ".join([*(f"{size / factor:.1f}".removesuffix(".0") for size in figures), f"{number} {unit}"])


def _detail(look: Look, choices: Choices, canvas: Canvas) -> list[Text]:
    """What does not fit into the line of the chosen one."""
    chosen = selected(look, choices)
    if chosen is None or look.status is None:
        return []
    labels = {gpu["uuid"]: f"GPU {gpu['index']}" for gpu in look.status["gpus"]}
    facts = [f"Home: {', '.join(labels.get(uuid, uuid) for uuid in chosen['home']) or 'nowhere yet'}"]
    facts += [f"queue {chosen['queue']}"] if chosen["queue"] not in (None, "default") else []
    facts += [f"kept until {local_time(chosen['keep_until'])}"] if chosen["keep_until"] else []
    facts += [f"{format_bytes(chosen['saved_bytes'])} saved"] if chosen["saved_bytes"] else []
    text = f"{chosen['name']} ({chosen['id'][:ID_SHOWN]}): {chosen['reason']}. {'; '.join(facts)}."
    return [Text(line, style="italic") for line in _wrapped(text, canvas.columns, 3)]


# What happened, and the last line ------------------------------------------------------------------------------------


def _history(look: Look, canvas: Canvas, rows: int) -> list[Text]:
    """The newest at the bottom."""
    if rows < 2:
        return [Text() for _ in range(rows)]
    entries = look.history[-(rows - 1) :]
    lines = [Text(canvas.cut("WHAT HAPPENED", canvas.columns), style="bold underline")]
    lines += [Text(canvas.cut(entry_text(entry), canvas.columns).rstrip()) for entry in entries]
    return [*lines, *(Text() for _ in range(rows - len(lines)))]


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry of the history in one line, with the time of this place's clocks."""
    time = local(entry["time"]).strftime("%H:%M:%S")
    places = " -> ".join(place for place in (entry["from"], entry["to"]) if place)
    event = " ".join(part for part in (entry["event"].replace("_", " "), places) if part)
    details = [] if entry["seconds"] is None else [f"{entry['seconds']:.1f} s"]
    details += [] if not entry["bytes"] else [f"{format_bytes(entry['bytes'])} kept"]
    details += [f"without {', '.join(entry['missing'])}"] if entry["missing"] else []
    details += [f"without cells {', '.join(entry['lost_cells'])}"] if entry["lost_cells"] else []
    text = f"{time} {entry['name']} {event}" + (f": {entry['reason']}" if entry["reason"] else "")
    return f"{text} ({', '.join(details)})" if details else text


def _foot(choices: Choices, canvas: Canvas) -> list[Text]:
    """The keys; what became of the last one is told in full."""
    if choices.prompt is not None:
        asks = {"filter": "show lines with: ", "keep": "keep it on its GPU for (90s, 30min, 2h; 0: no longer): "}
        return [Text(asks[choices.prompt.kind] + choices.prompt.text + "_", style="bold")]
    if choices.message:
        return [Text(line, style="bold") for line in _wrapped(choices.message, canvas.columns, 4)]
    filtered = f"   only {choices.filter!r}" if choices.filter else ""
    return [Text(canvas.cut(KEYS_LINE + filtered, canvas.columns), style="reverse")]


def _page(page: Page, canvas: Canvas) -> list[Text]:
    rows, text = page_rows(canvas), page.lines(canvas.columns)
    seen = text[page.top : page.top + rows]
    lines = [Text(canvas.cut(page.title, canvas.columns), style="reverse")]
    lines += [Text(line) for line in seen]
    lines += [Text() for _ in range(rows - len(seen))]
    where = f"   lines {page.top + 1} to {page.top + len(seen)} of {len(text)}" if len(text) > rows else ""
    return [*lines, Text(canvas.cut(f"q back  up, down scroll{where}", canvas.columns), style="reverse")]
