"""Whether rows that come one after another make a workload; what is remembered is who has a session open."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.sizes import format_bytes, to_bytes
from nls_scheduler.what_if.workload_file.rows import (
    Cell,
    EmptyWorkloadError,
    Extent,
    Session,
    WorkloadFileError,
    is_below,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nls_scheduler.what_if.workload_file.rows import Row


MOST_S: Final = 1e11
"""Three thousand years: seconds since 1970 are fewer, milliseconds are more."""
MOST_YEARS: Final = 10
"""From the first begin to the last end: two who take turns of half a minute for so long do it ten million times."""
_YEAR_S: Final = 365.25 * 86400


class Checker:
    """Takes each row in turn. Raises WorkloadFileError with the row's number.

    Rows are in order of their begins, and no two of them are ten years apart; cells lie within their open session and
    do not overlap; a session may begin in the moment in which another of its name ends; no limit is below its request.
    `gpu_bytes`: the Gpus' memory, beyond which nobody can hold or ask for anything; `None`: not known yet.
    """

    def __init__(self, gpu_bytes: int | None = None) -> None:
        self._gpu_bytes = gpu_bytes
        self._open: dict[str, tuple[Session, float]] = {}
        self._ends: list[tuple[float, str]] = []
        self._last_s = 0.0
        self._begin_s: float | None = None
        self._end_s = 0.0
        self._counts = {"Session": 0, "Cell": 0, "Command": 0}
        self._most = 0
        self._least_request: int | None = None

    def take(self, number: int | None, row: Row) -> None:
        """`number`: as an editor counts the file's lines; `None`: the row is in no file."""
        if row.begin_s < 0:
            raise wrong(number, f"{row.name!r} begins before time 0, at {row.begin_s:g} s")
        if row.end_s <= row.begin_s:
            raise wrong(number, f"{row.name!r} ends at {row.end_s:g} s, not after its begin at {row.begin_s:g} s")
        if row.end_s > MOST_S:
            raise wrong(number, f"{row.name!r} ends at {row.end_s:g} s, in thousands of years: are these seconds?")
        if row.begin_s < self._last_s:
            what = f"{row.name!r} begins at {row.begin_s:g} s, before the row above it; rows are in order of begins"
            raise wrong(number, what)
        self._begin_s = row.begin_s if self._begin_s is None else self._begin_s
        if row.end_s - self._begin_s > MOST_YEARS * _YEAR_S:
            what = f"{row.name!r} ends more than {MOST_YEARS} years after the workload's begin: are these seconds?"
            raise wrong(number, what)
        self._last_s = row.begin_s
        while self._ends and self._ends[0][0] <= row.begin_s:
            _, name = heapq.heappop(self._ends)
            del self._open[name]
        if isinstance(row, Cell):
            self._take_cell(number, row)
        else:
            self._take_size(number, row.name, "asks for", row.request)
            self._take_size(number, row.name, "has a limit of", row.limit)
            if is_below(row.limit, row.request, self._gpu_bytes):
                raise wrong(number, f"the limit of {row.name!r} is below its request")
            if isinstance(row, Session):
                self._note_request(row)
                self._take_session(number, row)
            elif row.memory_bytes:
                self._take_size(number, row.name, "holds", row.memory_bytes)
        self._end_s = max(self._end_s, row.end_s)
        self._counts[type(row).__name__] += 1

    def extent(self) -> Extent:
        """Of all that was taken. Raises WorkloadFileError if that was nothing."""
        if self._begin_s is None:
            raise EmptyWorkloadError("The workload is empty: it has no session and no command.")
        sessions, cells, commands = self._counts.values()
        return Extent(
            sessions + cells + commands,
            sessions,
            cells,
            commands,
            self._begin_s,
            self._end_s,
            max(1, self._most),
            self._least_request,
        )

    def _note_request(self, session: Session) -> None:
        if self._gpu_bytes is not None:
            request_bytes = to_bytes(session.request, self._gpu_bytes)
            self._least_request = min(request_bytes, self._least_request or request_bytes)

    def _take_session(self, number: int | None, session: Session) -> None:
        if session.name in self._open:
            raise wrong(number, f"session {session.name!r} begins while it is open already")
        self._open[session.name] = (session, session.begin_s)
        heapq.heappush(self._ends, (session.end_s, session.name))
        self._most = max(self._most, len(self._open))

    def _take_cell(self, number: int | None, cell: Cell) -> None:
        if cell.name not in self._open:
            raise wrong(number, f"a cell of {cell.name!r}, which has no session open at {cell.begin_s:g} s")
        session, free_at = self._open[cell.name]
        if cell.begin_s < free_at:
            raise wrong(number, f"a cell of {cell.name!r} begins at {cell.begin_s:g} s, before its last one has ended")
        if cell.end_s > session.end_s:
            raise wrong(number, f"a cell of {cell.name!r} ends after its session, at {cell.end_s:g} s")
        if cell.state_bytes > cell.memory_bytes:
            raise wrong(number, f"a cell of {cell.name!r} leaves more bytes of state than it held memory")
        self._take_size(number, cell.name, "holds", cell.memory_bytes)
        self._open[cell.name] = (session, cell.end_s)

    def _take_size(self, number: int | None, name: str, what: str, size: float) -> None:
        if self._gpu_bytes is not None and to_bytes(size, self._gpu_bytes) > self._gpu_bytes:
            sizes = f"{format_bytes(int(size))}, and a GPU of the node has {format_bytes(self._gpu_bytes)}"
            raise wrong(number, f"{name!r} {what} {sizes}")


def wrong(number: int | None, what: str) -> WorkloadFileError:
    """One sentence about a row, or about no row of a file."""
    what += "" if what.endswith("?") else "."
    return WorkloadFileError(f"{what[0].upper()}{what[1:]}" if number is None else f"Row {number}: {what}")


def checked(rows: Iterable[tuple[int | None, Row]], checker: Checker) -> Iterator[Row]:
    """The same rows, each looked at before it is given."""
    for number, row in rows:
        checker.take(number, row)
        yield row
