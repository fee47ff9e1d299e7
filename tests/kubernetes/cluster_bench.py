"""A real daemon in a cluster that stands in: a small API server, a kubelet's socket, and cgroups named like pods'."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from api_servers import SERVERS
from daemon_process import DaemonProcess, nls_environment
from fake_api_server import FakeApiServer, Faults
from fake_kubelet import FakeKubelet
from notebooks import Bench
from objects import (
    BIND_REQUESTS,
    CONFIG_MAPS,
    NODE,
    NODES,
    PODS,
    POLICY,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    bind_request,
    node,
    reservation,
    shared_pod,
)
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

CGROUP_ROOTS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
SLEEPER = [sys.executable, "-c", "import sys; print('there', flush=True); sys.stdin.read()"]


class PodCgroups:
    """Cgroups whose paths name pods, as systemd's driver of the kubelet makes them. Use as a context manager."""

    def __init__(self) -> None:
        self._made: list[Path] = []

    def __enter__(self) -> Self:
        root = next((r for r in CGROUP_ROOTS if (r / "cgroup.procs").exists()), None)
        top = None if root is None else root / f"nls-test-{os.getpid()}"
        try:
            if top is None:
                raise PermissionError("no cgroup v2")
            top.mkdir()
        except OSError as error:
            pytest.skip(f"this machine lets nobody make a cgroup: {error}")
        self._top = top
        self._made.append(top)
        return self

    def __exit__(self, *_: object) -> None:
        for directory in reversed(self._made):
            wait_until(lambda there=directory: not (there / "cgroup.procs").read_text())  # type: ignore[misc]
            directory.rmdir()

    def of(self, uid: str) -> Path:
        """The cgroup of that pod's container."""
        slice_ = self._top / f"kubepods-burstable-pod{uid.replace('-', '_')}.slice"
        container = slice_ / "cri-containerd-0123.scope"
        if not container.exists():
            slice_.mkdir()
            container.mkdir()
            self._made += [slice_, container]
        return container

    def move(self, pid: int, uid: str) -> None:
        """Put a process, and what it starts from now on, into that pod."""
        (self.of(uid) / "cgroup.procs").write_text(str(pid))

    def release(self, pid: int) -> None:
        """Put a process into no pod."""
        (self._top.parent / "cgroup.procs").write_text(str(pid))


class ClusterBench:
    """Everything together. Use as a context manager; `gpus` are the UUIDs of the daemon's simulated Gpus."""

    def __init__(self, directory: Path, simulate: str = "2x16GiB", *arguments: str, notebooks: bool = False) -> None:
        """`notebooks`: with a Jupyter Server, as `jupyter`."""
        self._directory = directory
        self._notebooks = notebooks
        self._stack = ExitStack()
        self._simulate = simulate
        self._arguments = arguments

    def __enter__(self) -> Self:
        with self._stack:
            enter = self._stack.enter_context
            self.cgroups = enter(PodCgroups())
            self.api = enter(SERVERS.new())
            self.kubelet = enter(FakeKubelet(self._directory / "kubelet.sock"))
            self.api.put(NODES, node({"nvidia.com/gpu.memory": "16384"}))
            if self._notebooks:
                self.jupyter = enter(Bench(self._directory, self._simulate, *self.options))
                self.daemon = self.jupyter.daemon
            else:
                options = [*self.options, "--context-memory", "16MiB"]
                self.daemon = enter(DaemonProcess(self._directory, self._simulate, *options))
            wait_until(self.ready, 40)
            self.gpus: list[str] = [gpu["uuid"] for gpu in self.daemon.status()["gpus"]]
            self._kept = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @property
    def options(self) -> list[str]:
        """Of `nls up`."""
        options = ["--kubernetes", "--node-name", NODE, "--kubelet-socket", str(self.kubelet.socket)]
        options += ["--kubeconfig", str(self.api.kubeconfig(self._directory)), "--first-list-within", "0.01"]
        options += ["--policy", POLICY]
        return [*options, *self._arguments]

    def clear(self) -> None:
        """No pod, no fault, no allocation; returns when the daemon knows."""
        if isinstance(self.api, FakeApiServer):
            self.api.faults = Faults()
        self.kubelet.failing, self.kubelet.allocations, self.kubelet.claims = False, {}, {}
        self.api.clear(PODS)
        self.api.clear(BIND_REQUESTS)
        self.api.clear(CONFIG_MAPS)
        self.api.clear(RESOURCE_SLICES)
        self.api.clear(RESOURCE_CLAIMS)
        self.api.put(NODES, node({"nvidia.com/gpu.memory": "16384"}))

        def empty() -> bool:
            status = self.daemon.status()
            owned = any(gpu["unplaced_bytes"] for gpu in status["gpus"])
            return not owned and not status["workloads"] and status["message"] is None

        wait_until(empty, 40)

    def ready(self) -> bool:
        """Whether the daemon says so."""
        return bool(self.daemon.request("GET", "/readyz")[0] == 200)

    def put(self, written: dict[str, Any]) -> str:
        """A pod; its UID."""
        uid: str = self.api.put(PODS, written)["metadata"]["uid"]
        return uid

    def book(
        self, name: str, fraction: str = "0.5", limit: str | None = "1.0", group: str = "g0", **options: Any
    ) -> str:
        """A pod for notebooks, bound and in its group, whose GPU processes we look after; its UID."""
        variables = [{"name": "RUNAI_GPU_MEMORY_LIMIT", "value": limit}] if limit is not None else []
        directory = str(self._directory)
        return self.put(
            shared_pod(
                name, fraction, group, managed=True, environment=variables, socket_directory=directory, **options
            )
        )

    def reserve(self, group: str, gpu: int | None) -> dict[str, Any]:
        """KAI's reservation pod for a group, on the Gpu of that index; `None`: it has not said yet."""
        written = reservation(group, None if gpu is None else self.gpus[gpu], socket_directory=str(self._directory))
        return self.api.put(PODS, written)

    def request(self, name: str, **options: Any) -> dict[str, Any]:
        """A BindRequest."""
        return self.api.put(BIND_REQUESTS, bind_request(name, **options))

    def events(self, reason: str) -> list[dict[str, Any]]:
        """Kubernetes Events of that reason."""
        return [event for event in self.api.created if event["reason"] == reason]

    def gpu(self, index: int) -> dict[str, Any]:
        """A Gpu's status."""
        found: dict[str, Any] = self.daemon.status()["gpus"][index]
        return found

    def metric(self, start: str) -> float:
        """The sum of the samples whose line begins so."""
        _, text = self.daemon.request("GET", "/metrics")
        return sum(float(line.rpartition(" ")[2]) for line in str(text).splitlines() if line.startswith(start))

    def run_in(self, uid: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command inside that pod (`None`: in none)."""
        code = "import subprocess, sys; sys.stdin.readline(); sys.exit(subprocess.call(sys.argv[1:]))"
        environment = nls_environment(NLS_SOCKET=str(self.daemon.socket))
        with subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if uid is not None:
                self.cgroups.move(process.pid, uid)
            out, told = process.communicate("go\n", timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, told)


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    """Two Gpus in a cluster, for the tests of a module: the API's client takes seconds to import."""
    with ClusterBench(tmp_path_factory.mktemp("cluster")) as bench:
        yield bench


@pytest.fixture
def cluster(shared_cluster: ClusterBench) -> Iterator[ClusterBench]:
    """The same, empty before and after each test."""
    yield shared_cluster
    shared_cluster.clear()
