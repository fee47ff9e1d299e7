"""What tests on a real Gpu share.

With NLS_GPU_TESTS=simulated those of notebooks play on a simulated one, so that they are known to work.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from nls_scheduler.demo.stage import idle_gpus
from nls_scheduler.drivers.nvml import NvmlDriver
from notebooks import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

SIMULATED = os.environ.get("NLS_GPU_TESTS") == "simulated"


@dataclass(frozen=True)
class Node:
    """A bench on one Gpu, and what differs where that is simulated.

    Attributes:
        torch: PyTorch's name of the device with the Gpu's memory: on simulated ones the host.
        total_bytes: what the Gpu has.
    """

    bench: Bench
    simulated: bool
    torch: str
    total_bytes: int

    def used_bytes(self, name: str) -> int:
        """What the driver itself shows of a workload's process, context included."""
        entry = self.bench.daemon.workload(name)
        if self.simulated:
            return int(entry["memory_used_bytes"])
        with contextlib.closing(NvmlDriver()) as driver:
            driver.discover()
            processes = driver.sample()[entry["current"][0]].processes
        return next(used or 0 for identity, used in processes.items() if identity.pid == entry["pid"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """First those that need a Gpu which nobody uses: what others do in this process stays on it."""
    items.sort(key=lambda item: not {"idle", "node"} & set(getattr(item, "fixturenames", ())))


@pytest.fixture
def idle() -> str:
    """The UUID of a real Gpu that nobody uses."""
    if SIMULATED:
        pytest.skip("only a real GPU can do that")
    uuids, about = idle_gpus()
    if not uuids:
        pytest.skip(f"no idle GPU: {about}")
    return uuids[0]


@pytest.fixture
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Notebooks on one Gpu."""
    where = ("1x1GiB",) if SIMULATED else (None, "--gpus", request.getfixturevalue("idle"))
    # Without it cuBLAS may add up in another order each time.
    with Bench(tmp_path_factory.mktemp("bench"), *where, CUBLAS_WORKSPACE_CONFIG=":4096:8") as bench:
        total_bytes = bench.daemon.status()["gpus"][0]["memory_total_bytes"]
        yield Node(bench, SIMULATED, "cpu" if SIMULATED else "cuda", total_bytes)


@pytest.fixture
def cupy():
    return _on_a_gpu("cupy", "CuPy")


@pytest.fixture
def torch():
    return _on_a_gpu("torch", "PyTorch")


def _on_a_gpu(library: str, shown: str) -> Any:
    module = pytest.importorskip(library)
    if not module.cuda.is_available():
        pytest.skip(f"no GPU for {shown}")
    return module
