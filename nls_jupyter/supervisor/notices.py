"""What happened to this notebook's GPU process, as sentences with their times."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state import WAITS
from nls_jupyter.supervisor import completed
from nls_scheduler.core.model.reasons import Reason
from nls_scheduler.units.clock import wall_s
from nls_scheduler.units.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nls_jupyter.saved_state import Manifest
    from nls_jupyter.supervisor.kept_state import Restored

LOG_LENGTH = 500
# Of those of whom the same is to be said, so many are named.
_MOST_NAMED = 6
# Reasons to be on no GPU for a while: its user's own, and idleness. Others say who needs what, and move it elsewhere.
_AWAY = frozenset({Reason.SAID.value, Reason.IDLE.value, Reason.CORDONED.value})
_VARIABLE, _RESULT, _LAST_RESULT = range(3)


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence for the user.

    Attributes:
        at: seconds since the epoch.
        text: one line.
        important: also shown on stderr of the next GPU cell.
    """

    at: float
    text: str
    important: bool


@dataclass(slots=True)
class NoticeLog:
    """The notices of one notebook: all of them for `%gpu log`, and those that no cell has shown yet.

    `as_text` may be called in any thread.
    """

    entries: deque[Notice] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))
    unread: list[Notice] = field(default_factory=list)

    def add(self, text: str, *, important: bool = False) -> None:
        """Remember `text`; an important one is shown by the next GPU cell."""
        notice = Notice(wall_s(), text, important)
        self.entries.append(notice)
        if important:
            self.unread.append(notice)

    def add_once(self, text: str) -> None:
        """Remember an important `text`, unless that was done already."""
        if all(notice.text != text for notice in self.entries):
            self.add(text, important=True)

    def take_unread(self) -> list[Notice]:
        """The notices that are to be shown now, once."""
        unread, self.unread = self.unread, []
        return unread

    def read(self, text: str) -> None:
        """No cell needs to show `text` any more; it stays in the log."""
        self.unread = [notice for notice in self.unread if notice.text != text]

    def put_back(self, unread: Sequence[Notice]) -> None:
        """They could not be shown after all."""
        self.unread[:0] = unread

    def as_text(self) -> str:
        """The whole log for people."""
        entries = list(self.entries)
        if not entries:
            return "Nothing has happened to this notebook's GPU process yet."
        lines = (f"{time.strftime('%H:%M:%S', time.localtime(n.at))}  {n.text}" for n in entries)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Departure:
    """The last way off a Gpu, for the notice when the GPU process is back.

    Attributes:
        why: the reason as the user reads it.
        from_gpu: the Gpu it left, by its label.
        began: when, by monotonic_s().
        died: it was nobody's order.
        kind: which reason of the daemon's it is, if that is told.
    """

    why: str
    from_gpu: str
    began: float
    died: bool = False
    kind: str = ""


def returned(left: Departure | None, gpu: str, restored: Restored, now: float) -> str:
    """One sentence for a GPU process that is ready on `gpu`: why it comes from where, and with what.

    Args:
        left: how it left before; `None` when it did not.
        gpu: where it is, by label.
        restored: what came back.
        now: by monotonic_s().
    """
    text = _returned(left, gpu, restored, now)
    lost = completed.gone(restored.gone, restored.cell)
    return f"{text} {lost}" if lost else text


def _returned(left: Departure | None, gpu: str, restored: Restored, now: float) -> str:
    what = kept(restored)
    if left is None:
        with_state = f": {what}" if restored.names or restored.missing or restored.not_back else ""
        return f"GPU process ready on {gpu} after {restored.seconds:.1f} s{with_state}."
    took = f"{now - left.began:.1f} s"
    if left.died and restored.cell is None:
        text = f"{left.why}; back on {gpu} after {took} without variables, as none were saved."
    elif left.died:
        text = f"{left.why}; back on {gpu} with the variables of cell {restored.cell} after {took}: {what}."
    elif left.from_gpu == gpu or left.kind in _AWAY:
        before = "" if left.from_gpu == gpu else f" (before: {left.from_gpu})"
        text = f"back on {gpu}{before} after {took}: {what}. It was away: {left.why}."
    else:
        text = f"moved from {left.from_gpu} to {gpu} because {left.why} ({took}): {what}."
    return text[0].upper() + text[1:]


