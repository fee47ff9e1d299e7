"""Which errors of a cell have the Gpu asked whether it still answers, and what its answer means."""

from __future__ import annotations

import pytest
from test_dead_gpu import of_pytorch

from nls_jupyter.gpu_process.lost_gpu import why_lost
from nls_jupyter.saved_state import libraries


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What the Gpu is going to answer; empty once it was asked."""
    answers: list[BaseException | None] = []

    def synchronize() -> None:
        if (answer := answers.pop()) is not None:
            raise answer

    monkeypatch.setattr(libraries, "synchronize", synchronize)
    return answers


def raised_from(cause: BaseException, error: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


DEAD = of_pytorch(700, "an illegal memory access was encountered")
OF_A_GPU = [
    DEAD,
    RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    raised_from(DEAD, ValueError("no batch")),
]


@pytest.mark.parametrize("error", OF_A_GPU, ids=repr)
def test_what_may_come_from_a_gpu_has_it_asked(error, asked):
    asked.append(DEAD)
    assert why_lost(error) == "an illegal memory access was encountered"
    asked.append(None)
    assert why_lost(error) is None, "it answers"
    asked.append(of_pytorch(2, "out of memory"))
    assert why_lost(error) is None, "it answers"


@pytest.mark.parametrize("error", [None, NameError("name 'x' is not defined"), KeyboardInterrupt()], ids=repr)
def test_nobody_waits_for_the_gpu_after_any_other_error(error, asked):
    asked.append(DEAD)
    assert why_lost(error) is None
    assert asked
