"""What was seen at one moment after another, as sessions and cells with a begin and an end.

A cell is the time in which its notebook was seen busy; what it held is the most that was seen meanwhile, its state what
was left when it was next seen idle. A process of no notebook is a command from when it was first seen on a Gpu.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_scheduler.what_if.observing.record import Recorder

OPEN_EVERY_S: Final = 300.0
GONE_AFTER_S: Final = 60.0
"""A server that does not answer for so long has taken its notebooks with it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A notebook or a process at one moment.

    Attributes:
        busy: whether a cell runs; `None`: not known.
        memory_bytes: on all Gpus; `None`: the driver hides it.
        use: which part of the time it computed; `None`: the driver did not say.
        gpus: on how many Gpus it is.
    """

    name: str
    is_notebook: bool
    busy: bool | None
    memory_bytes: int | None
    use: float | None = None
    gpus: int = 1


@dataclass
class _Open:
    name: str
    is_notebook: bool
    begin: float
    last: float
    memory_bytes: int = 0
    gpus: int = 1
    cell: tuple[float, int] | None = None
    used: list[float] = field(default_factory=lambda: [0.0, 0.0])


class Watcher:
    """Takes what was seen, and gives facts to a recorder. Times are seconds of the wall clock."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open: dict[str, _Open] = {}
        self._told_open_at = 0.0

    def take(self, at: float, seen: Mapping[str, Seen]) -> None:
        """By a key that stays the same while it is there, as a kernel's id. What is missing has gone, after a while."""
        for key, one in seen.items():
            self._follow(at, self._open.setdefault(key, _Open(one.name, one.is_notebook, at, at)), one)
        for key in [key for key, one in self._open.items() if at - one.last > GONE_AFTER_S]:
            self._close(self._open.pop(key))
        if at - self._told_open_at >= OPEN_EVERY_S:
            self._tell_open(at)

    def end(self) -> None:
        """The observation stops: what is open is closed as it was last seen."""
        for one in self._open.values():
            self._close(one)
        self._open.clear()

    def _follow(self, at: float, one: _Open, seen: Seen) -> None:
        one.last = at
        memory = seen.memory_bytes or 0
        one.memory_bytes = max(one.memory_bytes, memory)
        one.gpus = max(one.gpus, seen.gpus)
        if seen.use is not None:
            one.used[0] += seen.use
            one.used[1] += 1
        if seen.busy:
            begin, most = one.cell or (at, 0)
            one.cell = begin, max(most, memory)
        elif one.cell is not None:
            begin, most = one.cell
            one.cell = None
            self._write_cell(self._cell(one, begin, at, most), memory)

    def _cell(self, one: _Open, begin: float, end: float, most: int) -> dict[str, Any]:
        return {"cell": self._recorder.name_of(one.name), "begin": begin, "end": end, "memory_bytes": most}

    def _write_cell(self, cell: dict[str, Any], left_bytes: int) -> None:
        if cell["end"] > cell["begin"]:
            self._recorder.write({**cell, "state_bytes": min(left_bytes, cell["memory_bytes"])})

    def _close(self, one: _Open) -> None:
        if one.cell is not None:
            begin, most = one.cell
            self._write_cell(self._cell(one, begin, one.last, most), one.memory_bytes)
        if one.last > one.begin:
            self._recorder.write(self._ended(one))

    def _ended(self, one: _Open) -> dict[str, Any]:
        kind = "session" if one.is_notebook else "command"
        used, count = one.used
        use = {} if not count else {"use": round(used / count, 3)}
        name = self._recorder.name_of(one.name)
        several = {} if one.gpus == 1 else {"gpus": one.gpus}
        return {kind: name, "begin": one.begin, "end": one.last, "memory_bytes": one.memory_bytes, **several, **use}

    def _tell_open(self, at: float) -> None:
        self._told_open_at = at
        there = [one for one in self._open.values() if one.last > one.begin]
        still_there = [self._ended(one) for one in there]
        for one in there:
            if one.cell is not None and one.last > one.cell[0]:
                begin, most = one.cell
                still_there.append({**self._cell(one, begin, one.last, most), "state_bytes": most})
        self._recorder.write({"open": still_there, "at": at})
