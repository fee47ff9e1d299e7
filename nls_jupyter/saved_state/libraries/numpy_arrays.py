"""NumPy arrays: the array that owns the memory is saved once, the others as views of it."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from nls_jupyter.between import seams
from nls_jupyter.saved_state.buffers import lender_behind, owner_behind, span_of
from nls_jupyter.saved_state.looks import ATOM, Look, Memory, held_by_array
from nls_jupyter.saved_state.regions import READER, HostMemory, UnsavableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import ModuleType

    from numpy.typing import NDArray

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.regions import Regions
    from nls_jupyter.saved_state.store import Reader

    Array = NDArray[Any]

_WRITEABLE = 0x400  # NPY_ARRAY_WRITEABLE of NumPy's C API


def library(module: ModuleType, regions: Regions) -> NumpyArrays:
    """NumPy for one save."""
    return NumpyArrays(module, regions)


class NumpyArrays:
    """Reduces `numpy.ndarray`s, and those of subclasses that are such an array with attributes."""

    def __init__(self, _: ModuleType, regions: Regions) -> None:
        self._regions = regions
        # Plain arrays over the memory that arrays of subclasses own, by these; one for all that show it.
        self._plain: dict[int, tuple[Array, Array]] = {}

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        subclasses = dict.fromkeys(_subclasses(), self._reduce_subclass)
        arrays = {np.ndarray: self._reduce, np.memmap: self._reduce_mapped}
        records = dict.fromkeys(_records(), self._reduce_record)
        return {**subclasses, **arrays, **records, np.finfo: lambda limits: (np.finfo, (limits.dtype,))}

    def prepare(self, values: list[Any]) -> None:
        """Nothing needs to be known beforehand."""

    def lookers(self) -> Mapping[type, Looker]:
        """See `Library`."""
        subclasses = dict.fromkeys(_subclasses(), _look_at_subclass)
        records = dict.fromkeys(_records(), _look_at_record)
        atoms = dict.fromkeys(_immutable_types(), ATOM)
        return {np.ndarray: _look, **subclasses, **records, **atoms, type(np.dtype("V")): _look_at_fields}

    def _reduce(self, array: Array) -> Any:
        root = self._root_of(array)
        if root is not array and (view := _as_view(array, root)) is not None:
            return view
        if array.dtype.hasobject or not array.dtype.itemsize:
            if root is not array and array.size:
                self._regions.note("an array that shows a part of another one's objects comes back apart from it")
            return _by_fields(array) if array.dtype.names else _by_objects(array)
        if root.dtype.hasobject:
            self._regions.note("an array that shows a part of another one's objects comes back apart from it")
        if array is root and (tensor := _tensor_below(array)) is not None:
            return _numpy_of, (tensor,)
        if array is root and (over := _over_owner(array)) is not None:
            return over
        if array is root and (lender := lender_behind(array.base)) is not None:
            self._regions.note(f"an array over the memory of a {lender} comes back with memory of its own")
        flat = as_bytes(array)
        if flat is None:  # neither dense nor inside its root: only its values can be kept
            array = array.copy(order="K")
            flat = as_bytes(array)
            assert flat is not None  # noqa: S101 - a copy in its own order is dense
        region = self._regions.add(HostMemory(flat.data, flat.nbytes), _key(array) if array is root else None, array)
        layout = "C" if array.flags.c_contiguous else "F" if array.flags.f_contiguous else array.strides
        return load_array, (READER, region, array.dtype, array.shape, layout, is_writeable(array))

    def _reduce_record(self, record: Any) -> Any:
        """One that shows a row of an array goes on doing so."""
        if type(record.base) is not np.ndarray and not issubclass(type(record.base), np.ndarray):
            return NotImplemented  # its own
        root = self._root_of(record.base)
        place = _place_in(root, record)
        if place is None:
            self._regions.note("a record of an array comes back apart from it")
            return NotImplemented
        return load_record, (root, *place)

    def _root_of(self, array: Array) -> Array:
        """The plain array over all the memory that `array` shows."""
        owner = root_of(array)
        if type(owner) is np.ndarray:
            return owner
        return self._plain.setdefault(id(owner), (owner, as_plain(owner)))[1]

    def _reduce_subclass(self, array: Array) -> Any:
        root, plain = self._root_of(array), as_plain(array)
        attributes = getattr(array, "__dict__", None)
        whole = root if _place(root) == _place(plain) else plain
        return load_subclass, (whole, type(array)), dict(attributes) if attributes else None, None, None, set_attributes

    def _reduce_mapped(self, array: Any) -> Any:
        self._regions.met_mapped = True
        if self._regions.in_copy:
            raise UnsavableError("memory that its process goes on changing", array)
        self._regions.note("a memory-mapped array comes back in ordinary memory, without its file")
        return NotImplemented


@functools.cache
def _immutable_types() -> tuple[type, ...]:
    return (*_dtype_types(), *_scalar_types())


def _scalar_types() -> Iterator[type]:
    """Immutable ones; a `void` may be written to."""
    todo: list[type] = [np.generic]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if kind.__module__ == "numpy" and not issubclass(kind, np.void):
            yield kind


def _records() -> tuple[type, ...]:
    return np.void, np.record


def _subclasses() -> list[type]:
    """Subclasses whose arrays are memory, as any array's, and attributes."""
    ways = ("__reduce__", "__reduce_ex__", "__setstate__")
    found: list[type] = []
    todo: list[type] = np.ndarray.__subclasses__()
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        plain = all(getattr(kind, way) is getattr(np.ndarray, way) for way in ways)
        if kind is np.ma.MaskedArray or (plain and kind is not np.memmap):
            found.append(kind)
    return found


