"""A workload file, row by row: memory is bounded by who has a session open, however long the file is."""

from __future__ import annotations

import csv
from itertools import chain, count
from math import isfinite
from typing import TYPE_CHECKING, Final

from nls_scheduler.units.sizes import parse_bytes, parse_size
from nls_scheduler.what_if.workload_file.checking import wrong
from nls_scheduler.what_if.workload_file.rows import (
    COLUMNS,
    FIRST_LINE,
    VERSION,
    Cell,
    Command,
    Session,
    WorkloadFileError,
    is_below,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import TextIO

    from nls_scheduler.what_if.workload_file.rows import Row, Size

_MARK = FIRST_LINE.rpartition(" ")[0]
_NEEDED = COLUMNS[:4]
PARQUET_KEY = b"nls_workload"
MOST_IN_A_LINE: Final = 2**16
_MOST_DIGITS: Final = 18
_TOLD_EVERY_ROWS: Final = 10_000


def _unheard(part: float) -> None:
    """Nobody wants to know which part of a file has been read."""


def check_can_be_read_again(path: Path) -> None:
    """A pipe cannot, and who opens one may wait for ever. Raises WorkloadFileError with one sentence."""
    if path.exists() and not path.is_file():
        raise WorkloadFileError(f"{path} is no file: it is read more than once, and has to be one.")


def numbered(path: Path, told: Callable[[float], None] = _unheard) -> Iterator[tuple[int, Row]]:
    """Its rows, not checked yet, with their numbers. `told` hears which part has been read.

    Raises WorkloadFileError with the number of the row, or OSError.
    """
    check_can_be_read_again(path)
    return _from_parquet(path, told) if path.suffix == ".parquet" else _from_csv(path, told)


def _lines(file: TextIO, size_bytes: int, told: Callable[[float], None]) -> Iterator[str]:
    """As the file's own, but none is longer than there is memory for it; and the part that has been read is told."""
    done = 0
    for number in count(1):
        if not (line := file.readline(MOST_IN_A_LINE)):
            return
        if len(line) == MOST_IN_A_LINE and number > 1:
            raise WorkloadFileError(f"Row {number}: it is longer than {MOST_IN_A_LINE} characters.")
        done += len(line)
        if number % _TOLD_EVERY_ROWS == 0:
            told(min(1.0, done / size_bytes))
        yield line


def _from_csv(path: Path, told: Callable[[float], None]) -> Iterator[tuple[int, Row]]:
    # What spreadsheets write begins with a byte order mark.
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            lines = _lines(file, max(1, path.stat().st_size), told)
            _check_version(next(lines, "").strip())
            reader = csv.reader(lines, strict=True)
            heading = _checked_heading(next(reader, []), 2)
            for fields in reader:
                number = reader.line_num + 1
                if len(fields) != len(heading):
                    why = f"{len(fields)} columns instead of {len(heading)}; was it written to its end?"
                    raise WorkloadFileError(f"Row {number}: {why}")
                yield number, _row(number, dict(zip(heading, fields, strict=True)))
        except UnicodeDecodeError as error:
            raise WorkloadFileError(f"{path} is not a text in UTF-8: {error.reason}.") from error
        except csv.Error as error:
            raise WorkloadFileError(f"Row {reader.line_num + 1}: {error}.") from error


def _from_parquet(path: Path, told: Callable[[float], None]) -> Iterator[tuple[int, Row]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise WorkloadFileError(f"To read {path} pyarrow is needed: pip install pyarrow, or write it as CSV.") from None
    try:
        with parquet.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(PARQUET_KEY, b"")
            _check_version(f"{_MARK} {version.decode(errors='replace')}".strip() if version else "")
            heading = _checked_heading(file.schema_arrow.names, None)
            batches = (batch.to_pylist() for batch in file.iter_batches(10_000, columns=heading))
            for number, values in enumerate(chain.from_iterable(batches), 1):
                if number % _TOLD_EVERY_ROWS == 0:
                    told(number / file.metadata.num_rows)
                yield number, _row(number, {k: "" if v is None else str(v) for k, v in values.items()})
    except ArrowException as error:
        raise WorkloadFileError(f"{path} cannot be read as Parquet: {error}.") from error


def _check_version(first: str) -> None:
    mark, _, version = first.rpartition(" ")
    if mark != _MARK:
        raise WorkloadFileError(f"It does not begin with {FIRST_LINE!r}: it is no workload file.")
    if version != str(VERSION):
        raise WorkloadFileError(f"It is a workload file of version {version[:20]}; this nls reads version {VERSION}.")


def _checked_heading(heading: list[str], number: int | None) -> list[str]:
    missing = [name for name in _NEEDED if name not in heading]
    if missing:
        there = ", ".join(heading)[:200] or "none"
        raise wrong(number, f"the column {missing[0]!r} is missing; there are {there}")
    unknown = [name for name in heading if name not in COLUMNS]
    if unknown:
        raise wrong(number, f"the column {unknown[0]!r} is unknown; there may be {', '.join(COLUMNS)}")
    if len(set(heading)) < len(heading):
        raise wrong(number, "a column is there twice")
    return heading


def _row(number: int, fields: Mapping[str, str]) -> Row:
    try:
        return _parsed(fields)
    except ValueError as error:
        raise WorkloadFileError(f"Row {number}: {error}") from error


def _parsed(fields: Mapping[str, str]) -> Row:
    kind, name = fields["row"], fields["name"]
    if kind not in ("session", "cell", "command"):
        raise ValueError(f"{kind!r} is none of session, cell and command.")
    if not name:
        raise ValueError(f"a {kind} without a name.")
    if not fields["end_s"]:
        raise ValueError(f"{kind} {name!r} has no end.")
    begin_s, end_s = _seconds(fields, "begin_s"), _seconds(fields, "end_s")
    memory_bytes = _bytes(fields, "memory_bytes")
    if kind == "cell":
        return Cell(name, begin_s, end_s, memory_bytes, _bytes(fields, "state_bytes"))
    request, limit, priority, queue = _asked(fields)
    if kind == "session":
        return Session(name, begin_s, end_s, request, limit, priority, queue)
    return Command(name, begin_s, end_s, request, limit, priority, queue, memory_bytes)


def _asked(fields: Mapping[str, str]) -> tuple[Size, Size, int, str]:
    request: Size = parse_size(fields.get("request") or "1.0")
    limit: Size = parse_size(fields.get("limit") or fields.get("request") or "1.0")
    if is_below(limit, request, None):
        raise ValueError(f"the limit {fields['limit']} of {fields['name']!r} is below its request.")
    priority = fields.get("priority") or "0"
    if not priority.removeprefix("-").isdecimal():
        raise ValueError(f"{priority!r} is no priority: write a whole number.")
    return request, limit, int(priority), fields.get("queue") or "default"


def _seconds(fields: Mapping[str, str], column: str) -> float:
    try:
        value = float(fields[column])
    except ValueError:
        raise ValueError(f"{fields[column]!r} in {column} is no number of seconds.") from None
    if not isfinite(value):
        raise ValueError(f"{fields[column]!r} in {column} is no number of seconds.")
    return value


def _bytes(fields: Mapping[str, str], column: str) -> int:
    text = fields.get(column) or "0"
    if text.startswith("-"):
        raise ValueError(f"{text!r} in {column} is below zero.")
    if not text.isdecimal():
        return parse_bytes(text)
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{text[:_MOST_DIGITS]}... in {column} is more than anything has.")
    return int(text)
