"""Writes a workload file, row by row."""

from __future__ import annotations

import csv
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from nls_scheduler.what_if.workload_file.reading import PARQUET_KEY
from nls_scheduler.what_if.workload_file.rows import COLUMNS, FIRST_LINE, VERSION, Cell, Command, WorkloadFileError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nls_scheduler.what_if.workload_file.rows import Row, Size

_BATCH = 10_000


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """CSV, or Parquet where `path` ends so; returns how many. Raises OSError, or WorkloadFileError without pyarrow."""
    try:
        return _write_parquet(path, rows) if path.suffix == ".parquet" else _write_csv(path, rows)
    except BaseException as error:
        if path.is_file():
            path.unlink()  # a part of a workload can be read, and is another workload
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _write_csv(path: Path, rows: Iterable[Row]) -> int:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{FIRST_LINE}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        return sum(bool(writer.writerow(fields_of(row))) for row in rows)


def fields_of(row: Row) -> list[str]:
    """In the order of `COLUMNS`."""
    kind = type(row).__name__.lower()
    head = [kind, row.name, _seconds(row.begin_s), _seconds(row.end_s)]
    if isinstance(row, Cell):
        return [*head, "", "", "", "", str(row.memory_bytes), str(row.state_bytes)]
    memory = str(row.memory_bytes) if isinstance(row, Command) else ""
    return [*head, _size(row.request), _size(row.limit), str(row.priority), row.queue, memory, ""]


def _seconds(at_s: float) -> str:
    """To the millisecond, or as exactly as it was: what is read again is the same."""
    text = f"{at_s:.3f}"
    return text if float(text) == at_s else repr(at_s)


def _size(size: Size) -> str:
    return format(Decimal(repr(size)), "f") if isinstance(size, float) else f"{size}B"


def _write_parquet(path: Path, rows: Iterable[Row]) -> int:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise WorkloadFileError(f"To write {path} pyarrow is needed: pip install pyarrow, or write CSV.") from None
    schema = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS], {PARQUET_KEY: str(VERSION).encode()})
    count = 0
    batch: list[list[str]] = []

    def flush(writer: Any) -> None:
        columns = [list(column) for column in zip(*batch, strict=True)]
        writer.write_table(pyarrow.table(columns, schema=schema))
        batch.clear()

    with parquet.ParquetWriter(path, schema) as writer:
        for row in rows:
            count += 1
            batch.append(fields_of(row))
            if len(batch) == _BATCH:
                flush(writer)
        if batch:
            flush(writer)
    return count
