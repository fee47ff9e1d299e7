"""CUDA sources of ours, through the real compiler for each kind of Gpu; none is needed for that, nor is one here."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.saved_state import fused_hash, nvrtc

if TYPE_CHECKING:
    from types import ModuleType

COMMON = [(7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


@pytest.fixture(scope="module")
def compiler() -> ctypes.CDLL:
    """That of the machine's CUDA, or from a wheel."""
    with contextlib.suppress(ImportError, RuntimeError):
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return ctypes.CDLL(load_nvidia_dynamic_lib("nvrtc").abs_path)
    assert os.environ.get("CI") != "true", "nvidia-cuda-nvrtc-cu12 is needed to compile what runs on Gpus"
    pytest.skip("nvidia-cuda-nvrtc-cu12 is needed to compile what runs on Gpus")


def kinds(compiler: ctypes.CDLL) -> list[int]:
    """What this version compiles for."""
    count = ctypes.c_int()
    assert compiler.nvrtcGetNumSupportedArchs(ctypes.byref(count)) == 0
    found = (ctypes.c_int * count.value)()
    assert compiler.nvrtcGetSupportedArchs(found) == 0
    return list(found)


@pytest.mark.parametrize("capability", COMMON, ids=lambda each: f"sm_{each[0]}{each[1]}")
def test_fingerprints_compile_for_each_kind_of_gpu(compiler: ctypes.CDLL, capability: tuple[int, int]) -> None:
    if (number := 10 * capability[0] + capability[1]) not in kinds(compiler):
        assert number < min(kinds(compiler)), "only of old ones a compiler knows nothing"
        return
    code = nvrtc.compiled(compiler, fused_hash.SOURCE, capability)
    assert code[:4] == b"\x7fELF"
    assert f".text.{fused_hash.NAME}\0".encode() in code


def test_what_does_not_compile_is_told_with_its_line(compiler: ctypes.CDLL) -> None:
    with pytest.raises(RuntimeError, match=r"NVRTC_ERROR_COMPILATION: nls\.cu\(2\): error"):
        nvrtc.compiled(compiler, "\nneither C nor C++", (9, 0))
    with pytest.raises(RuntimeError, match="invalid value for --gpu-architecture"):
        nvrtc.compiled(compiler, fused_hash.SOURCE, (1, 0))


@pytest.fixture
def torch_with_cuda(compiler: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The installed PyTorch, with a device and the compiler that it would have loaded; no toolkit is in sight."""
    torch = pytest.importorskip("torch")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(nvrtc, "loaded", lambda version: compiler if version == "12.9" else None)
    monkeypatch.setattr(fused_hash, "_compiled_by_torch", functools.cache(fused_hash._compiled_by_torch.__wrapped__))
    return torch  # type: ignore[no-any-return]


def test_pytorch_without_a_cuda_toolkit_has_the_kernel_compiled(
    torch_with_cuda: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []

    def load(code: bytes, names: list[str]) -> dict[str, str]:
        given.append(code)
        return dict.fromkeys(names, "a kernel")

    monkeypatch.setattr(torch_with_cuda.cuda._utils, "_cuda_load_module", load)
    assert fused_hash._compiled_by_torch(0) == "a kernel"
    assert [code[:4] for code in given] == [b"\x7fELF"]