def _dtype_types() -> list[type]:
    return [type(np.dtype(kind)) for kind in "?bBhHiIlLqQefdgFDGSU"] + [
        type(np.dtype("M8[s]")),
        type(np.dtype("m8[s]")),
    ]


def _key(root: Array) -> object:
    return ("host", address(root), root.nbytes)


def _look(array: Array) -> Look | None:
    """What a walk sees; `None` for arrays whose memory is not copied as it is."""
    if array.dtype.kind == "T":  # its strings lie elsewhere
        return None
    whole = root_of(array)
    root = whole if type(whole) is np.ndarray else as_plain(whole)
    start = address(root)  # to ask for it costs
    first = start if root is array else address(array)
    if array.dtype == root.dtype == np.dtype(object):
        token = repr((array.shape, array.strides, first - start, is_writeable(array))).encode()
        return Look(token, (whole,) if whole is not array else tuple(array.flat))
    if array.dtype.hasobject or root.dtype.hasobject:
        if root is array or _as_view(array, root) is None:
            return None
        shown = (array.dtype, array.shape, array.strides, first - start, is_writeable(array))
        return Look(repr(shown).encode(), (whole,))
    if not root.dtype.itemsize or not array.dtype.itemsize:
        return None
    owner = owner_behind(root.base)
    if owner is not None and root is array and _over_owner(array) is not None:  # the content is the owner's
        over = (first - span_of(owner)[0], array.shape, array.strides, is_writeable(array))
        return Look(repr((over, array.dtype, array.dtype.metadata)).encode(), (owner,))
    if not _is_dense(root) or (root is not array and not _is_within(array, first, start, root.nbytes)):
        return None
    key = ("host", start, root.nbytes)
    memory = Memory("host", start, root.nbytes, key, functools.partial(_memory_of, root))
    place = (first, start, array.shape, array.strides, is_writeable(array), root.shape, root.strides)
    # The text of a type costs more than all else here.
    kind = array.dtype.char if array.dtype.isbuiltin == 1 else (array.dtype, array.dtype.metadata)
    return Look(repr((place, kind)).encode(), (array.base,), memory)


def _memory_of(root: Array) -> HostMemory:
    flat = as_bytes(root)
    assert flat is not None  # noqa: S101 - it was looked at
    return HostMemory(flat.data, flat.nbytes)


def _look_at_fields(kind: np.dtype[Any]) -> Look:
    """A type of several fields, whose names may be changed in place."""
    return Look(repr((kind, kind.metadata)).encode("utf-8", "surrogatepass"))


def _look_at_record(record: Any) -> Look | None:
    if not isinstance(record.base, np.ndarray) or (place := _place_in(root_of(record.base), record)) is None:
        return None
    return Look(repr(place).encode(), (record.base,))


def _place_in(root: Array, record: Any) -> tuple[Any, ...] | None:
    """Where in `root` a record's memory is, with its type; `None` where that cannot be told."""
    offset = int(record.__array_interface__["data"][0]) - address(root)
    if record.dtype.hasobject or root.dtype.hasobject or as_bytes(root) is None:
        return None
    if not 0 <= offset <= root.nbytes - record.nbytes:
        return None
    return record.dtype, offset, is_writeable(record)


def _look_at_subclass(array: Array) -> Look | None:
    if array.dtype.hasobject:
        look: Look | None = Look(children=(array.base, *held_by_array(array)), is_opaque=True)
    else:
        look = _look(as_plain(array))
    attributes = getattr(array, "__dict__", None)
    return look if look is None or not attributes else look._replace(children=(*look.children, attributes))


