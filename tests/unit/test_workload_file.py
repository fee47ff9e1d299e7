from __future__ import annotations

import errno
import io
import itertools
import os
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.workload_file.reading import numbered
from nls_scheduler.what_if.workload_file.rows import COLUMNS, FIRST_LINE, Cell, Command, Session, WorkloadFileError
from nls_scheduler.what_if.workload_file.writing import write_rows
from workload_files import extent_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_scheduler.what_if.workload_file.rows import Row

GIB = 2**30
HEADING = ",".join(COLUMNS)
SESSION = "session,a,0,100,0.5,1.0,0,default,,"
ROWS = (
    Session("a", 0.0, 100.0, 0.5, 1.0, 5, "team"),
    Cell("a", 1.0, 2.5, 3 * GIB, 2 * GIB),
    Command("train", 2.0, 50.0, 8 * GIB, 8 * GIB, memory_bytes=GIB),
)


def written(path: Path, *lines: str, first: str = FIRST_LINE, heading: str = HEADING) -> Path:
    path = path / "workload.csv"
    path.write_text("\n".join([first, heading, *lines, ""]))
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_what_is_written_is_read_again(suffix: str, tmp_path: Path) -> None:
    if suffix == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / f"workload.{suffix}"
    assert write_rows(path, ROWS) == 3
    assert tuple(rows_of(path, 80 * GIB)) == ROWS
    extent = extent_of(path)
    assert (extent.rows, extent.sessions, extent.cells, extent.commands) == (3, 1, 1, 1)
    assert (extent.begin_s, extent.length_s, extent.most_at_once) == (0.0, 100.0, 1)


def test_what_is_written_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    rows = (
        Session("a", 0.1 + 0.2, 1e6, 0.00001, 1 / 3),
        Cell("a", 1.0004, 1.00041, 5, 5),
        Cell("a", 1.00041, 1.2, 5, 5),
    )
    write_rows(path, rows)
    assert tuple(rows_of(path)) == rows


def test_a_part_of_a_workload_is_not_left_behind(tmp_path: Path) -> None:
    def rows() -> Iterator[Row]:
        yield ROWS[0]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "workload.csv"
    with pytest.raises(OSError, match=str(path)):
        write_rows(path, rows())
    assert not path.exists()
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_rows(Path("/dev/full"), ROWS)


def test_a_generated_workload_is_the_same_from_its_file(tmp_path: Path) -> None:
    recipe = Recipe(5, 86400.0, commands_per_day=3)
    path = tmp_path / "workload.csv"
    write_rows(path, recipe.rows())
    assert list(rows_of(path)) == list(recipe.rows())


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["session,a,0,,0.5,1.0,0,default,,"], "Row 3: session 'a' has no end."),
        (["session,a,-5,10,0.5,1.0,0,default,,"], "Row 3: 'a' begins before time 0, at -5 s."),
        (["session,a,10,5,0.5,1.0,0,default,,"], "Row 3: 'a' ends at 5 s, not after its begin at 10 s."),
        (["session,a,5,10,,,,,,", "session,b,1,10,,,,,,"], "Row 4: 'b' begins at 1 s, before the row above it"),
        ([SESSION, SESSION], "Row 4: session 'a' begins while it is open already."),
        ([SESSION, "cell,a,1,9,,,,,5,5", "cell,a,8,12,,,,,5,5"], "Row 5: a cell of 'a' begins at 8 s, before its last"),
        ([SESSION, "cell,b,1,9,,,,,5,5"], "Row 4: a cell of 'b', which has no session open at 1 s."),
        ([SESSION, "cell,a,1,101,,,,,5,5"], "Row 4: a cell of 'a' ends after its session"),
        ([SESSION, "cell,a,1,9,,,,,5,6"], "Row 4: a cell of 'a' leaves more bytes of state than it held"),
        ([SESSION, "cell,a,1,9,,,,,-5,6"], "Row 4: '-5' in memory_bytes is below zero."),
        ([SESSION, "cell,a,1,9,,,,,81GiB,6"], "Row 4: 'a' holds 81 GiB, and a GPU of the node has 80 GiB."),
        (["session,a,0,9,81GiB,81GiB,0,,,"], "Row 3: 'a' asks for 81 GiB, and a GPU of the node has 80 GiB."),
        (["session,a,0,9,0.5,0.4,0,,,"], "Row 3: the limit 0.4 of 'a' is below its request."),
        (["session,a,0,9,60GiB,0.5,0,,,"], "Row 3: the limit of 'a' is below its request."),
        (["command,a,0,9,0.5,39GiB,0,,,"], "Row 3: the limit of 'a' is below its request."),
        (["session,a,0,nan,0.5,0.5,0,,,"], "Row 3: 'nan' in end_s is no number of seconds."),
        (["session,a,soon,9,0.5,0.5,0,,,"], "Row 3: 'soon' in begin_s is no number of seconds."),
        (["session,a,0,9,0.5,0.5,high,,,"], "Row 3: 'high' is no priority"),
        (["session,a,0,9,2.0,2.0,0,,,"], "Row 3: '2.0' is not more than 0 and at most 1"),
        (["dance,a,0,9,0.5,0.5,0,,,"], "Row 3: 'dance' is none of session, cell and command."),
        ([SESSION, "cell,a,1,9,,,,"], "Row 4: 8 columns instead of 10; was it written to its end?"),
        ([], "The workload is empty"),
        (
            ["session,a,5,6,0.5,0.5,0,,,", "session,a,6,3.2e8,0.5,0.5,0,,,"],
            "Row 4: 'a' ends more than 10 years after the workload's begin: are these seconds?",
        ),
        (["session,a,0,1e308,0.5,0.5,0,,,"], "Row 3: 'a' ends at 1e+308 s, in thousands of years: are these seconds?"),
        (["session,a,1735689600000,1735718400000,0.5,0.5,0,,,"], "Row 3: 'a' ends at 1.73572e+12 s, in thousands"),
        (["session,a,0,9,1e308,0.5,0,,,"], "Row 3: '1e308' is not a size"),
        ([f"session,a,0,9,{'9' * 400}GiB,,0,,,"], "Row 3: '999"),
        ([SESSION, f"cell,a,1,9,,,,,{'9' * 400},6"], "Row 4: 999"),
        ([SESSION, "cell,a,1,9,,,,,1e308,6"], "Row 4: '1e308' is not a size in bytes"),
        ([SESSION, "cell,a,1,1,,,,,5,5"], "Row 4: 'a' ends at 1 s, not after its begin at 1 s."),
        ([SESSION, "cell,a,100,101,,,,,5,5"], "Row 4: a cell of 'a', which has no session open at 100 s."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_its_row(lines: list[str], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError) as caught:
        extent_of(written(tmp_path, *lines), 80 * GIB)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)
    assert not str(caught.value).endswith("?.")


