"""By what an error of a restore is known for one that more Gpu memory would have spared."""

from __future__ import annotations

import pytest

from nls_jupyter.saved_state.tolerant import why


def error(module: str, name: str, text: str) -> Exception:
    kind = RuntimeError if module == "builtins" else type(name, (RuntimeError,), {"__module__": module})
    return kind(text)


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        ("cupy.cuda.memory", "OutOfMemoryError", "Out of memory allocating 1,024 bytes"),
        ("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorMemoryAllocation: out of memory"),
        ("cupy_backends.cuda.api.driver", "CUDADriverError", "CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
        ("cupy_backends.cuda.libs.cublas", "CUBLASError", "CUBLAS_STATUS_ALLOC_FAILED"),
        ("torch", "OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("torch", "AcceleratorError", "CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
        ("builtins", "RuntimeError", "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        ("builtins", "RuntimeError", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        ("builtins", "RuntimeError", "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        ("jaxlib._jax", "XlaRuntimeError", "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."),
        ("tensorflow.python.framework.errors_impl", "ResourceExhaustedError", "OOM when allocating tensor"),
    ],
)
def test_a_full_gpu_is_known_by_what_each_library_says(module: str, name: str, text: str) -> None:
    assert why(error(module, name, text)).lacks_memory


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [
        ("builtins", "RuntimeError", "CUDA error: an illegal memory access was encountered"),
        ("builtins", "RuntimeError", "my queue is out of memory"),
        ("torch", "AcceleratorError", "CUDA error: unspecified launch failure"),
        ("cupy_backends.cuda.api.runtime", "CUDARuntimeError", "cudaErrorIllegalAddress: an illegal memory access"),
        ("grpc", "RpcError", "RESOURCE_EXHAUSTED: quota"),
        ("mine", "OutOfMemoryError", "cudaErrorMemoryAllocation: mine"),
    ],
)
def test_what_is_no_full_gpu_is_none(module: str, name: str, text: str) -> None:
    assert not why(error(module, name, text)).lacks_memory
