"""`nls wait-for-gpus` in a pod's cgroup: it ends when the borrower has left, and never keeps a pod for good."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cluster_bench import ClusterBench
from daemon_process import nls_environment
from objects import PODS, pod
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from notebooks import Book

FAST = ("--set", "cool_down_s=0.2", "--set", "min_residency_s=0.2", "--set", "poll_interval_s=0.1")
PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ClusterBench, Book]]:
    """A notebook at home on GPU 0 beside another pod's share, so that it borrows GPU 1."""
    with ClusterBench(tmp_path_factory.mktemp("starts"), "2x16GiB", *FAST, notebooks=True) as cluster:
        cluster.reserve("g0", 0)
        books = []
        for name in ("alice", "bob"):
            uid = cluster.book(name)
            books.append(cluster.jupyter.open(f"{name}.ipynb"))
            cluster.cgroups.move(books[-1].pid(), uid)
            books[-1].gpu("kept = 1")

        def borrowed() -> Book | None:
            return next((b for b in books if b.entry(executing=False)["current"] == [cluster.gpus[1]]), None)

        yield cluster, wait_until(borrowed, PATIENCE_S)


def asks(cluster: ClusterBench, uid: str, timeout: str = "60") -> subprocess.CompletedProcess[str]:
    """The init container of that pod, from its start to its end."""
    return cluster.run_in(uid, sys.executable, "-m", "nls_scheduler", "wait-for-gpus", "--timeout", timeout)


def is_lent(cluster: ClusterBench) -> bool:
    return any(cluster.gpus[1] in entry["current"] for entry in cluster.daemon.status()["workloads"])


def training(cluster: ClusterBench, name: str) -> tuple[str, dict[str, object]]:
    """A pod of GPU 1, of which nobody has known."""
    assert wait_until(lambda: is_lent(cluster), PATIENCE_S)
    written = pod(name, gpus=1, scheduler="default-scheduler", phase="Pending")
    cluster.kubelet.allocations = {f"default/{name}": [cluster.gpus[1]]}
    return cluster.put(written), written


def end(cluster: ClusterBench, written: dict[str, object]) -> None:
    cluster.kubelet.allocations = {}
    cluster.api.delete(PODS, written)


def test_a_pod_starts_when_the_borrower_of_its_gpu_has_left(lent: tuple[ClusterBench, Book]) -> None:
    cluster, _ = lent
    uid, written = training(cluster, "train")
    done = asks(cluster, uid)
    assert done.returncode == 0, done.stderr
    assert not is_lent(cluster)
    assert cluster.gpu(1)["memory_used_bytes"] == 0
    assert cluster.metric("nls_kubernetes_start_held_seconds_count") == 1
    assert cluster.metric("nls_kubernetes_starts_anyway_total") == 0
    end(cluster, written)


def test_a_pod_that_has_waited_as_long_as_it_may_starts_and_its_event_says_so(lent: tuple[ClusterBench, Book]) -> None:
    cluster, _ = lent
    wait_until(lambda: is_lent(cluster), PATIENCE_S)
    # Nobody says which GPU it has.
    written = pod("lost", gpus=1, scheduler="default-scheduler", phase="Pending")
    uid = cluster.put(written)
    done = asks(cluster, uid, timeout="0.5")
    assert (done.returncode, "although: Which GPU" in done.stderr) == (0, True), done.stderr
    event = wait_until(lambda: next(iter(cluster.events("GpuStartedBeforeVacated")), None))
    assert event["involvedObject"]["uid"] == uid
    assert cluster.metric("nls_kubernetes_starts_anyway_total") == 1
    end(cluster, written)


def test_a_pod_without_a_gpu_starts_at_once(lent: tuple[ClusterBench, Book]) -> None:
    cluster, _ = lent
    done = asks(cluster, cluster.put(pod("idle")))
    assert (done.returncode, "although" in done.stderr) == (0, False), done.stderr


def test_outside_of_a_pod_nothing_is_held(lent: tuple[ClusterBench, Book]) -> None:
    cluster, _ = lent
    done = cluster.run_in(None, sys.executable, "-m", "nls_scheduler", "wait-for-gpus")
    assert (done.returncode, "starts at once" in done.stderr) == (0, True), done.stderr


@pytest.mark.long("pods and a Kubernetes daemon in rare orders")
def test_a_daemon_that_restarts_meanwhile_does_not_let_the_pod_go(lent: tuple[ClusterBench, Book]) -> None:
    """The last one of this cluster."""
    cluster, book = lent
    assert cluster.daemon.process is not None
    holder = book.entry(executing=False)["pid"]
    # A borrower that does not listen.
    os.kill(holder, signal.SIGSTOP)
    try:
        uid, written = training(cluster, "late")
        command = [sys.executable, "-m", "nls_scheduler", "wait-for-gpus"]
        script = "import subprocess, sys; sys.stdin.readline(); sys.exit(subprocess.call(sys.argv[1:]))"
        with subprocess.Popen(
            [sys.executable, "-c", script, *command],
            env=nls_environment(NLS_SOCKET=str(cluster.daemon.socket)),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as asking:
            assert asking.stdin is not None
            assert asking.stderr is not None
            cluster.cgroups.move(asking.pid, uid)
            asking.stdin.write("go\n")
            asking.stdin.flush()
            assert "is held" in asking.stderr.readline()
            cluster.daemon.kill()
            cluster.daemon.start()
            wait_until(cluster.ready, PATIENCE_S)
            asking.wait(PATIENCE_S)
            assert asking.returncode == 0
        assert not is_lent(cluster)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder, signal.SIGCONT)
    end(cluster, written)


def test_without_a_daemon_a_pod_starts_at_once_and_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nls_scheduler", "wait-for-gpus"],
        env=nls_environment(NLS_SOCKET=str(tmp_path / "nls.sock")),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0
    assert "starts at once" in done.stderr
    assert "No daemon answers" in done.stderr


def test_a_pod_that_is_deleted_while_its_start_is_held_goes_at_once(tmp_path: Path) -> None:
    """The first process of a container has no default for SIGTERM."""
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    peer = struct.Struct("3i")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "nls.sock"))
        silent.listen()
        silent.settimeout(PATIENCE_S)
        with subprocess.Popen(
            [*alone, sys.executable, "-m", "nls_scheduler", "wait-for-gpus"],
            env=nls_environment(NLS_SOCKET=str(tmp_path / "nls.sock")),
            stdin=subprocess.DEVNULL,
        ) as waiting:
            try:
                with silent.accept()[0] as asked:
                    pid, _, _ = peer.unpack(asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, peer.size))
                    os.kill(pid, signal.SIGTERM)
                    assert waiting.wait(5) == 128 + signal.SIGTERM
            finally:
                waiting.kill()
