"""What happened to this notebook's GPU process, as sentences with their times."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nls_scheduler.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LOG_LENGTH = 500


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
    """The notices of one notebook: all of them for `%gpu log`, and those that no cell has shown yet."""

    entries: deque[Notice] = field(default_factory=lambda: deque(maxlen=LOG_LENGTH))
    unread: list[Notice] = field(default_factory=list)

    def add(self, text: str, *, important: bool = False) -> None:
        """Remember `text`; an important one is shown by the next GPU cell."""
        notice = Notice(time.time(), text, important)
        self.entries.append(notice)
        if important:
            self.unread.append(notice)

    def take_unread(self) -> list[Notice]:
        """The notices that are to be shown now, once."""
        unread, self.unread = self.unread, []
        return unread

    def as_text(self) -> str:
        """The whole log for people."""
        if not self.entries:
            return "Nothing has happened to this notebook's GPU process yet."
        lines = (f"{time.strftime('%H:%M:%S', time.localtime(n.at))}  {n.text}" for n in self.entries)
        return "\n".join(lines)


def kept(restored: Sequence[str], missing: Sequence[Mapping[str, Any]], memory_bytes: int) -> str:
    """What came back: `5 variables kept (320 MiB)`, and by name what did not."""
    count = f"{len(restored)} variable{'' if len(restored) == 1 else 's'} kept ({format_bytes(memory_bytes)})"
    if not missing:
        return count
    lost = ", ".join(f"{m['name']} ({m['reason']})" for m in missing)
    return f"{count}; not kept: {lost}"


def waiting_line(view: Mapping[str, Any], waited_s: float) -> str:
    """The live line of a cell without a GPU: its place in the queue, who holds the GPU, since when."""
    if view.get("phase") == "starting":
        return f"The GPU process starts on {' and '.join(view['gpus'])} … ({waited_s:.0f} s)"
    position = view.get("position")
    place = "waiting for a GPU" if position is None else f"waiting for a GPU: {ordinal(position)} in queue"
    cause = view.get("cause")
    since = f" ({cause['name']} is there since {cause['since'][11:19]})" if cause and cause.get("since") else ""
    return f"{place}, {view['reason']}{since}; {waited_s:.0f} s so far"


def ordinal(number: int) -> str:
    """1 as `1st`, 2 as `2nd`, 11 as `11th`."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