def kept(restored: Restored) -> str:
    """What came back: `5 variables kept (320 MiB)`, and by name what did not, or came back otherwise."""
    text = f"{count(len(restored.names), 'variable')} kept ({format_bytes(restored.memory_bytes)})"
    if restored.missing:
        text += f"; not kept: {by_clause(restored.missing, 'reason')}"
    for what, waits in (
        ("saved, but could not be restored, and tried again", False),
        ("saved, but not restored", True),
    ):
        if names := [name for name in restored.not_back if (name["reason"] == WAITS) is waits]:
            text += f"; {what}: {by_clause(names, 'reason')}"
    return text + changed(restored.changed)


def came_later(report: Mapping[str, Any]) -> str | None:
    """One sentence for what was tried again and is back now; `None` when nothing is."""
    if not report["restored"]:
        return None
    verb = "is" if len(report["restored"]) == 1 else "are"
    return f"{', '.join(report['restored'])} could not be restored before and {verb} back{changed(report['changed'])}."


def changed(names: Sequence[Mapping[str, Any]]) -> str:
    """A clause for what came back otherwise than it was; empty for nothing."""
    return f"; changed: {by_clause(names, 'change')}" if names else ""


def without_room(manifest: Manifest) -> str | None:
    """What could be saved if there were more room, by name; `None` for nothing."""
    lost = [{"name": n.name, "type_name": n.type_name, "reason": n.reason} for n in manifest.without_room]
    return by_clause(lost, "reason") or None


def by_clause(names: Sequence[Mapping[str, Any]], field: str) -> str:
    """What holds of several names is said once, and of many some are named: `%gpu vars` has all.

    Args:
        names: as in `Restored.missing`.
        field: which of theirs is the clause.
    """
    members: dict[tuple[str, str | None], list[str]] = {}
    for name in _without_results(names, field):
        members.setdefault((name[field], name.get("cell")), []).append(name["name"])
    return ", ".join(f"{listed(found)} ({clause}{_made(cell)})" for (clause, cell), found in members.items())


def _made(cell: str | None) -> str:
    return "" if cell is None else f"; made in cell {cell}"


def _without_results(names: Sequence[Mapping[str, Any]], field: str) -> Iterator[Mapping[str, Any]]:
    """Without IPython's further names of a result: `_` where there is `Out[3]`, and that where a variable tells it."""
    least: dict[tuple[str, str], int] = {}
    for name in names:
        kind = name["type_name"], name[field]
        least[kind] = min(_rank(name["name"]), least.get(kind, _LAST_RESULT))
    return (name for name in names if _rank(name["name"]) == least[name["type_name"], name[field]])


def _rank(name: str) -> int:
    if not name.strip("_"):
        return _LAST_RESULT
    return _RESULT if name.startswith("Out[") else _VARIABLE


def listed(names: Sequence[str]) -> str:
    """`a, b, c`, or the first of many and how many more."""
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _MOST_NAMED - 1])} and {len(names) - _MOST_NAMED + 1} more"


def count(number: int, thing: str) -> str:
    """`1 variable`, `2 variables`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def waiting_line(view: Mapping[str, Any], waited_s: float, *, connected: bool = True) -> str:
    """The live line of a cell without a GPU: its place in the queue, who holds the GPU, since when."""
    if not connected:
        return f"the node's daemon does not answer; the cell goes on when it is back ({waited_s:.0f} s so far)"
    if view["phase"] == "starting":
        return f"the GPU process starts on {' and '.join(view['gpus'])} … ({waited_s:.0f} s)"
    position, cause = view["position"], view["cause"]
    place = "waiting for a GPU" if position is None else f"waiting for a GPU: {ordinal(position)} in queue"
    since = f" ({cause['name']} is there since {clock_time(cause['since'])})" if cause and cause.get("since") else ""
    return f"{place}, {view['reason']}{since}; {waited_s:.0f} s so far"


def standing_line(at: float, for_whom: str | None, gpu: str, stood_s: float) -> str:
    """The live line of a cell that stands still since `at`, in seconds since the epoch, for `stood_s` seconds."""
    moment = datetime.fromtimestamp(at).astimezone().isoformat()
    whom = "" if for_whom is None else f", for {for_whom}"
    return f"the cell stands still since {clock_time(moment)}{whom}; it goes on when {gpu} has room ({stood_s:.0f} s)"


def clock_time(moment: str) -> str:
    """A time in ISO 8601 as this place's clocks show it; with its date when that is another day."""
    local = datetime.fromisoformat(moment).astimezone()
    another_day = local.date() != datetime.now().astimezone().date()
    return local.strftime("%d %b %H:%M:%S" if another_day else "%H:%M:%S")


def ordinal(number: int) -> str:
    """1 as `1st`, 2 as `2nd`, 11 as `11th`."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