def root_of(array: Array) -> Array:
    """The array whose memory `array` shows; itself if it owns its memory or took it from elsewhere."""
    node = array
    while True:
        base: Any = node.base
        if type(base).__name__ == "DummyArray":  # what NumPy's as_strided puts in between
            base = base.base
        if _shows_array(base):
            base = base.obj
        if not isinstance(base, np.ndarray) or isinstance(base, np.memmap):
            return node
        node = base


def as_plain(array: Array) -> Array:
    """The same memory without what a subclass makes of it."""
    return np.ndarray.view(array, np.ndarray)


def is_writeable(array: Any) -> bool:
    """Whether it may be written to, also one of `np.broadcast_arrays`, which warns whoever asks its flag by name."""
    return bool(array.flags.num & _WRITEABLE)


def _place(array: Array) -> tuple[object, ...]:
    return address(array), array.shape, array.strides, array.dtype, is_writeable(array)


def as_bytes(array: Array) -> NDArray[np.uint8] | None:
    """A dense array's memory in address order, as a view; `None` for an array with gaps."""
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    dense = array.transpose(order)
    return dense.reshape(-1).view(np.uint8) if dense.flags.c_contiguous else None


def _is_dense(array: Array) -> bool:
    return array.flags.forc or as_bytes(array) is not None


def _is_within(array: Array, first: int, start: int, size_bytes: int) -> bool:
    """Whether an array, whose first element is at `first`, lies in the memory that begins at `start`."""
    if not array.size:
        return True
    dense = array.flags.forc
    low, high = (first, first + array.nbytes) if dense else _bounds(array, first)
    return start <= low and high <= start + size_bytes


def _bounds(array: Array, first: int) -> tuple[int, int]:
    """The ends of the memory of an array with elements, of which the first is at `first`."""
    reaches = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    below = sum(reach for reach in reaches if reach < 0)
    return first + below, first + sum(reaches) - below + array.itemsize


def _as_view(array: Array, root: Array) -> Any:
    """How `array` is made of `root`, or `None` when it is no plain view of it."""
    start, first = address(root), address(array)
    offset = first - start if array.size else 0
    if not _is_within(array, first, start, root.nbytes) or not root.dtype.itemsize or not array.dtype.itemsize:
        return None
    if array.dtype.hasobject or root.dtype.hasobject:
        if not root.flags.forc:
            return None
        for field, at in _parts_of(root.dtype, array.dtype):
            if not array.size or (offset - at) % root.itemsize == 0:
                first = (offset - at) // root.itemsize if array.size else 0
                place = root, array.shape, array.strides, first * root.itemsize, field
                return load_object_view, (*place, is_writeable(array))
        return None
    if not _is_dense(root):
        return None
    return load_view, (root, array.dtype, array.shape, array.strides, offset, is_writeable(array))


def _parts_of(whole: np.dtype[Any], part: np.dtype[Any]) -> Iterator[tuple[str | None, int]]:
    """The fields of `whole` that are a `part` each, and where in it they are; `None` for `whole` itself."""
    if whole == part:
        yield None, 0
    for name, (kind, at, *_) in (whole.fields or {}).items():
        if kind.base == part:
            yield name, at


def _by_fields(array: Array) -> Any:
    """Objects among other fields; NumPy's own way has an array for each row of a field of several numbers."""
    fields = [(name, array[name].copy()) for name in array.dtype.names or ()]
    return _filled(array, fields, fill_fields)


def _by_objects(array: Array) -> Any:
    """NumPy's own way gives an array its memory with its objects, of which one may show that memory itself."""
    if array.dtype != np.dtype(object):
        return NotImplemented
    return _filled(array, list(array.flat), fill_objects)


def _filled(array: Array, content: Any, fill: Any) -> Any:
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    if not is_writeable(array):
        content, fill = (fill, content), fill_for_good
    return np.zeros, (array.shape, array.dtype, order), content, None, None, fill


def _over_owner(array: Array) -> Any:
    """How an array over the memory of Python's own `bytearray` and the like is made of that, or `None`."""
    owner = owner_behind(array.base)
    if owner is None or array.dtype.hasobject or not array.nbytes:
        return None
    start, size_bytes = span_of(owner)
    low, high = _bounds(array, address(array))
    if low < start or high > start + size_bytes:
        return None
    return load_over, (owner, array.dtype, array.shape, array.strides, address(array) - start, is_writeable(array))


