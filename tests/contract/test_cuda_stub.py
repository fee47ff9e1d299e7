"""The stub of libcuda passes the contract, and says no as it is told to."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from contract.cuda_contract import SCRIPT_VARIABLE, CudaContract, built

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "cuda.txt"
    path.write_text("")
    return path


@pytest.fixture
def environment(library: Path, script: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(library.parent), SCRIPT_VARIABLE: str(script)}


class TestCudaStub(CudaContract):
    """Everything that tests rely on."""

    @pytest.fixture
    def environment(self, environment: dict[str, str]) -> dict[str, str]:  # type: ignore[override]
        return environment

    def test_a_driver_that_cannot_be_initialized_says_why(self, environment, script):
        script.write_text("fail cuInit 100\n")
        assert self.says(environment, "print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(number)))") == [
            "100",
            "3",
        ]

    def test_after_a_sticky_error_every_call_that_needs_the_context_has_it(self, environment):
        code = f"""
def told(line): open(os.environ[{SCRIPT_VARIABLE!r}], "w").write(line)
begin()
print(cuda.cuCtxSynchronize())
told("sticky 700")
print(cuda.cuCtxSynchronize())
told("")
print(name(cuda.cuCtxSynchronize()), allocate(1))
"""
        assert self.says(environment, code) == ["0", "700", "CUDA_ERROR_ILLEGAL_ADDRESS", "700"]


ROUND = """
import sys, subprocess
sys.path.insert(0, {benchmarks!r})
from gpu_checkpoint import Checkpoints
checkpoints = Checkpoints()
for action in sys.argv[1:]:
    print(action, checkpoints.do(action, 1) >= 0)
"""


def test_the_checkpoint_benchmark_names_the_drivers_error(environment: dict[str, str], script: Path) -> None:
    def run(*actions: str) -> subprocess.CompletedProcess[str]:
        code = ROUND.format(benchmarks=str(BENCHMARKS))
        command = [sys.executable, "-c", code, *actions]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)

    assert run("Lock", "Checkpoint", "Restore", "Unlock").stdout.split("\n")[:-1] == [
        "Lock True", "Checkpoint True", "Restore True", "Unlock True",
    ]  # fmt: skip
    failed = run("Lock", "Restore")
    assert failed.returncode != 0
    assert "cuCheckpointProcessRestore: 401 CUDA_ERROR_ILLEGAL_STATE" in failed.stderr
    script.write_text("fail cuCheckpointProcessUnlock 999\n")
    assert "cuCheckpointProcessUnlock: 999 unknown" in run("Unlock").stderr
