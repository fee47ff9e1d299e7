"""A real daemon as a DaemonSet runs it: probes over TCP, and Gpus of a topology file."""

from __future__ import annotations

import os
import re
import signal
import socket
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UUID = "GPU-6b1f8a9c-5d4e-53e1-8a36-0e5a1b7d3c21"
TOPOLOGY = f"gpuMemory: 16384\ngpuProduct: NVIDIA A100-SXM4-40GB\ngpus:\n  - id: {UUID}\n"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    directory: Path = tmp_path_factory.mktemp("daemon")
    topology = directory / "worker.yml"
    topology.write_text(TOPOLOGY)
    with DaemonProcess(directory, str(topology), "--set", "observe_address=127.0.0.1:0") as running:
        yield running


def port_of(daemon: DaemonProcess) -> int:
    """Told a moment after the socket answers."""
    (port,) = wait_until(lambda: re.findall(r"/metrics at 127\.0\.0\.1, port (\d+)", daemon.log))
    return int(port)


def read(daemon: DaemonProcess, path: str) -> str:
    port = port_of(daemon)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        assert answer.status == 200
        return str(answer.read().decode())


def test_a_kubelet_finds_it_alive_and_ready(daemon: DaemonProcess) -> None:
    assert "true" in read(daemon, "/livez")
    assert "true" in read(daemon, "/readyz")


def test_idle_connections_keep_no_probe_from_its_answer(daemon: DaemonProcess) -> None:
    port = port_of(daemon)
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert "true" in read(daemon, "/livez")


def test_who_connects_much_at_once_keeps_no_probe_from_its_answer(daemon: DaemonProcess) -> None:
    """All are accepted before a word of any is read: whoever has not asked yet was the one to go."""
    port = port_of(daemon)
    with ExitStack() as stack:
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            probe = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            probe.sendall(b"GET /livez HTTP/1.1\r\nHost: n\r\n\r\n")
            for _ in range(50):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        assert probe.recv(12) == b"HTTP/1.1 200"


def test_prometheus_reads_over_tcp_what_the_socket_tells(daemon: DaemonProcess) -> None:
    over_tcp = {line.partition(" ")[0] for line in read(daemon, "/metrics").splitlines()}
    _, text = daemon.request("GET", "/metrics")
    assert over_tcp == {line.partition(" ")[0] for line in str(text).splitlines()}


def test_the_gpus_are_those_of_the_topology(daemon: DaemonProcess) -> None:
    (gpu,) = daemon.status()["gpus"]
    assert (gpu["uuid"], gpu["name"], gpu["memory_total_bytes"]) == (UUID, "NVIDIA A100-SXM4-40GB", 16384 * 2**20)
    assert f'UUID="{UUID}"' in read(daemon, "/metrics")


def test_a_port_that_is_taken_ends_the_second_daemon_with_a_sentence(daemon: DaemonProcess, tmp_path: Path) -> None:
    port = port_of(daemon)
    second = ("--socket", str(tmp_path / "nls.sock"), "up", "--simulate", "1x1GiB")
    done = daemon.nls(*second, "--set", f"observe_address=127.0.0.1:{port}")
    assert done.returncode == 3
    assert f"observe_address 127.0.0.1:{port}: Address already in use" in done.stderr
