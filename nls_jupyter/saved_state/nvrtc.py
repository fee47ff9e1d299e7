"""CUDA source for one kind of Gpu, compiled by the NVRTC that PyTorch has loaded.

PyTorch's own `torch.cuda._compile_kernel` (2.9 to 2.13) asks `torch.utils.cpp_extension` for CUDA's headers first. That
imports setuptools, and raises where no CUDA toolkit is installed: wherever PyTorch comes from wheels alone.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

_SUCCESS: Final = 0
OPTIONS: Final = ("--std=c++17",)
"""Beside the kind of Gpu."""


def loaded(cuda_version: str) -> ctypes.CDLL:
    """The compiler of that version of CUDA (`12.8`), which PyTorch loads with itself. Raises OSError without."""
    return ctypes.CDLL(f"libnvrtc.so.{cuda_version.partition('.')[0]}")


def compiled(compiler: ctypes.CDLL, source: str, capability: tuple[int, int]) -> bytes:
    """A module's machine code for Gpus of a compute capability, `(9, 0)`. Raises RuntimeError with the compiler's log.

    A function in it that is `extern "C"` keeps its name.
    """
    program = ctypes.c_void_p()
    made = compiler.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"nls.cu", 0, None, None)
    if made != _SUCCESS:
        raise RuntimeError(f"NVRTC made no program: {_named(compiler, made)}")
    try:
        words = [f"--gpu-architecture=sm_{capability[0]}{capability[1]}".encode(), *(each.encode() for each in OPTIONS)]
        options = (ctypes.c_char_p * len(words))(*words)
        if (code := compiler.nvrtcCompileProgram(program, len(words), options)) != _SUCCESS:
            log = _buffer(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog, program)
            raise RuntimeError(f"NVRTC says {_named(compiler, code)}: {log.rstrip(bytes(1)).decode(errors='replace')}")
        return _buffer(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN, program)
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _buffer(size_of: Any, into: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)) != _SUCCESS:
        return b""
    content = ctypes.create_string_buffer(size.value)
    return content.raw if into(program, content) == _SUCCESS else b""


def _named(compiler: ctypes.CDLL, code: int) -> str:
    compiler.nvrtcGetErrorString.restype = ctypes.c_char_p
    told: bytes | None = compiler.nvrtcGetErrorString(code)
    return (told or b"an unknown error").decode()
