"""A workload file, row by row: memory is bounded by who has a session open, however long the file is."""

from __future__ import annotations

import csv
from itertools import chain
from math import isfinite
from typing import TYPE_CHECKING

from nls_scheduler.units.sizes import parse_bytes, parse_size
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.rows import (
    COLUMNS,
    FIRST_LINE,
    VERSION,
    Cell,
    Command,
    Session,
    WorkloadFileError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from nls_scheduler.what_if.workload_file.rows import Extent, Row, Size

_MARK = FIRST_LINE.rpartition(" ")[0]
_NEEDED = COLUMNS[:4]
PARQUET_KEY = b"nls_workload"


def extent_of(path: Path, gpu_bytes: int | None = None) -> Extent:
    """Reads all of it once, and says what it comes to. Raises WorkloadFileError or OSError."""
    checker = Checker(gpu_bytes)
    for _ in checked(_numbered(path), checker):
        pass
    return checker.extent()


def rows_of(path: Path, gpu_bytes: int | None = None) -> Iterator[Row]:
    """Its rows in order. Raises WorkloadFileError with the number of the row, or OSError."""
    return checked(_numbered(path), Checker(gpu_bytes))


def _numbered(path: Path) -> Iterator[tuple[int, Row]]:
    return _from_parquet(path) if path.suffix == ".parquet" else _from_csv(path)


def _from_csv(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            first = file.readline()
            _check_version(first.strip())
            reader = csv.reader(file, strict=True)
            heading = _checked_heading(next(reader, []))
            for fields in reader:
                number = reader.line_num + 1
                if len(fields) != len(heading):
                    raise WorkloadFileError(
                        f"Row {number}: {len(fields)} columns instead of {len(heading)}; was it written to its end?"
                    )
                yield number, _row(number, dict(zip(heading, fields, strict=True)))
        except UnicodeDecodeError as error:
            raise WorkloadFileError(f"{path} is not a text in UTF-8: {error.reason}.") from error
        except csv.Error as error:
            raise WorkloadFileError(f"Row {reader.line_num + 1}: {error}.") from error


def _from_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise WorkloadFileError(f"To read {path} pyarrow is needed: pip install pyarrow, or write it as CSV.") from None
    try:
        with parquet.ParquetFile(path) as file:
            version = (file.schema_arrow.metadata or {}).get(PARQUET_KEY, b"")
            _check_version(f"{_MARK} {version.decode(errors='replace')}".strip() if version else "")
            heading = _checked_heading(file.schema_arrow.names)
            batches = (batch.to_pylist() for batch in file.iter_batches(10_000, columns=heading))
            for number, values in enumerate(chain.from_iterable(batches), 1):
                yield number, _row(number, {k: "" if v is None else str(v) for k, v in values.items()})
    except ArrowException as error:
        raise WorkloadFileError(f"{path} cannot be read as Parquet: {error}.") from error


def _check_version(first: str) -> None:
    mark, _, version = first.rpartition(" ")
    if mark != _MARK:
        raise WorkloadFileError(f"It does not begin with {FIRST_LINE!r}: it is no workload file.")
    if version != str(VERSION):
        raise WorkloadFileError(f"It is a workload file of version {version}, and this nls reads version {VERSION}.")


def _checked_heading(heading: list[str]) -> list[str]:
    missing = [name for name in _NEEDED if name not in heading]
    if missing:
        raise WorkloadFileError(
            f"Row 2: the column {missing[0]!r} is missing; there are {', '.join(heading) or 'none'}."
        )
    unknown = [name for name in heading if name not in COLUMNS]
    if unknown:
        raise WorkloadFileError(f"Row 2: the column {unknown[0]!r} is unknown; there may be {', '.join(COLUMNS)}.")
    if len(set(heading)) < len(heading):
        raise WorkloadFileError("Row 2: a column is there twice.")
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
    if type(request) is type(limit) and limit < request:
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
    return int(text) if text.isdecimal() else parse_bytes(text)
