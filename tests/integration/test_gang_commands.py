"""Gangs, elastic commands and moves on demand against a real daemon."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import psutil
import pytest

from waiting import wait_until

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from daemon_process import DaemonProcess


def ended(running: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    answers = [(one.communicate(timeout=60), one) for one in running]
    return [(one.returncode, out, err) for (out, err), one in answers]


def test_a_gang_starts_together_and_each_member_knows_its_place(daemon: DaemonProcess) -> None:
    script = "echo $NLS_GANG $NLS_GANG_SIZE $NLS_GANG_RANK $NLS_GPU_COUNT"
    gang = ["run", "--gang", "g", "--gang-size", "2", "--name"]
    first = daemon.start_nls(*gang, "one", "--", "sh", "-c", script)
    wait_until(lambda: [w["name"] for w in daemon.status()["workloads"]] == ["one"])
    assert daemon.status()["workloads"][0]["reason"] == "waits for 1 of 2 members of gang g"
    second = daemon.start_nls(*gang, "two", "--", "sh", "-c", script)
    said = ended([first, second])
    assert [(code, out) for code, out, _ in said] == [(0, "g 2 0 1\n"), (0, "g 2 1 1\n")]
    assert daemon.status()["workloads"] == []


def test_a_member_that_fails_once_starts_its_gang_again(daemon: DaemonProcess, tmp_path: Path) -> None:
    mark, gang = tmp_path / "failed", ["run", "--gang", "g", "--gang-size", "2", "--name"]
    failing = f"test -e {mark} && exit 0; touch {mark}; exit 9"
    steady = f"echo started; until test -e {mark}.go; do sleep 0.05; done"
    other = daemon.start_nls(*gang, "steady", "--", "sh", "-c", steady)
    once = daemon.start_nls(*gang, "once", "--", "sh", "-c", failing)
    assert once.wait(60) == 0
    (tmp_path / "failed.go").touch()
    (_, _, told), (code, out, _) = ended([once, other])
    assert "exited with code 9; gang g stops and starts again" in told
    assert code == 0
    assert 1 <= out.count("started") <= 2


def test_a_member_that_went_on_after_an_interrupt_starts_again_with_its_gang(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    gang = ["run", "--gang", "g", "--gang-size", "2", "--name"]
    wait = "until test -e {0}/go; do sleep 0.05; done"
    going_on = f"trap 'touch {{0}}/interrupted' INT; echo started; touch {{0}}/up; {wait}"
    failing = "test -e {0}/again && exit; until test -e {0}/interrupted; do sleep 0.05; done; touch {0}/again; exit 9"
    steady = daemon.start_nls(*gang, "steady", "--", "sh", "-c", going_on.format(tmp_path))
    once = daemon.start_nls(*gang, "once", "--", "sh", "-c", failing.format(tmp_path))
    wait_until((tmp_path / "up").exists)
    (tmp_path / "up").unlink()
    steady.send_signal(signal.SIGINT)
    wait_until((tmp_path / "up").exists)
    (tmp_path / "go").touch()
    assert [(code, out) for code, out, _ in ended([once, steady])] == [(0, ""), (0, "started\nstarted\n")]


def test_a_member_that_has_ended_well_has_its_own_exit_code_whatever_comes_after_it(
    daemon: DaemonProcess, tmp_path: Path
) -> None:
    assert daemon.process is not None
    script = f"echo $$; until test -e {tmp_path}/go; do sleep 0.05; done"
    gang = ["run", "--gang", "g", "--gang-size", "2", "--"]
    other, running = daemon.start_nls(*gang, "true"), daemon.start_nls(*gang, "sh", "-c", script)
    assert running.stdout is not None
    pid = int(running.stdout.readline())
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        wait_until(lambda: not psutil.pid_exists(pid))
        wait_until(lambda: running.send_signal(signal.SIGTERM) or running.poll() is not None)
        assert running.wait() == 0
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert other.wait(60) == 0


@pytest.mark.long("commands that are moved")
def test_a_gang_whose_member_always_fails_is_given_up_with_that_one_s_code(daemon: DaemonProcess) -> None:
    gang = ["run", "--gang", "g", "--gang-size", "2", "--name"]
    other = daemon.start_nls(*gang, "steady", "--", "sleep", "600")
    failing = daemon.start_nls(*gang, "failing", "--", "sh", "-c", "exit 9")
    (code, _, why), (others_code, _, others_why) = ended([failing, other])
    assert (code, others_code) == (9, 75)
    reason = "gave up after 3 failures in a row: failing of gang g has ended: exited with code 9"
    assert reason in why
    assert reason in others_why
    wait_until(lambda: daemon.status()["workloads"] == [])


def test_an_elastic_command_has_what_there_is(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--gpus", "1..8", "--", "sh", "-c", "echo $NLS_GPU_COUNT")
    assert done.stdout == f"{len(daemon.status()['gpus'])}\n"


def test_what_can_never_fit_is_refused_at_once(daemon: DaemonProcess) -> None:
    done = daemon.nls("run", "--gang", "g", "--gang-size", "9", "--", "true")
    assert done.returncode == 2
    assert "Gang g can never fit" in done.stderr
    done = daemon.nls("run", "--gpus", "3..2", "--", "true")
    assert (done.returncode, "MIN at most MAX" in done.stderr) == (2, True)


@pytest.mark.long("commands that are moved")
def test_a_command_that_may_start_again_is_moved_on_demand(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "w", "--request", "0.5", "--on-evict", "requeue", "--", "sleep", "600")
    wait_until(lambda: [w["phase"] for w in daemon.status()["workloads"]] == ["running"])
    refused = daemon.nls("migrate", "w", "--to", "0")
    assert (refused.returncode, "on GPU 0 already" in refused.stderr) == (3, True)
    assert daemon.nls("migrate", "w", "--to", "7").returncode == 3
    done = daemon.nls("migrate", "w", "--to", "1")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: [(w["phase"], w["gpus"]) for w in daemon.status()["workloads"]] == [("running", ["GPU 1"])])
    daemon.nls("release", "w")
    running.communicate(timeout=60)
