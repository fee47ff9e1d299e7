from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jupyter_core import paths

from nls_scheduler import doctor
from nls_scheduler.bundle.contents import Parts
from nls_scheduler.daemon import config
from nls_scheduler.drivers import checkpoint_trial
from nls_scheduler.wire import locate
from nls_scheduler.wire.errors import DaemonUnreachable
from open_files import no_more_files

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NLS_SOCKET", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(locate, "SYSTEM_SOCKET", tmp_path / "system.sock")


def listen(path: Path) -> socket.socket:
    path.parent.mkdir(exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    return listening


def test_the_system_daemon_comes_before_the_users_own(tmp_path: Path) -> None:
    with listen(tmp_path / "nls" / "nls.sock"):
        assert locate.find() == tmp_path / "nls" / "nls.sock"
        with listen(tmp_path / "system.sock"):
            assert locate.find() == tmp_path / "system.sock"


def test_a_named_socket_is_the_only_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listen(tmp_path / "system.sock"), listen(tmp_path / "named.sock"):
        assert locate.find(tmp_path / "named.sock") == tmp_path / "named.sock"
        monkeypatch.setenv("NLS_SOCKET", str(tmp_path / "other.sock"))
        with pytest.raises(DaemonUnreachable, match="nls up --socket"):
            locate.find()
        with pytest.raises(DaemonUnreachable, match="nls up --socket"):
            locate.find_or_start()


def test_nobody_there_is_one_sentence_with_what_to_do() -> None:
    with pytest.raises(DaemonUnreachable, match="the first GPU cell or `nls run` starts one; `nls up` does so now"):
        locate.find()


def test_a_socket_that_nobody_listens_on_any_more_does_not_answer(tmp_path: Path) -> None:
    listen(tmp_path / "system.sock").close()
    assert (tmp_path / "system.sock").exists()
    assert not locate.answers(tmp_path / "system.sock")


def test_without_a_runtime_directory_it_is_jupyters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert locate.per_user_socket() == tmp_path / "jupyter" / "nls" / "nls.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not-there"))
    assert locate.per_user_socket() == tmp_path / "jupyter" / "nls" / "nls.sock"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_root_makes_nothing_in_the_runtime_directory_of_whom_it_came_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As after `su`: what root makes there would keep that user from a daemon of their own."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    (theirs := tmp_path / "theirs").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    assert locate.per_user_socket() == theirs / "nls" / "nls.sock"
    os.chown(theirs, 65533, 65533)
    assert locate.per_user_socket() == tmp_path / "jupyter" / "nls" / "nls.sock"
    (finding,) = doctor.runtime_directory({"XDG_RUNTIME_DIR": str(theirs)})
    assert finding.text == f"XDG_RUNTIME_DIR={theirs} is another user's: Jupyter's runtime directory is used instead"


@pytest.mark.parametrize("path", ["/", "//", "/..", "a/.."])
def test_a_path_without_a_name_is_none_of_a_socket(path: str) -> None:
    with pytest.raises(DaemonUnreachable, match=r"is no path for a socket: name another one"):
        locate.find(Path(path))


def test_a_path_too_long_for_a_socket_says_how_long_it_may_be(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match="Linux allows 107"):
        locate.find(tmp_path / ("x" * 100) / "nls.sock")


def test_a_place_where_no_daemon_can_be_started_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nls").write_text("a file where a directory should be")
    with pytest.raises(DaemonUnreachable, match="none can be started"):
        locate.find_or_start()


@pytest.mark.parametrize(("left", "why"), [(0, ", as no space is left in {folder}."), (1, ".")])
def test_a_log_that_could_not_be_written_is_no_word_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: int, why: str
) -> None:
    ended = subprocess.CompletedProcess[bytes]([], returncode=3)
    monkeypatch.setattr(locate.subprocess, "run", lambda *_, **__: ended)
    disk = os.statvfs(tmp_path)
    full = os.statvfs_result((*disk[:4], left, *disk[5:]))
    monkeypatch.setattr(locate.os, "statvfs", lambda _: full)
    with pytest.raises(DaemonUnreachable) as told:
        locate.find_or_start()
    assert str(told.value).endswith(f"/nls.log says nothing{why.format(folder=tmp_path / 'nls')}")


STARTS = """
import os, subprocess
from nls_scheduler.wire import locate

os.environ["CUDA_VISIBLE_DEVICES"] = "5"

def run(*_, env, **__):
    print(env.get("CUDA_VISIBLE_DEVICES"))
    return subprocess.CompletedProcess([], 0)

locate.subprocess.run = run
locate._start(locate.per_user_socket())
"""


@pytest.mark.parametrize(
    ("began_with", "given"), [({}, "None"), ({"CUDA_VISIBLE_DEVICES": "1"}, "1"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a", "NLS_WORKLOAD": "w1"}, "None")],
)  # fmt: skip
def test_a_daemon_reads_the_gpus_that_its_user_has_chosen_and_not_a_cell_or_another_daemon(
    tmp_path: Path, began_with: dict[str, str], given: str
) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "XDG_RUNTIME_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    (tmp_path / "nls").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", STARTS], env={**environment, **began_with}, capture_output=True, text=True, check=True
    )
    assert done.stdout == given + "\n"


def test_none_is_started_beside_a_system_daemon_that_is_to_come_back(tmp_path: Path) -> None:
    listen(tmp_path / "system.sock").close()
    with pytest.raises(DaemonUnreachable, match="remove that socket, or start one of your own with `nls up`") as away:
        locate.find_or_start()
    assert away.value.may_come
    assert not (tmp_path / "nls").exists()
    with listen(tmp_path / "nls" / "nls.sock"):
        assert locate.find_or_start() == tmp_path / "nls" / "nls.sock"


