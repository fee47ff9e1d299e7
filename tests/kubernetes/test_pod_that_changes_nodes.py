"""A notebook's pod is drained from one of three nodes and comes again on another: what its volume keeps is there.

Three real daemons on one API server, a folder for the volume, and real kernels in cgroups named like their pods'.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import pytest

from api_servers import SERVERS
from auto_kernel import AutoKernel
from cluster_bench import PodCgroups
from daemon_process import DaemonProcess
from fake_kubelet import FakeKubelet
from objects import NODE, NODES, PODS, SOCKET_DIRECTORY, node, reservation, shared_pod
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.long("three daemons of a cluster and two kernels, 20 s"),
    pytest.mark.kernel,
]
NAMES = (NODE, "node-b", "node-c")
NOTEBOOK = "/home/jovyan/work/digits.ipynb"


class ThreeNodes:
    """Use as a context manager. `daemons`: by the node's name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._volume = directory / "volume"
        self._kernels = 0
        self._stack = ExitStack()
        self.daemons: dict[str, DaemonProcess] = {}

    def __enter__(self) -> Self:
        with self._stack:
            enter = self._stack.enter_context
            self.cgroups = enter(PodCgroups())
            self.api = enter(SERVERS.new())
            for name in NAMES:
                written = node({"nvidia.com/gpu.memory": "16384"})
                written["metadata"] |= {"name": name, "uid": f"0-{name}"}
                self.api.put(NODES, written)
                folder = self._directory / name
                folder.mkdir()
                kubelet = enter(FakeKubelet(folder / "kubelet.sock"))
                options = ["--kubernetes", "--node-name", name, "--kubelet-socket", str(kubelet.socket)]
                options += ["--kubeconfig", str(self.api.kubeconfig(folder)), "--first-list-within", "0.01"]
                options += ["--socket-directory", SOCKET_DIRECTORY, "--context-memory", "16MiB"]
                self.daemons[name] = enter(DaemonProcess(folder, "1x16GiB", *options))
            for daemon in self.daemons.values():
                wait_until(lambda daemon=daemon: daemon.request("GET", "/readyz")[0] == 200, 60)
            self._kept = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def bind(self, where: str, group: str) -> dict[str, Any]:
        """The notebook's pod, as KAI binds it: with half of that node's GPU."""
        gpu = self.daemons[where].status()["gpus"][0]["uuid"]
        self.api.put(PODS, reservation(group, gpu, node=where))
        return self.api.put(PODS, shared_pod("book-0", "0.5", group, node=where, managed=True))

    def kernel(self, where: str) -> AutoKernel:
        """One more kernel of the notebook, with the volume; `move` puts it into its pod."""
        self._kernels += 1
        folder = self._directory / f"kernel-{self._kernels}"
        folder.mkdir()
        kept = {"NLS_KEPT_FOLDER": str(self._volume), "JPY_SESSION_NAME": NOTEBOOK}
        kernel = AutoKernel(folder, self.daemons[where], "python3", **kept)
        kernel.name = "digits.ipynb"
        return kernel

    def names(self) -> dict[str, list[str]]:
        """Of the workloads of each node."""
        return {name: [w["name"] for w in daemon.status()["workloads"]] for name, daemon in self.daemons.items()}


def hook(kernel: AutoKernel) -> str:
    """What the pod's `preStop` hook says."""
    environment = {**os.environ, "JUPYTER_RUNTIME_DIR": str(kernel.directory / "runtime")}
    command = [sys.executable, "-m", "nls_jupyter.supervisor.keep_now"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with ThreeNodes(tmp_path_factory.mktemp("n")) as running:  # short: sockets' paths are bounded
        yield running


def test_a_pod_that_is_drained_from_one_node_finds_on_another_what_its_volume_keeps(nodes: ThreeNodes) -> None:
    first = nodes.bind(NODE, "g0")
    with nodes.kernel(NODE) as kernel:
        nodes.cgroups.move(kernel.pid, first["metadata"]["uid"])
        kernel.run("%%gpu\nfrom nls_jupyter import xp\nkept = xp.arange(100_000)")
        assert nodes.names() == {NODE: ["digits.ipynb"], "node-b": [], "node-c": []}
        assert "are kept as of cell" in hook(kernel)
        nodes.api.delete(PODS, first)
    wait_until(lambda: nodes.names()[NODE] == [])
    second = nodes.bind("node-c", "g2")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    with nodes.kernel("node-c") as kernel:
        nodes.cgroups.move(kernel.pid, second["metadata"]["uid"])
        assert "As of cell" in kernel.run("%%gpu\nbefore = 1\n").text("stderr") + kernel.run("%gpu restore").text()
        assert kernel.run("%%gpu\nint(kept.sum())").result == str(sum(range(100_000)))
        assert nodes.names() == {NODE: [], "node-b": [], "node-c": ["digits.ipynb"]}
        assert kernel.daemon.workload("digits.ipynb")["home"] == [kernel.daemon.status()["gpus"][0]["uuid"]]
