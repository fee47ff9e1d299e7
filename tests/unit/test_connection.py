"""A GPU process and its kernel find a place to meet, also where the runtime folder has none."""

from __future__ import annotations

import errno
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.supervisor import connection as module
from nls_jupyter.supervisor.connection import Connection
from nls_scheduler.wire import trust

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def full(folder: Path) -> Callable[[Any, Any], None]:
    """`json.dump` onto a disk that has no room below `folder`."""
    whole = json.dump

    def dump(content: Any, file: Any) -> None:
        if Path(f"/proc/self/fd/{file.fileno()}").readlink().is_relative_to(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        whole(content, file)

    return dump


def test_a_runtime_folder_without_room_is_left_for_a_temporary_one(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    monkeypatch.setattr(module.json, "dump", full(runtime))
    made = Connection.create(runtime / "gpu-1-0")
    assert made.directory.parent == elsewhere
    assert stat.S_IMODE(made.directory.stat().st_mode) == 0o700
    assert json.loads(made.file.read_text("ascii"))["key"] == made.key.decode()
    assert not (runtime / "gpu-1-0").exists()


def test_the_runtime_folder_is_its_user_s_alone_whatever_the_umask(tmp_path: Path) -> None:
    """It is that of the user's own daemon as well, whose socket nobody uses where others may write."""
    before = os.umask(0)
    try:
        made = Connection.create(tmp_path / "runtime" / "nls" / "gpu-1-0")
    finally:
        os.umask(before)
    assert made.directory == tmp_path / "runtime" / "nls" / "gpu-1-0"
    for folder in (made.directory, made.directory.parent, tmp_path / "runtime"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    trust.check_place(made.directory.with_name("nls.sock"))


@pytest.mark.parametrize(
    "planted",
    [Path.touch, os.mkfifo, lambda path: path.symlink_to(path.name), lambda path: path.symlink_to("nowhere/at/all")],
    ids=["a file", "a FIFO", "a link to itself", "a dangling link"],
)
def test_a_runtime_folder_that_is_none_is_left_for_a_temporary_one(
    tmp_path: Path, elsewhere: Path, planted: Callable[[Path], None]
) -> None:
    planted(tmp_path / "nls")
    assert Connection.create(tmp_path / "nls" / "gpu-1-0").directory.parent == elsewhere


def test_a_place_that_cannot_be_written_to_is_left_for_a_temporary_one(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    runtime = tmp_path / "runtime"
    monkeypatch.setattr(Path, "mkdir", read_only)
    assert Connection.create(runtime / "gpu-1-0").directory.parent == elsewhere


def test_a_place_that_is_somebody_elses_is_left_to_them(tmp_path: Path, elsewhere: Path) -> None:
    """Their process has the same number where the folder is shared among machines."""
    theirs = Connection.create(tmp_path / "gpu-1-0")
    assert Connection.create(tmp_path / "gpu-1-0").directory.parent == elsewhere
    assert json.loads(theirs.file.read_text("ascii"))["key"] == theirs.key.decode()


def test_where_there_is_no_room_at_all_nothing_is_left_behind(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.json, "dump", full(tmp_path))
    with pytest.raises(OSError, match="No space left on device"):
        Connection.create(tmp_path / "runtime" / "gpu-1-0")
    assert list(elsewhere.iterdir()) == []
    assert list((tmp_path / "runtime").iterdir()) == []


def test_a_runtime_folder_whose_name_is_no_text_is_left_for_a_temporary_one(tmp_path: Path, elsewhere: Path) -> None:
    """ZeroMQ takes text, and a file's name may be any bytes."""
    assert Connection.create(tmp_path / "n\nl\udcff" / "gpu-1-0").directory.parent == elsewhere
