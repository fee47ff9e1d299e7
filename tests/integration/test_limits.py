"""Limits on real processes: allocations that no Python allocator of ours sees, and supervisors that do not answer."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from daemon_process import DaemonProcess
from waiting import wait_until

# Straight to the Gpu, as a library's cudaMalloc does.
RAW = """
import os, sys, time
from nls_scheduler.drivers.simulated import SimulatedGpu
SimulatedGpu.from_environment(os.environ).allocate(int(sys.argv[1]) * 2**20)
print("allocated", flush=True)
time.sleep(600)
"""


@pytest.fixture
def node(tmp_path):
    with DaemonProcess(tmp_path, "2x1GiB", "--context-memory", "64MiB", "--set", "reclaim_deadline_s=4") as running:
        yield running


def phases(node: DaemonProcess) -> dict[str, str]:
    status = json.loads(node.nls("status", "--json").stdout)
    return {workload["name"]: workload["phase"] for workload in status["workloads"]}


def test_a_command_that_allocates_beyond_its_limit_is_stopped_with_the_reason(node):
    run = node.start_nls("run", "--request", "200MiB", "--limit", "300MiB", "--", sys.executable, "-c", RAW, "500")
    _, told = run.communicate(timeout=30)
    assert run.returncode == 75
    assert "above its limit of 300 MiB" in told


def test_a_limit_that_a_context_alone_would_pass_is_refused_with_what_that_takes(node):
    refused = node.nls("run", "--request", "32MiB", "--", "true")
    assert refused.returncode == 2
    assert "A CUDA context alone takes about 64 MiB here, above the limit of 32 MiB" in refused.stderr
    assert node.nls("run", "--request", "32MiB", "--limit", "64MiB", "--", "true").returncode == 0


@pytest.mark.long("a command that is within its limit for a while")
def test_a_command_within_its_limit_is_left_alone(node):
    run = node.start_nls(
        "run", "--name", "good", "--request", "200MiB", "--limit", "700MiB", "--", sys.executable, "-c", RAW, "500"
    )
    assert run.stdout.readline() == "allocated\n"
    used = [0]

    def sampled_often() -> bool:
        status = json.loads(node.nls("status", "--json").stdout)
        used.extend(w["memory_used_bytes"] for w in status["workloads"])
        return used.count(564 * 2**20) >= 6

    wait_until(sampled_often)
    assert phases(node) == {"good": "running"}
    run.terminate()
    run.wait(20)


@pytest.mark.long("a supervisor that is stopped, until the daemon does its work")
def test_a_stopped_supervisor_does_not_keep_the_gpu_from_its_owner(node):
    """SIGSTOP of `nls run`: it cannot obey, so the daemon ends its command itself."""
    holds = ["sleep", "600"]
    bursting = ["--request", "0.4", "--limit", "1.0", "--on-evict", "requeue", "--", *holds]
    home_body = node.start_nls("run", "--name", "at-home", *bursting)
    wait_until(lambda: phases(node).get("at-home") == "running")
    borrower = node.start_nls("run", "--name", "borrower", *bursting)
    wait_until(lambda: phases(node).get("borrower") == "running")
    os.kill(borrower.pid, signal.SIGSTOP)
    try:
        owner = node.start_nls("run", "--name", "owner", "--", *holds)
        wait_until(lambda: phases(node).get("owner") == "running")
        wait_until(lambda: "ended by the daemon" in node.log or "evicted" in node.log)
    finally:
        os.kill(borrower.pid, signal.SIGCONT)
    for run in (owner, borrower, home_body):
        run.terminate()
        run.wait(20)