def _shows_array(base: Any) -> bool:
    """A memory view of a plain array; a restore makes arrays with gaps so, too."""
    owner: Any = base.obj if type(base) is memoryview else None
    return type(owner) is np.ndarray


def address(array: Array) -> int:
    """Where the first element is."""
    return int(array.__array_interface__["data"][0])


def _tensor_below(array: Array) -> Any:
    """The PyTorch tensor whose memory `array` is (`tensor.numpy()`), or `None`."""
    torch = sys.modules.get("torch")
    tensor = array.base
    if torch is None or not isinstance(tensor, torch.Tensor):
        return None
    with seams.TORCH_PAST_CLASSES.here()():
        same = (
            tensor.device.type == "cpu"
            and tensor.data_ptr() == address(array)
            and tuple(tensor.shape) == array.shape
            and tuple(step * array.itemsize for step in tensor.stride()) == array.strides
        )
        return tensor.detach() if same else None


def _numpy_of(tensor: Any) -> Array:
    array: Array = tensor.numpy()
    return array


def load_array(
    reader: Reader,
    region: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    layout: str | tuple[int, ...],
    writeable: bool,  # noqa: FBT001 - called by the unpickler
) -> Array:
    """An array with memory of its own from a region."""
    array: Array
    if layout in {"C", "F"}:
        array = np.empty(shape, dtype, order="F" if layout == "F" else "C")
    else:
        memory = np.empty(reader.size_bytes(region), np.uint8)
        array = np.ndarray(shape, dtype, buffer=memory.data, strides=layout)  # type: ignore[arg-type]
    flat = as_bytes(array)
    assert flat is not None  # noqa: S101 - only dense arrays are saved with their layout
    if flat.size:
        reader.read_into(region, flat.data)
    array.flags.writeable = writeable
    return array


def load_subclass(plain: Array, kind: type[Array]) -> Array:
    """An array of a subclass over a restored array's memory."""
    return np.ndarray.view(plain, kind)


def set_attributes(array: Array, attributes: dict[str, Any]) -> None:
    """The attributes that it had, whatever its class gives to a new view."""
    vars(array).clear()
    vars(array).update(attributes)


def load_view(
    root: Array,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,  # noqa: FBT001 - called by the unpickler
) -> Array:
    """A view of a restored array."""
    with _to_be_shown(root, writeable=writeable):
        view: Array = np.ndarray(shape, dtype, buffer=as_bytes(root), offset=offset, strides=strides)
    if view.flags.writeable and not writeable:
        view.flags.writeable = False
    return view


@contextlib.contextmanager
def _to_be_shown(root: Array, *, writeable: bool) -> Iterator[None]:
    """One that was made read-only has views from before that may be written to."""
    later_read_only = writeable and not root.flags.writeable
    if later_read_only:
        root.flags.writeable = True
    yield
    if later_read_only:
        root.flags.writeable = False


def load_over(
    owner: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    writeable: bool,  # noqa: FBT001 - called by the unpickler
) -> Array:
    """An array over the memory of a restored object."""
    array: Array = np.ndarray(shape, dtype, buffer=memoryview(owner).cast("B"), offset=offset, strides=strides)
    if array.flags.writeable and not writeable:
        array.flags.writeable = False
    return array


def load_object_view(
    root: Array,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    offset: int,
    field: str | None = None,
    writeable: bool = True,  # noqa: FBT001, FBT002 - called by the unpickler
) -> Array:
    """A view of a restored array with objects, or of a field of it, whose memory cannot be addressed as bytes."""
    with _to_be_shown(root, writeable=writeable):
        flat = root.reshape(-1) if root.flags.c_contiguous else root.T.reshape(-1)
        part = flat[offset // flat.itemsize :]
        part = part if field is None else part[field]
        return np.lib.stride_tricks.as_strided(part, shape, strides, writeable=writeable)


def fill_fields(array: Array, fields: list[tuple[str, Array]]) -> None:
    """Give an array the content of its fields."""
    for name, content in fields:
        array[name] = content


def fill_objects(array: Array, objects: list[Any]) -> None:
    """Give an array its objects, in the order of its axes."""
    array[...] = np.fromiter(objects, object, len(objects)).reshape(array.shape)


def fill_for_good(array: Array, content: tuple[Any, Any]) -> None:
    """Give a read-only array what another one gets so."""
    fill, values = content
    fill(array, values)
    array.flags.writeable = False


def load_record(root: Array, dtype: np.dtype[Any], offset: int, writeable: bool) -> Any:  # noqa: FBT001 - as above
    """A record that shows a row of a restored array."""
    return load_view(root, dtype, (), (), offset, writeable)[()]
