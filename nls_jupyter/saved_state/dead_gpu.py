"""Whether an error says that its process can use its Gpu no more: then the process has to end, and nothing is saved.

After such an error CUDA answers every call in the process with the same one: "the process must be terminated and
relaunched" (CUDA Runtime API, cudaError).
"""

from __future__ import annotations

from nls_jupyter.saved_state.kinds import module_of, name_of, text_of

#: What a reply calls such an error.
DEAD_GPU = "DeadGpuError"
# By their numbers in cudaError, which are the same in the driver's CUresult.
_LOST = {
    214: "uncorrectable ECC error encountered",
    220: "uncorrectable NVLink error detected during the execution",
    226: "Invalid access of peer GPU memory over nvlink or a hardware error",
    700: "an illegal memory access was encountered",
    702: "the launch timed out and was terminated",
    709: "context is destroyed",
    710: "device-side assert triggered",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
    721: "tensor memory not completely freed",
}
# Errors of CUDA, and where they have the number: PyTorch's from 2.8 on, CuPy's.
_NUMBERED = {
    ("torch", "AcceleratorError"): "error_code",
    ("cupy_backends.cuda.api.runtime", "CUDARuntimeError"): "status",
    ("cupy_backends.cuda.api.driver", "CUDADriverError"): "status",
}
# PyTorch before 2.8 raises a RuntimeError that begins so.
_PLAIN = "CUDA error: "


def why_dead(error: BaseException) -> str | None:
    """CUDA's own words for it; `None` for an error that the process survives."""
    kind = type(error)
    attribute = _NUMBERED.get((module_of(kind), name_of(kind)))
    if attribute is not None:
        return _LOST.get(getattr(error, attribute, None) or 0) or _by_text(error)
    return _by_text(error) if kind is RuntimeError else None


def _by_text(error: BaseException) -> str | None:
    text = text_of(error)
    return next((words for words in _LOST.values() if text.startswith(_PLAIN + words)), None)
