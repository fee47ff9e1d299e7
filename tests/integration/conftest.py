"""What all integration tests share: nothing of a test may outlive it."""

from __future__ import annotations

import os
import stat
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
MARK = "NLS_TEST_MARK"
GONE_WITHIN_S = 5.0


def wait_until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """Poll until `condition` holds; fails the test with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.005)
    return value


def marked_processes(mark: str) -> dict[int, str]:
    """Command line by pid of the living processes, other than this one, whose environment holds the mark."""
    needle = f"{MARK}={mark}".encode()
    found = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if int(directory.name) != os.getpid() and needle in (directory / "environ").read_bytes().split(b"\0"):
                found[int(directory.name)] = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def ours(directory: Path) -> set[Path]:
    """Sockets, and whatever bears our name."""
    found = set()
    for path in directory.rglob("*"):
        try:
            if path.name.startswith("nls") or stat.S_ISSOCK(path.lstat().st_mode):
                found.add(path)
        except FileNotFoundError:
            continue
    return found


@pytest.fixture
def mark() -> str:
    """In the environment of each process that the test starts."""
    return uuid.uuid4().hex


@pytest.fixture(autouse=True)
def no_leftovers(
    mark: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Each test has its own runtime, temporary and IPython directories, and leaves no process, socket or memory."""
    tmp_path_factory.getbasetemp()  # made while the temporary directory is still everybody's
    with tempfile.TemporaryDirectory(prefix="nt-", ignore_cleanup_errors=True) as home:
        for variable in ("XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR", "IPYTHONDIR"):
            directory = Path(home) / variable.lower()[:3]
            directory.mkdir(mode=0o700)
            monkeypatch.setenv(variable, str(directory))
        monkeypatch.setattr(tempfile, "tempdir", os.environ["TMPDIR"])
        monkeypatch.setenv(MARK, mark)
        before = ours(Path("/dev/shm"))
        yield
        wait_until(lambda: not marked_processes(mark), GONE_WITHIN_S, f"the end of {marked_processes(mark)}")
        wait_until(lambda: not ours(Path(home)), GONE_WITHIN_S, f"the removal of {ours(Path(home))}")
        left = ours(Path("/dev/shm")) - before
        assert not left, f"shared memory left behind: {left}"
