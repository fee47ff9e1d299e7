"""CuPy's pool and PyTorch's fraction within an allowance, on a real Gpu."""

from __future__ import annotations

import pytest

from nls_jupyter.gpu_process.allocators import Answer, Asking, Follower
from nls_jupyter.gpu_process.allocators.cupy_pool import CupyPool
from nls_jupyter.gpu_process.allocators.torch_fraction import TorchFraction

pytestmark = pytest.mark.gpu

GIB = 2**30


@pytest.fixture
def follower():
    follower = Follower(
        Asking(lambda question: follower._asking.answer(question["number"], Answer(granted=False, reason="no room")))
    )
    yield follower
    follower.follow(None)


def test_cupy_stays_within_the_allowance_and_its_error_says_why(follower):
    cupy = pytest.importorskip("cupy")
    if not cupy.cuda.is_available():
        pytest.skip("no GPU for CuPy")
    follower._add(CupyPool(cupy, follower))
    follower.follow(2 * GIB)
    kept = cupy.zeros(GIB, cupy.uint8)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=r"\[scheduler\] No room\.$"):
        cupy.zeros(2 * GIB, cupy.uint8)
    follower.follow(4 * GIB)
    assert cupy.zeros(2 * GIB, cupy.uint8).size == 2 * GIB
    assert not kept.any()  # a sum would take eight times its memory
    assert follower.trim() >= 2 * GIB


def test_pytorch_stays_within_the_allowance_and_its_error_says_why(follower):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU for PyTorch")
    library = TorchFraction(torch, follower)
    follower._add(library)
    follower.follow(2 * GIB)
    kept = torch.zeros(GIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.cuda.OutOfMemoryError) as failure:
        torch.zeros(2 * GIB, dtype=torch.uint8, device="cuda")
    library.explain(failure.value)
    assert str(failure.value).endswith("[scheduler] No room.")
    follower.follow(4 * GIB)
    assert torch.zeros(2 * GIB, dtype=torch.uint8, device="cuda").numel() == 2 * GIB
    assert not kept.any()  # a sum would take eight times its memory
