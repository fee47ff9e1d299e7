"""Writes a workload file, row by row."""

from __future__ import annotations

import csv
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
    if path.suffix == ".parquet":
        return _write_parquet(path, rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(f"{FIRST_LINE}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        return sum(bool(writer.writerow(fields_of(row))) for row in rows)


def fields_of(row: Row) -> list[str]:
    """In the order of `COLUMNS`."""
    kind = type(row).__name__.lower()
    head = [kind, row.name, f"{row.begin_s:.3f}", f"{row.end_s:.3f}"]
    if isinstance(row, Cell):
        return [*head, "", "", "", "", str(row.memory_bytes), str(row.state_bytes)]
    memory = str(row.memory_bytes) if isinstance(row, Command) else ""
    return [*head, _size(row.request), _size(row.limit), str(row.priority), row.queue, memory, ""]


def _size(size: Size) -> str:
    return str(size) if isinstance(size, float) else f"{size}B"


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
