"""What we say of libcuda in C and in ctypes, held against NVIDIA's own bindings: names, numbers and sizes."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
STUBS = sorted(HERE.glob("cuda*_stub.c"))
TYPES = {"unsigned int": ctypes.c_uint, "cuuint64_t": ctypes.c_uint64, "int": ctypes.c_int}


@pytest.fixture(scope="module")
def declared() -> str:
    """What cuda-bindings takes from cuda.h."""
    found = importlib.util.find_spec("cuda.bindings") if importlib.util.find_spec("cuda") else None
    if found is None or not found.submodule_search_locations:
        assert os.environ.get("CI") != "true", "cuda-bindings is needed to look names up"
        pytest.skip("cuda-bindings is needed to look names up")
    return (Path(next(iter(found.submodule_search_locations))) / "cydriver.pxd").read_text(encoding="utf-8")


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_each_function_of_a_stub_is_one_of_the_driver_s(stub: Path, declared: str) -> None:
    ours = {name.removesuffix("_v2") for name in re.findall(r"^int (cu\w+)\(", stub.read_text(), re.MULTILINE)}
    assert len(ours) > 10
    assert ours <= set(re.findall(r"^cdef CUresult (cu\w+)\(", declared, re.MULTILINE))


def test_the_arguments_of_a_lock_are_as_large_as_the_driver_s(declared: str) -> None:
    sys.path.insert(0, str(HERE.parent.parent / "benchmarks"))
    try:
        from gpu_checkpoint import LockArguments
    finally:
        del sys.path[0]
    (body,) = re.findall(r"cdef struct CUcheckpointLockArgs_st:\n((?:        .*\n)+)", declared)
    fields: list[tuple[str, Any]] = []
    for kind, name, count in re.findall(r"^\s+([\w ]+?) (\w+)(?:\[(\d+)\])?$", body, re.MULTILINE):
        fields.append((name, TYPES[kind] * int(count) if count else TYPES[kind]))
    theirs: Any = type("Theirs", (ctypes.Structure,), {"_fields_": fields})
    assert ctypes.sizeof(LockArguments) == ctypes.sizeof(theirs) == 64
    assert LockArguments.timeout_ms.offset == theirs.timeoutMs.offset


def test_numbers_are_the_driver_s(declared: str) -> None:
    assert declared
    from cuda.bindings import driver

    from contract import cuda_contract, test_cuda_checkpoints
    from nls_jupyter.gpu_process import warm_imports
    from nls_scheduler.drivers.checkpoints import State

    results, states = driver.CUresult, driver.CUprocessState
    assert warm_imports._CUDA_NOT_INITIALIZED == cuda_contract.NOT_INITIALIZED == results.CUDA_ERROR_NOT_INITIALIZED
    assert cuda_contract.OUT_OF_MEMORY == test_cuda_checkpoints.OUT_OF_MEMORY == results.CUDA_ERROR_OUT_OF_MEMORY
    assert cuda_contract.ILLEGAL_STATE == results.CUDA_ERROR_ILLEGAL_STATE
    assert test_cuda_checkpoints.NOT_PERMITTED == results.CUDA_ERROR_NOT_PERMITTED
    assert test_cuda_checkpoints.NOT_SUPPORTED == results.CUDA_ERROR_NOT_SUPPORTED
    assert test_cuda_checkpoints.NOT_READY == results.CUDA_ERROR_NOT_READY
    for number, state in enumerate(State):
        assert getattr(states, f"CU_PROCESS_STATE_{state.name}") == number
    assert [cuda_contract.RUNNING, cuda_contract.LOCKED, cuda_contract.CHECKPOINTED] == [0, 1, 2]


def test_errors_that_cost_a_process_its_gpu_have_one_number_in_the_driver_and_the_runtime(declared: str) -> None:
    assert declared
    from cuda.bindings import driver, runtime

    from nls_jupyter.saved_state import dead_gpu

    known = {int(member) for member in driver.CUresult} & {int(member) for member in runtime.cudaError_t}
    assert set(dead_gpu._LOST) <= known