HOLDS = """
import fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)
print("locked", flush=True)
if sys.argv[2] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
sys.stdin.read()
"""


@contextmanager
def starts_one(folder: Path, how: str) -> Iterator[int]:
    """Another client that starts this user's daemon; its pid."""
    folder.mkdir(mode=0o700)
    command = [sys.executable, "-c", HOLDS, str(folder / "start.lock"), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        if how == "stopped":
            os.waitpid(process.pid, os.WUNTRACED)
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("how", "told"), [("runs", ""), ("stopped", " and is stopped, and `kill -CONT {0}` has it go on")]
)
def test_nobody_is_held_up_by_who_starts_a_daemon_and_reads_who_that_is(
    how: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "OTHERS_START_S", 0.0)
    path = tmp_path / "nls" / "nls.sock"
    with starts_one(path.parent, how) as pid:
        with pytest.raises(DaemonUnreachable) as away:
            locate.find_or_start()
        awaited = f"process {pid} starts the daemon at {path}{told.format(pid)}"
        assert (away.value.may_come, away.value.awaited) == (True, awaited)
        assert str(away.value) == f"No daemon answers yet: {awaited}."


def test_a_daemon_is_used_as_soon_as_it_answers_whoever_still_starts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nls" / "nls.sock"
    with ExitStack() as there, starts_one(path.parent, "stopped"):
        monkeypatch.setattr(locate.time, "sleep", lambda _: there.enter_context(listen(path)))
        assert locate.find_or_start() == path


def test_a_daemon_for_which_too_many_wait_is_there(tmp_path: Path) -> None:
    with listen(tmp_path / "nls.sock") as listening, ExitStack() as waiting:
        listening.listen(0)
        for _ in range(2):
            connection = waiting.enter_context(socket.socket(socket.AF_UNIX))
            connection.setblocking(False)
            with suppress(BlockingIOError):
                connection.connect(str(tmp_path / "nls.sock"))
        assert locate.answers(tmp_path / "nls.sock")


def test_who_can_open_no_more_files_is_told_that_and_not_that_no_daemon_answers(tmp_path: Path) -> None:
    with listen(tmp_path / "system.sock"):
        for seek in (locate.find, locate.find_or_start):
            with no_more_files(), pytest.raises(DaemonUnreachable, match=r"can open no more files: .* \(ulimit -n\)"):
                seek()


@pytest.fixture
def _homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOME", "XDG_RUNTIME_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4242)


@pytest.mark.usefixtures("_homeless")
@pytest.mark.parametrize(
    ("variables", "missing"),
    [({}, "no home directory"), ({"HOME": f"/home/{'department/' * 9}"}, "has 146 bytes, and Linux allows 107")],
    ids=["none", "one that is too long for a socket"],
)
def test_who_has_no_home_uses_the_nodes_daemon_and_is_told_what_is_missing_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], missing: str
) -> None:
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    for look in (locate.find, locate.find_or_start):
        with pytest.raises(DaemonUnreachable, match=missing):
            look()
        with listen(tmp_path / "system.sock"):
            assert look() == tmp_path / "system.sock"
        (tmp_path / "system.sock").unlink()


@pytest.mark.usefixtures("_homeless")
def test_who_has_no_home_serves_a_socket_that_is_named_and_gets_advice(tmp_path: Path) -> None:
    assert config.places() == [*paths.ENV_CONFIG_PATH, *paths.SYSTEM_CONFIG_PATH]
    assert doctor._ipython_directory({}).name == ".ipython"


@pytest.mark.usefixtures("_homeless")
def test_who_has_no_home_puts_a_bundle_together(tmp_path: Path) -> None:
    assert "- settings.json: " in Parts(tmp_path / "nls.sock", tmp_path, {}, ()).write(tmp_path / "problem.zip", {})


@pytest.mark.usefixtures("_homeless")
def test_for_who_has_no_home_a_driver_is_tried_and_the_result_is_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(checkpoint_trial, "_driver_version", lambda: "580.1")
    monkeypatch.setattr(checkpoint_trial, "_try", lambda *_: "it failed")
    assert checkpoint_trial.why_it_fails(None) == "it failed"  # type: ignore[arg-type]
    assert checkpoint_trial.known() is None


@pytest.fixture
def _read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a home that is mounted read-only, for root too."""
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and access(path, mode))


@pytest.mark.usefixtures("_read_only")
def test_where_no_daemon_can_be_started_nobody_is_told_that_one_will_be_and_everybody_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "home" / "runtime"))
    helps = rf"{tmp_path} cannot be written; set XDG_RUNTIME_DIR, .*, or NLS_SOCKET "
    with pytest.raises(DaemonUnreachable, match=helps) as none:
        locate.find()
    assert "starts one" not in str(none.value)
    _, (finding,) = doctor._socket(None, {})
    assert (finding.level, re.search(helps, finding.advice or "") is not None) == ("error", True)


def test_so_is_whoever_tries_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "why_not_at", lambda path: "it cannot be written")
    (tmp_path / "file").touch()
    with pytest.raises(DaemonUnreachable, match=r"none can be started at .*: .*; set XDG_RUNTIME_DIR"):
        locate._start_unless_there(tmp_path / "file" / "nls" / "nls.sock")


def test_a_path_below_a_current_directory_that_was_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(DaemonUnreachable, match=r"the current directory was removed: name a socket's whole path"):
        locate.checked(Path("x.sock"))
