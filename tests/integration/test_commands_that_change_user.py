"""`nls run` of what does not stay its user's own: setuid programs, as sudo is, and the starter of some containers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from daemon_process import NLS, DaemonProcess
from integration.test_who_asks import shared
from leftovers import living
from nls_scheduler.processes import guardian
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

ALICE = 65531
AS_SUDO = ("setpriv", "--reuid=0", "--regid=0", "--clear-groups", "sleep", "600")
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can become another user, by setpriv"
)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with shared(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def run(daemon: DaemonProcess, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Runs a copy of a program, which is root's and has this mode, by `nls run` of Alice's.

    She gets one capability, to read files: Python itself may lie where only root may read.
    """
    started: list[tuple[subprocess.Popen[str], dict[int, int]]] = []

    def start(mode: int, program: str, *arguments: str) -> subprocess.Popen[str]:
        found = shutil.which(program)
        assert found is not None
        copy = tmp_path / program
        shutil.copyfile(found, copy)
        copy.chmod(mode)
        reads = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
        alice = ("setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", *reads)
        process = subprocess.Popen(
            [*alice, *NLS, "run", "--name", "hers", "--", str(copy), *arguments],
            env={**daemon.environment, "HOME": "/"}, cwd="/", text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        daemon.wait_for("hers", phase="running")
        started.append((process, guardian.descendants(process.pid)))
        return process

    yield start
    for process, family in started:
        for pid, start_time in family.items():
            guardian.kill(pid, start_time)
        process.kill()
        process.communicate()
        wait_until(lambda family=family: not living(family))


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o4755, AS_SUDO), (0o4755, ("sleep", "600"))],
    ids=["as sudo does", "a setuid program"],
)  # fmt: skip
def test_its_process_is_its_user_s_workload_whosever_it_looks(
    daemon: DaemonProcess, run: Callable[..., subprocess.Popen[str]], mode: int, words: tuple[str, ...]
) -> None:
    process = run(mode, *words)
    entry = daemon.workload("hers")
    assert entry["owner"] == ALICE
    assert entry["pid"] in guardian.descendants(process.pid), entry
    process.kill()
    wait_until(lambda: daemon.workload("hers") is None)


def test_what_only_another_user_can_end_is_said_and_waited_for(
    daemon: DaemonProcess, run: Callable[..., subprocess.Popen[str]]
) -> None:
    process = run(0o4755, *AS_SUDO)
    command = daemon.workload("hers")["pid"]
    assert process.stderr is not None
    program = daemon.directory / "setpriv"
    for number in (signal.SIGUSR1, signal.SIGTERM):
        process.send_signal(number)
        told = process.stderr.readline()
        assert told == f"nls: {program} runs as another user, who alone can end it: `kill {command}`\n"
    os.kill(command, signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert process.stderr.read() == ""
