"""The wall clock jumps by days, back and forth: nothing that is decided depends on it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess
from left_out import thinned

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_S = 86400
SHIM = Path(__file__).with_name("wall_clock.c")


class JumpingClock:
    """The offset of the daemon's wall clock."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    def jump(self, offset_s: int) -> None:
        written = self._file.with_suffix(".new")
        written.write_text(str(offset_s))
        written.replace(self._file)


@pytest.fixture
def clock(tmp_path) -> JumpingClock:
    return JumpingClock(tmp_path / "offset")


@pytest.fixture
def daemon(tmp_path, clock) -> Iterator[DaemonProcess]:
    compiler = shutil.which("gcc")
    if compiler is None:
        assert not os.environ.get("CI"), "gcc is needed to make a clock jump"
        pytest.skip("gcc is needed to make a clock jump: apt-get install gcc libc6-dev")
    library = tmp_path / "wall_clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SHIM, "-ldl"], check=True)
    running = DaemonProcess(tmp_path, "1x16GiB", "--set", "reclaim_deadline_s=2", "--set", "stop_grace_s=0.5")
    running.environment |= {"LD_PRELOAD": str(library), "WALL_CLOCK_OFFSET": str(tmp_path / "offset")}
    with running:
        yield running


@pytest.mark.parametrize("jump_s", thinned([DAY_S, -DAY_S], 2, "jumps of the wall clock"))
def test_the_node_decides_as_ever_when_the_wall_clock_jumps(daemon, clock, jump_s):
    daemon.start_nls("run", "--name", "first", "--on-evict", "requeue", "--", "sleep", "600")
    daemon.wait_for("first", phase="running")
    shown_before = daemon.workload("first")["since"]
    clock.jump(jump_s)
    assert daemon.workload("first")["since"] != shown_before, "the daemon sees the other time"
    daemon.start_nls("run", "--name", "second", "--priority", "5", "--", "sleep", "600")
    second = daemon.wait_for("second", position=1)
    assert 0 <= second["waiting_s"] < 60
    assert daemon.nls("release", "first").returncode == 0
    daemon.wait_for("second", phase="running")
    clock.jump(-jump_s)
    daemon.kill()
    daemon.start()
    daemon.wait_for("second", phase="running")
    history = daemon.request("GET", "/v1/history")[1]["entries"]
    told = [entry["sequence"] for entry in history]
    assert told == sorted(told)
    assert all(entry["seconds"] is None or 0 <= entry["seconds"] < 60 for entry in history)
    assert daemon.request("GET", "/readyz")[0] == 200
