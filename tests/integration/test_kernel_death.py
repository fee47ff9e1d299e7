from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from left_out import thinned
from leftovers import marked_processes, wait_until_none
from waiting import wait_until

GONE_WITHIN_S = 45.0
FAKE_KERNEL = Path(__file__).parent / "fake_kernel.py"

UP = "open('up', 'w').close()\n"
SLEEPS = UP + "import time; time.sleep(600)"
HOLDS_THE_GIL = UP + "import ctypes; ctypes.PyDLL(None).sleep(600)"
STOPS = UP + "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
FAMILY = (
    """
import multiprocessing, subprocess, time
subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & kill -STOP $$"])
workers = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)) for _ in range(2)]
for worker in workers: worker.start()
"""
    + UP
)


# An orderly end is the easy one: there the hard cases are enough.
CASES = [
    *((how, code) for how in ("kill", "os._exit") for code in (UP, SLEEPS, HOLDS_THE_GIL, STOPS, FAMILY)),
    *((how, code) for how in ("return", "thread") for code in (HOLDS_THE_GIL, FAMILY)),
]


@pytest.mark.parametrize(("how", "code"), thinned(CASES, 4, "ways in which a kernel dies"))
def test_nothing_outlives_the_kernel(tmp_path: Path, code: str, how: str, mark: str) -> None:
    directory = tmp_path / "gpu-process"
    command = [sys.executable, str(FAKE_KERNEL), str(directory), code, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as kernel:
        assert kernel.stdin is not None
        assert kernel.stdout is not None
        wait_until((tmp_path / "up").exists)
        if how == "kill":
            kernel.kill()
        else:
            kernel.stdin.write("leave\n")
            kernel.stdin.flush()
        if how == "thread":
            assert kernel.stdout.readline() == "thread ended\n"
            wait_until(lambda: len(marked_processes(mark)) == 1, GONE_WITHIN_S)
    wait_until_none("processes", lambda: marked_processes(mark))
    wait_until(lambda: not directory.exists(), GONE_WITHIN_S)
