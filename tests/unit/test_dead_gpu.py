"""Errors after which a process can use its Gpu no more, as PyTorch and CuPy raise them, and those that it survives."""

from __future__ import annotations

from typing import Any

import pytest

from nls_jupyter.gpu_process.kernel import _failed
from nls_jupyter.saved_state import why_dead

HELP = "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"


def of_pytorch(code: int | None, text: str) -> BaseException:
    """As PyTorch makes it: a class written in C, which gets its number after its text."""
    error = type("AcceleratorError", (RuntimeError,), {"__module__": "torch"})(f"CUDA error: {text}{HELP}")
    if code is not None:
        vars(error)["error_code"] = code
    return error


def of_cupy(module: str, name: str, code: int, text: str) -> BaseException:
    """As CuPy makes it."""

    def begin(self: Any, status: int) -> None:
        self.status = status
        super(kind, self).__init__(text)  # type: ignore[misc]

    kind = type(name, (RuntimeError,), {"__module__": f"cupy_backends.cuda.api.{module}", "__init__": begin})
    return kind(code)  # type: ignore[no-any-return]


DEAD = [
    of_pytorch(700, "an illegal memory access was encountered"),
    of_pytorch(710, "device-side assert triggered"),
    of_pytorch(None, "unspecified launch failure"),
    RuntimeError(f"CUDA error: device-side assert triggered{HELP}"),
    of_cupy("runtime", "CUDARuntimeError", 719, "cudaErrorLaunchFailure: unspecified launch failure"),
    of_cupy("driver", "CUDADriverError", 716, "CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address"),
]
SURVIVED = [
    of_pytorch(2, "out of memory"),
    of_pytorch(1, "invalid argument"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("an illegal memory access was encountered"),
    ValueError("CUDA error: device-side assert triggered"),
    of_cupy("runtime", "CUDARuntimeError", 2, "cudaErrorMemoryAllocation: out of memory"),
    of_cupy("runtime", "CUDARuntimeError", 400, "cudaErrorInvalidResourceHandle: invalid resource handle"),
]


@pytest.mark.parametrize("error", DEAD, ids=repr)
def test_an_error_that_leaves_no_gpu_is_told_as_that_in_cudas_words(error: BaseException) -> None:
    reply = _failed(error)
    assert reply["ename"] == "DeadGpuError"
    assert reply["evalue"] in str(error)
    assert reply["evalue"] == why_dead(error)


@pytest.mark.parametrize("error", SURVIVED, ids=repr)
def test_any_other_error_is_told_as_it_is(error: BaseException) -> None:
    assert why_dead(error) is None
    assert _failed(error)["ename"] == type(error).__name__


def test_the_real_pytorch_has_the_type() -> None:
    torch = pytest.importorskip("torch", minversion="2.8")
    error = torch.AcceleratorError("CUDA error: misaligned address")
    assert why_dead(error) == "misaligned address"
    error.error_code = 700
    assert why_dead(error) == "an illegal memory access was encountered"
