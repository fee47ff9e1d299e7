"""A pid that another process has taken: nobody who ends the one before ever signals it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to choose the pids of a namespace of its own")

AS_INIT = """
import os, subprocess, time
from pathlib import Path
from nls_scheduler.core.model.ids import WorkloadId
from nls_scheduler.processes import guardian, proc

W = WorkloadId("0123456789ab")

def begin(**named):
    Path("/proc/sys/kernel/ns_last_pid").write_text("499")
    process = subprocess.Popen(["sleep", "600"], **named)
    assert process.pid == 500, process.pid
    return process

first = begin(env={"NLS_WORKLOAD": W})
known = proc.look_up(500).id
assert list(proc.left_of(W, 0, [known])) == [500]
first.kill()
first.wait()
while proc.alive(known) or time.clock_gettime(time.CLOCK_BOOTTIME) * 100 < known.start_time + 2:
    pass  # the kernel counts hundredths of a second
with begin(env={}, user=12345) as stranger:
    assert proc.look_up(500).id != known
    guardian.kill(known.pid, known.start_time)
    assert proc.end_all(W, 0, [known], 5)
    assert proc.end_all(W, 12345, [known], 5)
    assert stranger.poll() is None and not os.waitid(os.P_PID, 500, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    stranger.kill()
print("spared")
"""


def test_who_has_the_pid_of_one_that_ended_is_spared() -> None:
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    command = [*alone, sys.executable, "-c", AS_INIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "spared\n", "")
