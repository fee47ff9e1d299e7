"""The kernel for fingerprints against those of NumPy: its arithmetic in Python, its source compiled for this CPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nls_jupyter.saved_state import device_hash, fused_hash
from nls_jupyter.saved_state.arena import CHUNK_BYTES

if TYPE_CHECKING:
    from pathlib import Path

MASK = (1 << 64) - 1
# In front of the source: what CUDA's compiler knows, for one thread alone.
FOR_THIS_CPU = """
#define __device__
#define __forceinline__ inline
#define __global__
#define __shared__ static
struct Place { int x; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
static Place threadIdx{0}, blockDim{1}, blockIdx{0}, gridDim{1};
static void __syncthreads() {}
static unsigned long long __shfl_down_sync(unsigned, unsigned long long, int) { return 0; }
"""


def on_host(content: bytes) -> list[bytes]:
    """Of whole words and the rest."""
    whole = len(content) // 8 * 8
    words = np.frombuffer(content[:whole], np.uint64)
    return device_hash.fingerprints(np, words, np.frombuffer(content[whole:], np.uint8))


def places(thread: int, threads: int, size: int) -> list[tuple[int, int]]:
    """Where one thread of a chunk's reads words, and of how many bytes: the loops of the kernel."""
    whole, words = size // 8, (size + 7) // 8
    found, place = [], 2 * thread
    while place + 1 < whole:
        found += [(place, 8), (place + 1, 8)]
        place += 2 * threads
    end = place + 2
    while place < end and place < words:
        found.append((place, 8 if place < whole else size % 8))
        place += 1
    return found


def mixed(word: int) -> int:
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return word ^ word >> 31


def emulated(content: bytes, threads: int) -> bytes:
    """One chunk."""
    sums = [0, 0]
    for thread in range(threads):
        for place, count in places(thread, threads, len(content)):
            word = int.from_bytes(content[8 * place : 8 * place + count], "little")
            for lane, key in enumerate((0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)):
                sums[lane] = (sums[lane] + mixed(word ^ ((place + 1) * key & MASK))) & MASK
    return b"".join(total.to_bytes(8, "little") for total in sums)


@given(st.binary(min_size=1, max_size=700), st.sampled_from([1, 2, 32, 512]))
def test_the_kernels_arithmetic_gives_the_hosts_fingerprints(content: bytes, threads: int) -> None:
    assert [emulated(content, threads)] == on_host(content)


@pytest.mark.parametrize("size", [CHUNK_BYTES, CHUNK_BYTES - 1, CHUNK_BYTES - 9, CHUNK_BYTES - 16, 8 * 1024 + 8])
def test_its_threads_read_each_word_of_a_chunk_once(size: int) -> None:
    read = [place for thread in range(fused_hash.THREADS) for place in places(thread, fused_hash.THREADS, size)]
    assert len(read) == -(-size // 8)
    assert sorted(read) == [(place, min(8, size - 8 * place)) for place in range(-(-size // 8))]


@pytest.mark.parametrize("size", [1, 8, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES, 5000 * CHUNK_BYTES - 3])
def test_chunks_and_the_length_of_the_last_are_what_they_consist_of(size: int) -> None:
    (blocks, _, _), (chunks, last_bytes) = fused_hash._layout(size)
    assert (chunks - 1) * CHUNK_BYTES + last_bytes == size
    assert 0 < last_bytes <= CHUNK_BYTES
    assert 1 <= blocks <= chunks


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ to compile the kernel's source for this CPU")
    folder: Path = tmp_path_factory.mktemp("kernel")
    (folder / "kernel.cpp").write_text(FOR_THIS_CPU + fused_hash.SOURCE)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", folder / "kernel.so", folder / "kernel.cpp"]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(folder / "kernel.so").nls_fingerprints


class FakeCupy(types.ModuleType):
    """As much of CuPy as compiles a kernel and launches it: here on this CPU."""

    uint64, int32 = ctypes.c_uint64, ctypes.c_int32
    cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDevice=lambda: 0))

    def __init__(self, compiled: Any, fails: Exception | None = None) -> None:
        super().__init__("cupy")
        self.compiled, self.fails, self.launches = compiled, fails, 0

    def RawKernel(self, source: str, name: str, options: tuple[str, ...]) -> Any:  # noqa: N802
        assert (source, name, options) == (fused_hash.SOURCE, "nls_fingerprints", ("--std=c++17",))
        return self

    def compile(self) -> None:
        if self.fails is not None:
            raise self.fails

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...]) -> None:
        assert (len(grid), block) == (3, (512, 1, 1))
        self.launches += 1
        self.compiled(*args[:-1], args[-1].ctypes.data_as(ctypes.c_void_p))

    def empty(self, count: int, dtype: Any) -> Any:
        assert dtype is self.uint64
        return np.zeros(count, np.uint64).view(OnDevice)


class OnDevice(np.ndarray[Any, Any]):
    def get(self) -> Any:
        return np.asarray(self)


def aligned(content: bytes) -> tuple[Any, int]:
    """The memory, and where it begins: at a multiple of 16 bytes."""
    memory = np.zeros(len(content) + 16, np.uint8)
    start = -memory.ctypes.data % 16
    memory[start : start + len(content)] = np.frombuffer(content, np.uint8)
    return memory, memory.ctypes.data + start


SIZES = [1, 7, 8, 9, 16, 23, 1000, CHUNK_BYTES - 3, CHUNK_BYTES, CHUNK_BYTES + 5, 3 * CHUNK_BYTES + 777]


@pytest.mark.parametrize("size", SIZES)
def test_its_source_gives_the_hosts_fingerprints(compiled: Any, size: int) -> None:
    content = np.random.default_rng(size).bytes(size)
    memory, address = aligned(content)
    cupy = FakeCupy(compiled)
    assert fused_hash.of_block(cupy, address, size) == on_host(content)
    assert cupy.launches == 1
    assert memory is not None


def test_a_switch_chooses_the_libraries_own_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(fused_hash.SWITCH, "launches")
    assert fused_hash.of_block(FakeCupy(None), 16, 8) is None


def test_memory_that_begins_elsewhere_is_left_to_them() -> None:
    assert fused_hash.of_block(FakeCupy(None), 8, 8) is None


def test_without_a_compiler_they_do_it_and_an_error_that_ends_the_context_is_raised() -> None:
    assert fused_hash.of_block(FakeCupy(None, RuntimeError("no NVRTC")), 16, 8) is None
    with pytest.raises(RuntimeError, match="launch failure"):
        fused_hash.of_block(FakeCupy(None, RuntimeError("CUDA error: unspecified launch failure")), 16, 8)