@pytest.mark.parametrize(
    ("first", "heading", "sentence"),
    [
        ("row,name", HEADING, "It does not begin with '# nls-workload 1': it is no workload file."),
        ("# nls-workload 2", HEADING, "It is a workload file of version 2; this nls reads version 1."),
        (FIRST_LINE, "row,name,begin_s", "Row 2: the column 'end_s' is missing"),
        (FIRST_LINE, HEADING + ",colour", "Row 2: the column 'colour' is unknown"),
        (FIRST_LINE, HEADING + ",name", "Row 2: a column is there twice."),
    ],
)
def test_another_files_are_refused(first: str, heading: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError) as caught:
        extent_of(written(tmp_path, SESSION, first=first, heading=heading))
    assert str(caught.value).startswith(sentence)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadFileError, match="UTF-8"):
        extent_of(path)


@pytest.mark.parametrize("lines", [(), (FIRST_LINE, HEADING)])
def test_a_line_without_end_is_never_read_whole(lines: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text("\n".join([*lines, ""]))
    os.truncate(path, 2**32)  # zeros, which take no room on the disk
    tracemalloc.start()
    try:
        with pytest.raises(WorkloadFileError, match=r"Row 3: it is longer|It does not begin"):
            extent_of(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    with pytest.raises(WorkloadFileError, match="is no file: it is read more than once"):
        extent_of(path)


def test_what_a_spreadsheet_writes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([FIRST_LINE, HEADING, SESSION, ""]).encode())
    assert extent_of(path).sessions == 1


def test_what_has_been_read_is_told(tmp_path: Path) -> None:
    path, told = tmp_path / "workload.csv", list[float]()
    write_rows(path, [Session(f"n{number}", number, number + 1.0, 0.5, 1.0) for number in range(10_500)])
    assert sum(1 for _ in numbered(path, told.append)) == 10_500
    assert told == [pytest.approx(0.95, abs=0.02)]


def test_columns_beside_the_first_four_may_be_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "session,a,0,9", heading="row,name,begin_s,end_s")
    assert list(rows_of(path)) == [Session("a", 0.0, 9.0, 1.0, 1.0)]


@pytest.mark.parametrize("begin", ["9.5", "9"])
def test_a_session_may_open_again_once_it_has_ended(begin: str, tmp_path: Path) -> None:
    path = written(tmp_path, "session,a,0,9,,,,,,", f"session,a,{begin},19,,,,,,", "cell,a,10,11,,,,,,")
    assert (extent_of(path).sessions, extent_of(path).most_at_once) == (2, 1)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def lines():
        yield from (FIRST_LINE, HEADING)
        for number in range(4000):
            yield f"session,n{number},{number},{number + 3},0.5,1.0,0,default,,"
            yield f"cell,n{number},{number},{number + 1},,,,,100,50"

    path = tmp_path / "workload.csv"
    path.write_text("\n".join(itertools.chain(lines(), [""])))
    tracemalloc.start()
    try:
        extent = extent_of(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert extent.rows == 8000
    assert extent.most_at_once == 3
    assert most < 100_000 + io.DEFAULT_BUFFER_SIZE
