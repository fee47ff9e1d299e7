"""Who holds a socket's lock, as /proc tells it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.daemon.http.ownership import AlreadyRunning, Ownership
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.holder import Holder, holder_of, lock_of, locked_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_the_holder_is_seen_as_long_as_it_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "nls.sock"
    assert holder_of(path) is None
    with Ownership(lock_of(path), str):
        assert holder_of(path) == Holder(os.getpid(), stopped=False)
        away = locate.silent(path, "start one")
        assert (str(away).startswith(f"The daemon at {path} does not answer: its process"), away.may_come) == (
            True,
            True,
        )
    assert holder_of(path) is None


def test_a_lock_file_that_nobody_holds_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "nls.sock.lock").touch()
    assert holder_of(tmp_path / "nls.sock") is None
    away = locate.silent(tmp_path / "nls.sock", "start one")
    assert isinstance(away, DaemonUnreachable)
    assert (str(away), away.may_come) == (f"No daemon answers at {tmp_path / 'nls.sock'}: start one.", False)


LOCKS = """
import fcntl, os, sys
os.setuid(65533)
folder = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] == "and is gone" and (child := os.fork()):
    os.waitpid(child, 0)
else:
    fcntl.flock(folder, fcntl.LOCK_SH if sys.argv[2] == "shared" else fcntl.LOCK_EX)
    if sys.argv[2] == "and is gone":
        os._exit(0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["shared", "exclusive", "and is gone"])
def locked_by_mallory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    folder = tmp_path / "state"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        parent.chmod(parent.stat().st_mode | 0o055)
    with subprocess.Popen(
        [sys.executable, "-c", LOCKS, str(folder), request.param],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield folder


def test_another_users_lock_on_a_folder_keeps_no_daemon_from_it(locked_by_mallory: Path) -> None:
    with Ownership(locked_by_mallory, str) as owned:
        owned.keep()


def test_a_daemons_lock_on_a_folder_keeps_the_next_one_from_it(tmp_path: Path) -> None:
    with Ownership(tmp_path, str), pytest.raises(AlreadyRunning), Ownership(tmp_path, str):
        pass


def test_a_folder_that_others_had_locked_is_locked_once_they_are_gone(tmp_path: Path) -> None:
    others = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(others, fcntl.LOCK_SH)  # shared, as no daemon does it
    with Ownership(tmp_path, str) as owned:
        assert locked_by(tmp_path) is None
        os.close(others)
        owned.keep()
        assert locked_by(tmp_path) == Holder(os.getpid(), stopped=False)


NAMED = """
import ctypes, fcntl, os, sys
ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[2]))
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "name", [b"a\x0bb", b"a\x0cState:\tT", b"\x1cUid:\tme", "a\u2028b".encode(), b"a\rb", b"a\nb:\t"]
)
def test_what_a_process_calls_itself_says_nothing_of_it(name: bytes, tmp_path: Path) -> None:
    command = [sys.executable, "-c", NAMED, str(tmp_path), name.hex()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        assert locked_by(tmp_path) == Holder(process.pid, stopped=False)


TWINS = """
import fcntl, os, subprocess, sys
from pathlib import Path
from nls_scheduler.wire.holder import locked_by
locks = []
for name in ("one", "other"):
    folder = Path(sys.argv[1], name)
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    locks.append(folder / "lock")
    locks[-1].touch()
assert len({lock.stat().st_ino for lock in locks}) == 1
held = os.open(locks[0], os.O_RDONLY)
fcntl.flock(held, fcntl.LOCK_EX)
assert locked_by(locks[1]) is None
assert locked_by(locks[0]).pid == os.getpid()
"""


def test_a_lock_of_equal_number_on_another_file_system_is_another_lock(tmp_path: Path) -> None:
    alone = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount namespace can be made here")
    done = subprocess.run(
        [*alone, sys.executable, "-c", TWINS, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
