"""PyTorch tensors: each storage is saved once, tensors by offset and strides; on any device.

What autograd recorded cannot be saved. Such a tensor comes back detached, and without `requires_grad`: as a leaf it
would let `backward()` succeed and leave the parameters without a gradient.
"""

from __future__ import annotations

import array
import bisect
import contextlib
import ctypes
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch

from nls_jupyter.between import seams
from nls_jupyter.saved_state import device_hash, torch_operators
from nls_jupyter.saved_state.arena import CHUNK_BYTES
from nls_jupyter.saved_state.blobs import STAGING_BYTES, pieces_of
from nls_jupyter.saved_state.buffers import span_of
from nls_jupyter.saved_state.libraries.blocks import is_array_with_a_block, whole_block
from nls_jupyter.saved_state.looks import ATOM, Look, Memory
from nls_jupyter.saved_state.regions import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType

    from nls_jupyter.between.seam import Seam
    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.manifest import Where
    from nls_jupyter.saved_state.regions import Regions
    from nls_jupyter.saved_state.store import Reader

_P = ParamSpec("_P")
_T = TypeVar("_T")


def library(module: ModuleType, regions: Regions) -> TorchTensors:
    """PyTorch for one save."""
    return TorchTensors(module, regions)


def _past_classes(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """No `__torch_function__` of a class of tensors is told of what `function` does with them."""

    @functools.wraps(function)
    def past_them(*args: _P.args, **options: _P.kwargs) -> _T:
        with seams.TORCH_PAST_CLASSES.here()():
            return function(*args, **options)

    return past_them


class TorchTensors:
    """Reduces tensors; what is in layouts without strides, and subclasses with ways of their own, pickle themselves."""

    def __init__(self, _: ModuleType, regions: Regions) -> None:
        self._regions = regions
        #: Plain NumPy arrays and buffers among the names: a tensor may be made of one (`torch.from_numpy`).
        self._arrays: list[tuple[int, int, Any]] = []
        #: Storages of which none lies within another one, by where they are.
        self._whole: list[tuple[str, int, int, Any]] = []
        self._in_others: dict[int, InOther] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        return {
            torch.Tensor: self._reduce_tensor,
            torch.nn.Parameter: self._reduce_tensor,
            **dict.fromkeys(_subclasses(), self._reduce_tensor),
            **dict.fromkeys(_subclasses(with_ways=True), self._reduce_by_its_class),
            **dict.fromkeys(_compiled_modules(), self._reduce_compiled),
            **torch_operators.handlers(torch),
            torch.UntypedStorage: lambda storage: (_itself, (self._storage(storage, storage),)),
            torch.cuda.Stream: refuse("a CUDA stream"),
            torch.cuda.Event: refuse("a CUDA event"),
        }

    def lookers(self) -> Mapping[type, Looker]:
        """See `Library`."""
        return {
            torch.UntypedStorage: _look_at_storage,
            torch.Tensor: _look,
            torch.nn.Parameter: _look,
            **dict.fromkeys(_subclasses(), _look_at_subclass),
            **dict.fromkeys(_compiled_modules(), _look_at_compiled),
            **dict.fromkeys(_ATOMS, ATOM),
        }

    def prepare(self, values: list[Any]) -> None:
        """Learn where storages, NumPy arrays, and Python's own buffers, lie."""
        self._whole = _whole(values)
        for value in values:
            if type(value) in {bytearray, array.array}:
                start, size_bytes = span_of(value)
                self._arrays.append((start, start + size_bytes, value))
        for value in values:
            if is_array_with_a_block(value):
                memory = value.data.mem
                self._arrays.append((memory.ptr, memory.ptr + memory.size, whole_block(value)))
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return
        from nls_jupyter.saved_state.libraries.numpy_arrays import address, root_of

        for value in values:
            if type(value) is numpy.ndarray and value.flags.forc and not value.dtype.hasobject:
                root = root_of(value)
                if root.flags.forc and root.nbytes and not isinstance(root.base, torch.Tensor):
                    self._arrays.append((address(root), address(root) + root.nbytes, root))

    def _reduce_compiled(self, module: Any) -> Any:
        self._regions.note("a compiled module is saved without its compiled code, and compiled again with the defaults")
        return torch.compile, (seams.TORCH_COMPILED_FROM.of(module),)

    @_past_classes
    def _reduce_tensor(self, tensor: Any) -> Any:
        is_plain = _is_plain(tensor)
        if not is_plain and type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
            return NotImplemented
        recorded = tensor.grad_fn is not None
        if recorded:
            self._regions.note("a tensor with autograd history comes back detached")
        requires_grad = tensor.requires_grad and not recorded
        state = {} if recorded or tensor.grad is None else {"grad": tensor.grad}
        if not recorded:
            state |= {name: hooks for name, seam in _hooks().items() if (hooks := seam.of(tensor))}
        state |= {"attributes": dict(vars(tensor))} if vars(tensor) else {}
        load = load_tensor if is_plain else load_other_tensor
        made_of = (
            self._made_of(tensor, requires_grad)
            if is_plain
            else (tensor.detach().__reduce_ex__(5), type(tensor), requires_grad)
        )
        return load, made_of, state or None, None, None, set_tensor_state

    def _made_of(self, tensor: Any, requires_grad: bool) -> tuple[Any, ...]:  # noqa: FBT001 - as `load_tensor` gets it
        is_parameter = type(tensor) is torch.nn.Parameter
        return (
            self._storage(tensor.detach().untyped_storage(), tensor),
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            (tensor.is_conj(), tensor.is_neg()),
            is_parameter,
            requires_grad,
            tensor.is_inference(),
            None if is_parameter or type(tensor) is torch.Tensor else type(tensor),
        )

    @_past_classes
    def _reduce_by_its_class(self, tensor: Any) -> Any:
        gradient = tensor.grad if tensor.grad_fn is None else None
        if gradient is not None or any(seam.of(tensor) for seam in _hooks().values()):
            self._regions.note("a tensor is saved as its class does it, which may leave out gradient and hooks")
        return tensor.__reduce_ex__(5)

    def _storage(self, storage: Any, culprit: Any) -> object:
        place = seams.TORCH_STORAGE.of(storage)
        if place in self._in_others:
            return self._in_others[place]
        if not storage.resizable() and (found := self._other_around(storage)) is not None:
            self._in_others[place] = InOther(storage, *found)
            return self._in_others[place]
        if _is_page_locked(storage):
            self._regions.note("page-locked memory comes back as ordinary memory")
        if storage.device.type == "cpu" and storage.is_shared():
            self._regions.note("memory shared with other processes comes back as ordinary memory")
        return self._regions.storage(
            _key(storage), lambda: TensorMemory(storage), load_storage, str(storage.device), culprit=culprit
        )

    def _other_around(self, storage: Any) -> tuple[Any, int] | None:
        """What owns the memory that a storage took from elsewhere, where a name leads to that, and the place in it."""
        begin, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        for first, last, owner in self._arrays:
            if first <= begin and end <= last:
                return owner, begin - first
        device = str(storage.device)
        at = bisect.bisect_right(self._whole, (device, begin), key=lambda one: one[:2]) - 1
        if at < 0 or begin == end:
            return None
        where, first, last, whole = self._whole[at]
        is_other = seams.TORCH_STORAGE.of(whole) != seams.TORCH_STORAGE.of(storage)
        return (whole, begin - first) if where == device and end <= last and is_other else None


@_past_classes
def _whole(values: list[Any]) -> list[tuple[str, int, int, Any]]:
    """The storages behind tensors without those that lie within another one, in order."""
    storages: dict[int, Any] = {}
    for value in values:
        if issubclass(type(value), (torch.Tensor, torch.UntypedStorage)):
            storage = value if type(value) is torch.UntypedStorage else value.detach().untyped_storage()
            storages.setdefault(seams.TORCH_STORAGE.of(storage), storage)
    found = [(str(one.device), one.data_ptr(), one.data_ptr() + one.nbytes(), one) for one in storages.values()]
    found.sort(key=lambda one: (*one[:2], -one[2], not one[3].resizable()))
    whole: list[tuple[str, int, int, Any]] = []
    for device, first, last, storage in found:
        if first < last and not (whole and whole[-1][0] == device and last <= whole[-1][2]):
            whole.append((device, first, last, storage))
    return whole


# What a class of tensors has that knows better how it is pickled, or comes between its tensors and PyTorch; past its
# `__torch_function__` there is a way.
_WAYS = (
    *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__slots__"),
    *("__torch_dispatch__", "__getattribute__", "__setattr__"),
)


def _subclasses(*, with_ways: bool = False) -> Iterator[type]:
    """Those of tensors without ways of their own, or those that have some."""
    todo = type.__subclasses__(torch.Tensor)
    while todo:
        kind = todo.pop()
        todo += type.__subclasses__(kind)
        base = torch.nn.Parameter if issubclass(kind, torch.nn.Parameter) else torch.Tensor
        added = {name for one in {*kind.__mro__} - {*base.__mro__} for name in vars(one)}
        if kind is not base and with_ways != added.isdisjoint(_WAYS):
            yield kind


def _hooks() -> dict[str, Seam]:
    """What a tensor tells of its gradients to, by what the state calls it."""
    return {"hooks": seams.TORCH_HOOKS, "gradient hooks": seams.TORCH_GRADIENT_HOOKS}


def _is_page_locked(storage: Any) -> bool:
    """Never initializes CUDA: to ask its driver about an address would (`CUDAHooks.cpp`, PyTorch 2.13)."""
    if storage.device.type != "cpu" or not torch.cuda.is_initialized():
        return False
    return bool(_as_bytes(storage).is_pinned())  # a storage's own asks in a way that is deprecated


def _compiled_modules() -> list[type]:
    kind = seams.TORCH_COMPILED.here(None)  # nobody has imported the compiler, most of the time
    return [kind] if kind is not None else []


def _look_at_compiled(module: Any) -> Look:
    return Look(children=(seams.TORCH_COMPILED_FROM.of(module),))


_ATOMS = (torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format)


def _key(storage: Any) -> object:
    return ("torch", seams.TORCH_STORAGE.of(storage), storage.nbytes())


def _is_plain(tensor: Any) -> bool:
    return not (
        tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta"
    )


@_past_classes
def _look(tensor: Any) -> Look | None:
    """What a walk sees."""
    if not _is_plain(tensor):
        return None
    storage = tensor.detach().untyped_storage()
    place = (storage.data_ptr(), storage.nbytes(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    kind = (tensor.dtype, str(tensor.device), tensor.requires_grad, tensor.is_conj(), tensor.is_neg())
    token = repr((place, kind, tensor.grad_fn is not None)).encode()
    memory = _memory(storage)
    grad = tensor.grad if tensor.is_leaf else None
    return Look(token, (grad, *(seam.of(tensor) for seam in _hooks().values()), vars(tensor)), memory)


def _look_at_subclass(tensor: Any) -> Look | None:
    look = _look(tensor)
    return None if look is None else look._replace(children=(type(tensor), *look.children))


def _look_at_storage(storage: Any) -> Look:
    return Look(repr((storage.data_ptr(), storage.nbytes(), str(storage.device))).encode(), (), _memory(storage))


def _memory(storage: Any) -> Memory:
    space = "host" if storage.device.type == "cpu" else f"{storage.device.type} {storage.device.index}"
    return Memory(space, storage.data_ptr(), storage.nbytes(), _key(storage), lambda: TensorMemory(storage))


class InOther:
    """A storage that is another object's memory; keeps the storage alive, whose address is its identity."""

    def __init__(self, storage: Any, owner: Any, offset: int) -> None:
        self._storage = storage
        self._owner = owner
        self._offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return storage_in_array, (self._owner, self._offset, self._storage.nbytes())


class TensorMemory:
    """A tensor's storage as a `store.Source`."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.size_bytes: int = storage.nbytes()
        self.where: Where = "host" if storage.device.type == "cpu" else "gpu"
        self._own = threading.local()

    def memory(self) -> memoryview | None:
        """See `Source`."""
        if self.where == "gpu" or not self.size_bytes:
            return None
        return memoryview(_at(self._storage.data_ptr(), self.size_bytes))

    def pieces(self) -> Iterator[memoryview]:
        """See `Source`."""
        if (memory := self.memory()) is not None:
            yield from pieces_of(memory)
            return
        for number in range(-(-self.size_bytes // CHUNK_BYTES)):
            yield self.piece(number)

    def piece(self, first: int, count: int = 1) -> memoryview:
        """See `OnDevice`."""
        if not hasattr(self._own, "buffer"):
            if self._storage.device.type == "cuda":
                torch.cuda.synchronize(self._storage.device)
            self._own.buffer = _staging(self._storage.device, self.size_bytes)
        buffer, start = self._own.buffer, first * CHUNK_BYTES
        size_bytes = min(count * CHUNK_BYTES, self.size_bytes - start)
        buffer[:size_bytes].copy_(_as_bytes(self._storage)[start : start + size_bytes])
        return memoryview(_at(buffer.data_ptr(), size_bytes))

    def fingerprints(self) -> list[bytes] | None:
        """See `device_hash`; `None` where the device has no room for it, or the storage does not begin at a word."""
        if not self.size_bytes:
            return None
        try:
            return device_hash.of_tensor(_as_bytes(self._storage))
        except torch.cuda.OutOfMemoryError:
            return None


def _staging(device: Any, size_bytes: int) -> Any:
    """Host memory for one piece, page-locked for CUDA: the way through ordinary memory is several times slower."""
    # Not on the user's default device.
    size_bytes = min(STAGING_BYTES, size_bytes)
    return torch.empty(size_bytes, dtype=torch.uint8, device="cpu", pin_memory=device.type == "cuda")


def _at(address: int, size_bytes: int) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * size_bytes).from_address(address)


def _as_bytes(storage: Any) -> Any:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (storage.nbytes(),), (1,))


def load_storage(reader: Reader, region: int, device: str) -> Any:
    """A new storage with a region's content. Raises PyTorch's out-of-memory error."""
    size_bytes = reader.size_bytes(region)
    storage = torch.UntypedStorage(size_bytes, device=device)
    if not size_bytes:
        return storage
    if storage.device.type == "cpu":
        reader.read_into(region, memoryview(_at(storage.data_ptr(), size_bytes)))
    else:
        on_device, buffers = _as_bytes(storage), dict[int, Any]()

        def staging() -> memoryview:
            buffer = _staging(storage.device, size_bytes)
            buffers[threading.get_ident()] = buffer
            return memoryview(_at(buffer.data_ptr(), buffer.numel())).cast("B")

        def write(offset: int, content: memoryview) -> None:
            buffer = buffers[threading.get_ident()][: content.nbytes]
            on_device[offset : offset + content.nbytes].copy_(buffer)

        reader.read_each(region, staging, write)
    return storage


def storage_in_array(owner: Any, offset: int, size_bytes: int) -> Any:
    """A storage over the memory of another one, of a restored NumPy or CuPy array, or of a `bytearray` or `array`."""
    if type(owner) is torch.UntypedStorage:
        return torch.from_dlpack(_as_bytes(owner)[offset : offset + size_bytes]).untyped_storage()
    if type(owner) in {bytearray, array.array}:
        content = memoryview(owner).cast("B")[offset : offset + size_bytes]
        return torch.frombuffer(content, dtype=torch.uint8).untyped_storage()
    if hasattr(owner, "__dlpack__") and is_array_with_a_block(owner):
        return torch.from_dlpack(owner[offset : offset + size_bytes]).untyped_storage()
    from nls_jupyter.saved_state.libraries.numpy_arrays import as_bytes

    flat = as_bytes(owner)
    assert flat is not None  # noqa: S101 - only dense arrays are remembered
    return torch.from_numpy(flat[offset : offset + size_bytes]).untyped_storage()


def _itself(storage: Any) -> Any:
    return storage


@_past_classes
def load_tensor(
    storage: Any,
    dtype: Any,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    lazy: tuple[bool, bool],
    is_parameter: bool,  # noqa: FBT001 - called by the unpickler
    requires_grad: bool,  # noqa: FBT001
    is_inference: bool = False,  # noqa: FBT001, FBT002
    kind: type | None = None,
) -> Any:
    """A tensor over a restored storage. `lazy`: PyTorch's pending conjugation and negation."""
    with torch.inference_mode() if is_inference else contextlib.nullcontext():
        tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
        if lazy[0]:
            tensor = tensor.conj()
        if lazy[1]:
            tensor = seams.TORCH_NEGATED.of(torch)(tensor)
        if is_parameter:
            return torch.nn.Parameter(tensor, requires_grad)
        if kind is not None:
            tensor = tensor.as_subclass(kind)
        return tensor.requires_grad_(requires_grad) if requires_grad else tensor


@_past_classes
def load_other_tensor(made: tuple[Any, ...], kind: type, requires_grad: bool) -> Any:  # noqa: FBT001 - see `load_tensor`
    """A tensor in a layout without strides, by what PyTorch makes it of."""
    make, args = made
    tensor = make(*args)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


@_past_classes
def set_tensor_state(tensor: Any, state: dict[str, Any]) -> None:
    """The gradient, hooks and attributes that the user set."""
    if "grad" in state:
        tensor.grad = state["grad"]
    for name, seam in _hooks().items():
        if name in state:
            seam.put(tensor, state[name])
    vars(tensor).update(state.get("attributes", {}))
