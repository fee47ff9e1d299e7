"""The fingerprints of `device_hash` by one launch, which reads the memory once: a block of threads per chunk.

`NLS_DEVICE_HASH=launches` has them made by the libraries' own operations instead, some twenty launches per 8 MiB, to
compare. So are they where a library cannot compile this, or the memory does not begin at a multiple of 16 bytes.
"""

from __future__ import annotations

import functools
import logging
import os
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import TORCH_KERNEL
from nls_jupyter.saved_state import nvrtc
from nls_jupyter.saved_state.arena import CHUNK_BYTES
from nls_jupyter.saved_state.dead_gpu import why_dead

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)

SWITCH: Final = "NLS_DEVICE_HASH"
THREADS: Final = 512
_ALIGNMENT_BYTES = 16
# Enough to fill any Gpu; each takes the next chunk when it is done.
_MOST_BLOCKS = 1024
NAME: Final = "nls_fingerprints"

#: Each thread takes two neighbouring words at a time; what is missing to a whole last word counts as zeros.
SOURCE: Final = r"""
typedef unsigned long long Word;

static __device__ __forceinline__ Word mixed(Word word) {
    word ^= word >> 30;
    word *= 0xBF58476D1CE4E5B9ULL;
    word ^= word >> 27;
    word *= 0x94D049BB133111EBULL;
    return word ^ (word >> 31);
}

static __device__ __forceinline__ Word last_word(const unsigned char* bytes, int count) {
    Word word = 0;
    for (int i = 0; i < count; i++) word |= (Word)bytes[i] << (8 * i);
    return word;
}

extern "C" __global__ void nls_fingerprints(const unsigned char* memory, int chunks, int last_bytes, Word* found) {
    const Word LANE_0 = 0x9E3779B97F4A7C15ULL, LANE_1 = 0xC2B2AE3D27D4EB4FULL;
    __shared__ Word of_warps[2][32];
    for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const unsigned char* bytes = memory + (Word)chunk * CHUNK_BYTES;
        const int size = chunk == chunks - 1 ? last_bytes : CHUNK_BYTES;
        const int whole = size / 8, words = (size + 7) / 8;
        Word sum_0 = 0, sum_1 = 0;
        int place = 2 * threadIdx.x;
        for (; place + 1 < whole; place += 2 * blockDim.x) {
            const ulonglong2 pair = *reinterpret_cast<const ulonglong2*>(bytes + 8 * place);
            sum_0 += mixed(pair.x ^ (Word)(place + 1) * LANE_0) + mixed(pair.y ^ (Word)(place + 2) * LANE_0);
            sum_1 += mixed(pair.x ^ (Word)(place + 1) * LANE_1) + mixed(pair.y ^ (Word)(place + 2) * LANE_1);
        }
        for (const int end = place + 2; place < end && place < words; place++) {
            const Word word = last_word(bytes + 8 * place, place < whole ? 8 : size % 8);
            sum_0 += mixed(word ^ (Word)(place + 1) * LANE_0);
            sum_1 += mixed(word ^ (Word)(place + 1) * LANE_1);
        }
        for (int step = 16; step; step >>= 1) {
            sum_0 += __shfl_down_sync(0xffffffffu, sum_0, step);
            sum_1 += __shfl_down_sync(0xffffffffu, sum_1, step);
        }
        if (threadIdx.x % 32 == 0) {
            of_warps[0][threadIdx.x / 32] = sum_0;
            of_warps[1][threadIdx.x / 32] = sum_1;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int warp = 1; warp < (blockDim.x + 31) / 32; warp++) {
                sum_0 += of_warps[0][warp];
                sum_1 += of_warps[1][warp];
            }
            found[2 * (Word)chunk] = sum_0;
            found[2 * (Word)chunk + 1] = sum_1;
        }
        __syncthreads();
    }
}
""".replace("CHUNK_BYTES", str(CHUNK_BYTES))


def of_tensor(content: Any) -> list[bytes] | None:
    """Of a flat PyTorch tensor of bytes on a CUDA device; `None` where it is to be done otherwise."""
    if not content.is_cuda or not _applies(content.data_ptr()):
        return None
    import torch

    with torch.cuda.device(content.device):
        if (kernel := _compiled_by_torch(content.device.index)) is None:
            return None
        grid, sizes = _layout(content.numel())
        found = torch.empty(2 * sizes[0], dtype=torch.int64, device=content.device)
        kernel(grid, (THREADS, 1, 1), [content, *sizes, found])
        return _rows(found.cpu().numpy())


def of_block(cupy: Any, address: int, size_bytes: int) -> list[bytes] | None:
    """Of memory of CuPy's current device; `None` where it is to be done otherwise."""
    if not hasattr(cupy, "RawKernel") or not _applies(address):
        return None
    if (kernel := _compiled_by_cupy(cupy, cupy.cuda.runtime.getDevice())) is None:
        return None
    grid, sizes = _layout(size_bytes)
    found = cupy.empty(2 * sizes[0], cupy.uint64)
    kernel(grid, (THREADS, 1, 1), (cupy.uint64(address), *map(cupy.int32, sizes), found))
    return _rows(found.get())


def _applies(address: int) -> bool:
    return os.environ.get(SWITCH) != "launches" and address % _ALIGNMENT_BYTES == 0


def _layout(size_bytes: int) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The grid; the number of chunks, and the last one's length."""
    chunks = -(-size_bytes // CHUNK_BYTES)
    return (min(chunks, _MOST_BLOCKS), 1, 1), (chunks, size_bytes - (chunks - 1) * CHUNK_BYTES)


def _rows(found: Any) -> list[bytes]:
    return [row.tobytes() for row in found.reshape(-1, 2)]


@functools.cache
def _compiled_by_torch(_: int) -> Any:
    """For one device: a loaded kernel is of its context."""
    import torch

    def kernel() -> Any:
        load = TORCH_KERNEL.of(torch.cuda)
        code = nvrtc.compiled(nvrtc.loaded(torch.version.cuda), SOURCE, torch.cuda.get_device_capability())
        return load(code, [NAME])[NAME]

    return _tried(kernel)


@functools.cache
def _compiled_by_cupy(cupy: Any, _: int) -> Any:
    kernel = cupy.RawKernel(SOURCE, NAME, options=nvrtc.OPTIONS)
    return kernel if _tried(lambda: kernel.compile() or kernel) is not None else None


def _tried(compiled: Callable[[], Any]) -> Any:
    """`None` where there is no compiler, or it refuses."""
    try:
        return compiled()
    except Exception as error:
        if why_dead(error) is not None:
            raise
        _log.info("Memory of Gpus is looked at by many launches: %s", error)
        return None
