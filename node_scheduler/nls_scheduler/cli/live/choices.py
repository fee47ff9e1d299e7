"""What somebody who looks at the node has chosen: which workload, in which order, which page. Pure."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from nls_scheduler.units.durations import parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.client.following import Look

KEEP_AT_FIRST: Final = "2h"
Workload = dict[str, Any]


class Order(StrEnum):
    """In which workloads are listed."""

    ARRIVAL = "arrival"
    NAME = "name"
    GPU = "GPU"
    MEMORY = "memory"
    WAITING = "longest wait"


_KEYS: Final[Mapping[Order, Callable[[Workload], Any]]] = {
    Order.ARRIVAL: lambda _: 0,
    Order.NAME: lambda workload: workload["name"],
    Order.GPU: lambda workload: (not workload["gpus"], workload["gpus"]),
    Order.MEMORY: lambda workload: -workload["memory_used_bytes"],
    Order.WAITING: lambda workload: -(workload["waiting_s"] or 0.0),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A line that is being typed: a filter, or for how long a workload is kept."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """A text over the whole screen; `top` is its first line that is seen."""

    title: str
    text: str
    top: int = 0

    def lines(self, columns: int) -> list[str]:
        """As they fit."""
        wrapped = (textwrap.wrap(line, columns, subsequent_indent="    ") or [""] for line in self.text.splitlines())
        return [line for lines in wrapped for line in lines]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the daemon is to be asked for. `verb`: `suspend`, `resume`, `keep` or `explain`; `quit` asks nobody."""

    verb: str
    workload: str = ""
    name: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Choices:
    """What was chosen.

    Attributes:
        selected: a workload's id; one that is not there any more stands for the first.
        filter: shows only workloads that have this in their line, whatever the case.
        message: what became of the last key.
    """

    selected: str | None = None
    order: Order = Order.ARRIVAL
    filter: str = ""
    prompt: Prompt | None = None
    page: Page | None = None
    message: str = ""


def listed(look: Look, choices: Choices) -> list[Workload]:
    """The workloads that are shown, in order."""
    there: Sequence[Workload] = () if look.status is None else look.status["workloads"]
    wanted = choices.filter.casefold()
    return sorted((w for w in there if wanted in _searched(w)), key=_KEYS[choices.order])


def _searched(workload: Workload) -> str:
    words = (workload["name"], workload["phase"], workload["kind"], *workload["gpus"], workload["queue"] or "")
    return " ".join((*words, workload["reason"])).casefold()


def selected(look: Look, choices: Choices) -> Workload | None:
    """The workload that keys act on."""
    workloads = listed(look, choices)
    return next((w for w in workloads if w["id"] == choices.selected), workloads[0] if workloads else None)


def pressed(key: str, look: Look, choices: Choices, columns: int, rows: int) -> tuple[Choices, Wish | None]:
    """What is chosen after `key`, and what it wishes. Of a page so many `rows` of `columns` are seen at once."""
    choices = replace(choices, message="")
    if choices.page is not None:
        return replace(choices, page=_turned(choices.page, key, len(choices.page.lines(columns)), rows)), None
    if choices.prompt is not None:
        return _typed(key, look, choices, choices.prompt)
    if key in ("q", "Q"):
        return choices, Wish("quit")
    if key in _STEPS or key in ("home", "end"):
        return _moved(key, look, choices), None
    if key == "o":
        orders = list(Order)
        order = orders[(orders.index(choices.order) + 1) % len(orders)]
        return replace(choices, order=order, message=f"sorted by {order}"), None
    if key in ("f", "/"):
        return replace(choices, prompt=Prompt("filter", choices.filter)), None
    if key == "escape":
        return replace(choices, filter=""), None
    if key in ("?", "h"):
        return replace(choices, page=Page("Keys", HELP)), None
    return _of_workload(key, look, choices)


_STEPS: Final = {"up": -1, "down": 1, "page up": -10, "page down": 10}
_VERBS: Final = {"s": "suspend", "r": "resume", "e": "explain", "enter": "explain"}
HELP: Final = """\
up, down    choose a workload (page up, page down, home, end: further)
e, enter    explain it: why it is where it is, what it waits for, what would help
s           suspend it: it gives its GPU to others until its next cell
r           resume it: it comes back as soon as there is room
k           keep it on its GPU for a time; 0 ends that
f, /        filter: show only lines with these letters; escape shows all
o           order: arrival, name, GPU, memory, longest wait
q           quit

A bar shows a GPU's memory: what is guaranteed to the workloads there, used or
not, what they use above that, which may be taken back at any time, what
processes use that nobody placed, and what is free.

Only your own workloads do what you say; administrators act on all.
"""


def _moved(key: str, look: Look, choices: Choices) -> Choices:
    workloads, chosen = listed(look, choices), selected(look, choices)
    if chosen is None:
        return choices
    ends = {"home": 0, "end": len(workloads) - 1}
    at = ends.get(key, workloads.index(chosen) + _STEPS.get(key, 0))
    return replace(choices, selected=workloads[max(0, min(at, len(workloads) - 1))]["id"])


def _of_workload(key: str, look: Look, choices: Choices) -> tuple[Choices, Wish | None]:
    if key not in _VERBS and key != "k":
        return choices, None
    chosen = selected(look, choices)
    if chosen is None:
        return replace(choices, message="there is no workload to act on"), None
    choices = replace(choices, selected=chosen["id"])  # the one that was seen, whatever comes meanwhile
    if key == "k":
        return replace(choices, prompt=Prompt("keep", KEEP_AT_FIRST)), None
    return choices, Wish(_VERBS[key], chosen["id"], chosen["name"])


def _turned(page: Page, key: str, lines: int, rows: int) -> Page | None:
    if key in ("q", "escape", "enter", "e", "?", "left"):
        return None
    steps = {"up": -1, "down": 1, "page up": -rows, "page down": rows, " ": rows}
    last = max(0, lines - rows)
    top = {"home": 0, "end": last}.get(key, page.top + steps.get(key, 0))
    return replace(page, top=max(0, min(top, last)))


def _typed(key: str, look: Look, choices: Choices, prompt: Prompt) -> tuple[Choices, Wish | None]:
    if key == "escape":
        return replace(choices, prompt=None), None
    if key == "enter":
        done = replace(choices, prompt=None)
        return (
            (replace(done, filter=prompt.text.strip()), None) if prompt.kind == "filter" else _kept(done, look, prompt)
        )
    text = prompt.text[:-1] if key == "backspace" else prompt.text + (key if len(key) == 1 else "")
    return replace(choices, prompt=replace(prompt, text=text)), None


def _kept(choices: Choices, look: Look, prompt: Prompt) -> tuple[Choices, Wish | None]:
    there = () if look.status is None else look.status["workloads"]
    chosen = next((w for w in there if w["id"] == choices.selected), None)
    if chosen is None:
        return replace(choices, message="that workload has ended"), None
    try:
        seconds = 0.0 if prompt.text.strip() in ("0", "off", "") else parse_duration(prompt.text)
    except ValueError as error:
        return replace(choices, message=str(error)), None
    return choices, Wish("keep", chosen["id"], chosen["name"], seconds)
