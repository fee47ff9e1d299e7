"""Named objects as one memory file: a pickle, and beside it the memory of arrays, which no pickle copies.

    header | lengths of the buffers | pickle stream | buffers

Unpickling runs code: only for what the reader's own user asked for.
"""

from __future__ import annotations

import fcntl
import io
import os
import pickle
import struct
import sys
import types
from typing import TYPE_CHECKING, Any

import cloudpickle

from nls_jupyter.between.code import reduce_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_HEADER = struct.Struct("<8sQQ")  # magic, number of buffers, bytes of the stream
_MAGIC = b"NLSPACK1"
# Shorter memory costs less inside the pickle than as a read of its own.
_IN_STREAM_BYTES = 4096
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class CannotCopy(Exception):  # noqa: N818 - says what happened
    """Something cannot be packed, or not be rebuilt; the message is a sentence."""


def pack_named(namespace: Mapping[str, Any], names: Sequence[str], where: str, *, tensors: bool) -> int:
    """Pack variables of `where` as `pack` does. Raises CannotCopy also for one that is not there."""
    for name in names:
        if name not in namespace:
            raise CannotCopy(f"there is no variable {name} in {where}.")
    return pack({name: namespace[name] for name in names}, tensors=tensors)


def pack(values: Mapping[str, Any], *, tensors: bool) -> int:
    """Pack `values` with all that they share.

    Args:
        values: by name.
        tensors: PyTorch's CPU tensors stay tensors; else they become NumPy arrays, as everything on a GPU does.

    Returns:
        A sealed memfd, closed on exec and the caller's to close.

    Raises:
        CannotCopy: one of them cannot be pickled.
        OSError: no memory for it.
    """
    stream, buffers = _pickled(dict(values), tensors)
    lengths = [buffer.nbytes for buffer in buffers]
    head = _HEADER.pack(_MAGIC, len(buffers), stream.nbytes) + struct.pack(f"<{len(lengths)}Q", *lengths)
    descriptor = os.memfd_create("nls-variables", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        for part in (memoryview(head), stream, *buffers):
            _write(descriptor, part)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unpack(descriptor: int) -> dict[str, Any]:
    """What was packed; the descriptor stays the caller's. Raises CannotCopy and OSError."""
    with open(os.dup(descriptor), "rb") as file:  # noqa: PTH123 - a descriptor, no path
        file.seek(0)
        magic, count, stream_bytes = _HEADER.unpack(file.read(_HEADER.size))
        if magic != _MAGIC:
            raise CannotCopy("what arrived are no packed variables.")
        lengths = struct.unpack(f"<{count}Q", file.read(8 * count))
        stream = file.read(stream_bytes)
        buffers = []
        for length in lengths:
            # Memory of its own for each array: a small one must not keep a large one's alive.
            buffers.append(bytearray(length))
            if file.readinto(buffers[-1]) != length:
                raise CannotCopy("what arrived ends too early.")
    try:
        values: dict[str, Any] = pickle.loads(stream, buffers=buffers)  # noqa: S301 - see the module
    except Exception as error:
        raise CannotCopy(f"the variables cannot be rebuilt: {type(error).__name__}: {error}.") from error
    return values


def _pickled(values: dict[str, Any], tensors: bool) -> tuple[memoryview, list[memoryview]]:  # noqa: FBT001
    try:
        return _dump(values, tensors)
    except Exception as error:  # noqa: BLE001 - objects raise what they like; told with the name below
        name, reason = _culprit(values, tensors) or (", ".join(values), error)
        text = str(reason) if isinstance(reason, _StaysOnGpu) else f"{type(reason).__name__}: {reason}"
        raise CannotCopy(f"{name} ({type(values.get(name)).__name__}) cannot be copied: {text.rstrip('.')}.") from None


def _culprit(values: dict[str, Any], tensors: bool) -> tuple[str, Exception] | None:  # noqa: FBT001
    for name, value in values.items():
        try:
            _dump(value, tensors)
        except Exception as error:  # noqa: BLE001 - see `_pickled`
            return name, error
    return None


def _dump(value: object, tensors: bool) -> tuple[memoryview, list[memoryview]]:  # noqa: FBT001
    stream = io.BytesIO()
    pickler = _Pickler(stream, tensors)
    pickler.dump(value)
    return stream.getbuffer(), pickler.buffers


class _StaysOnGpu(Exception):  # noqa: N818 - says what it is
    """Memory on a GPU that has no NumPy array to become; the message says what helps."""


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the memory of arrays outside the stream, and everything on a GPU out of it."""

    def __init__(self, stream: io.BytesIO, tensors: bool) -> None:  # noqa: FBT001
        super().__init__(stream, protocol=5, buffer_callback=self._take)
        self._tensors = tensors
        self.buffers: list[memoryview] = []

    def _take(self, buffer: pickle.PickleBuffer) -> bool:
        """For `pickle`: true leaves the buffer to the stream."""
        memory = buffer.raw()
        if memory.nbytes < _IN_STREAM_BYTES:
            return True
        self.buffers.append(memory)
        return False

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is types.CodeType:
            return reduce_code(obj)
        library = kind.__module__.partition(".")[0]
        if library in _LIBRARIES and not isinstance(obj, type):
            reduced = _LIBRARIES[library](obj, self._tensors)
            if reduced is not NotImplemented:
                return reduced
        elif hasattr(kind, "__cuda_array_interface__"):
            raise _StaysOnGpu(f"{kind.__name__} is memory on a GPU; copy it into a NumPy array first")
        return super().reducer_override(obj)


def _as_numpy(array: Any) -> Any:
    """How NumPy pickles an array, by its memory if that is in one piece."""
    import numpy as np

    return np.ascontiguousarray(array).reshape(array.shape).__reduce_ex__(5)


def _reduce_cupy(obj: Any, tensors: bool) -> Any:  # noqa: ARG001, FBT001 - the signature of all of these
    if isinstance(obj, sys.modules["cupy"].ndarray):
        return _as_numpy(obj.get())
    raise _StaysOnGpu(f"{type(obj).__name__} of CuPy lives on the GPU; only its arrays are copied, as NumPy arrays")


def _reduce_ours(obj: Any, tensors: bool) -> Any:  # noqa: ARG001, FBT001
    arrays = sys.modules.get("nls_jupyter.simulated_cupy.arrays")
    return _as_numpy(obj.host) if arrays is not None and isinstance(obj, arrays.ndarray) else NotImplemented


def _reduce_jax(obj: Any, tensors: bool) -> Any:  # noqa: ARG001, FBT001
    import numpy as np

    return _as_numpy(np.asarray(obj)) if isinstance(obj, sys.modules["jax"].Array) else NotImplemented


def _reduce_numpy(obj: Any, tensors: bool) -> Any:  # noqa: ARG001, FBT001
    """A view with gaps would go through the stream otherwise."""
    import numpy as np

    plain = type(obj) is np.ndarray and obj.nbytes >= _IN_STREAM_BYTES and not obj.dtype.hasobject
    return _as_numpy(obj) if plain and not obj.flags.forc else NotImplemented


def _reduce_torch(obj: Any, tensors: bool) -> Any:  # noqa: FBT001
    torch = sys.modules["torch"]
    if isinstance(obj, torch.nn.Module):
        if any(held.device.type != "cpu" for held in (*obj.parameters(), *obj.buffers())):
            raise _StaysOnGpu(
                f"{type(obj).__name__} has weights on the GPU; copy its state_dict(), or move it to the CPU"
            )
        return NotImplemented
    if not isinstance(obj, torch.Tensor):
        return NotImplemented
    tensor = obj.detach()
    on_cpu = tensor.device.type == "cpu"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        if on_cpu and tensors:
            return NotImplemented
        raise _StaysOnGpu(f"a {tensor.layout} tensor has no NumPy counterpart; use to_dense()")
    tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    if on_cpu and tensors and type(obj) in (torch.Tensor, torch.nn.Parameter):
        memory = tensor.reshape(-1).view(torch.uint8).numpy()
        is_parameter, wants_grad = type(obj) is torch.nn.Parameter, obj.requires_grad and obj.is_leaf
        return _tensor, (memory, str(tensor.dtype).removeprefix("torch."), tensor.shape[:], is_parameter, wants_grad)
    if tensor.dtype is torch.bfloat16:
        raise _StaysOnGpu("NumPy has no bfloat16; use float()")
    return _as_numpy(tensor.numpy())


def _tensor(memory: Any, dtype: str, shape: Sequence[int], is_parameter: bool, wants_grad: bool) -> Any:  # noqa: FBT001
    """For the pickle: a CPU tensor around memory of its own."""
    import torch

    tensor = torch.from_numpy(memory).view(getattr(torch, dtype)).reshape(tuple(shape))
    return torch.nn.Parameter(tensor, wants_grad) if is_parameter else tensor.requires_grad_(wants_grad)


_LIBRARIES: dict[str, Callable[[Any, bool], Any]] = {
    "cupy": _reduce_cupy,
    "cupyx": _reduce_cupy,
    "jax": _reduce_jax,
    "jaxlib": _reduce_jax,
    "nls_jupyter": _reduce_ours,
    "numpy": _reduce_numpy,
    "torch": _reduce_torch,
}


def _write(descriptor: int, content: memoryview) -> None:
    view = content.cast("B")
    while view.nbytes:
        view = view[os.write(descriptor, view) :]
