"""The stand-in's array: host memory that counts against a simulated Gpu, with CuPy's manners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from nls_jupyter.simulated_cupy.cuda import Device
from nls_jupyter.simulated_cupy.cuda.memory import MemoryPointer, alloc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import DTypeLike, NDArray

    from nls_jupyter.simulated_cupy.cuda.memory import Memory, PooledMemory

# The package's functions by name: `functions` fills it, and NumPy's protocols and the methods find them here.
TABLE: dict[str, Callable[..., Any]] = {}
# Methods that are the function of the same name with the array as its first argument.
METHODS = (
    "all any argmax argmin argpartition argsort clip cumprod cumsum diagonal dot max mean min nonzero prod "
    "ravel repeat round searchsorted squeeze std sum swapaxes take trace var"
)


class ndarray(NDArrayOperatorsMixin):  # noqa: N801 - CuPy's name
    """An array on a simulated Gpu. Views share its memory, which counts once and dies with the last of them."""

    __slots__ = ("__weakref__", "_memory", "host")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        shape: int | Sequence[int],
        dtype: DTypeLike = float,
        memptr: MemoryPointer | None = None,
        strides: Sequence[int] | None = None,
        order: str = "C",
    ) -> None:
        """Uninitialised, or a view of `memptr`. Raises the package's OutOfMemoryError."""
        kind = np.dtype(dtype)
        if kind.hasobject:
            raise ValueError(f"Unsupported dtype {kind}")
        sizes = (shape,) if isinstance(shape, SupportsIndex) else tuple(shape)
        if memptr is None:
            size_bytes = kind.itemsize
            for size in sizes:
                size_bytes *= int(size)
            memptr = alloc(size_bytes)
        self._memory = memptr.mem
        #: The same memory as NumPy sees it: for the stand-in itself, never for users.
        self.host: NDArray[Any] = np.ndarray(
            sizes,
            kind,
            buffer=memptr.mem.buffer,
            offset=memptr.ptr - memptr.mem.ptr,
            strides=strides,
            order="F" if order == "F" else "C",
        )

    @classmethod
    def over(cls, host: NDArray[Any], memory: Memory | PooledMemory) -> ndarray:
        """A view of `memory` for a NumPy view of it; the package's functions call this."""
        view = cls.__new__(cls)
        view.host = host
        view._memory = memory
        return view

    # -- what it is -------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.host.shape

    @shape.setter
    def shape(self, shape: tuple[int, ...]) -> None:
        self.host = _reshaped_view(self.host, shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.host.dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.host.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.host.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.host.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.host.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, per axis."""
        return self.host.strides

    @property
    def flags(self) -> Any:
        """Contiguity, as NumPy describes it."""
        return self.host.flags

    @property
    def data(self) -> MemoryPointer:
        """Where the first element is; `.mem` is the memory that its views share."""
        address = int(self.host.__array_interface__["data"][0])
        return MemoryPointer(self._memory, address - self._memory.ptr if self.host.size else 0)

    @property
    def device(self) -> Device:
        """The device that the memory counts against."""
        return Device(self._memory.device_id)

    @property
    def T(self) -> ndarray:  # noqa: N802 - CuPy's name
        """The axes in reverse order, as a view."""
        return self._view(self.host.T)

    @property
    def real(self) -> ndarray:
        """The real part, as a view."""
        return self._view(self.host.real)

    # -- views and copies -------------------------------------------------------------------------------------------
    def _view(self, host: NDArray[Any]) -> ndarray:
        return ndarray.over(host, self._memory)

    def view(self, dtype: DTypeLike | None = None) -> ndarray:
        """The same memory, optionally as another type."""
        return self._view(self.host.view() if dtype is None else self.host.view(dtype))

    def reshape(self, *shape: Any, order: Any = "C") -> ndarray:
        """A view where the layout allows it, else a copy."""
        return _wrap(self.host.reshape(*shape, order=order), self)

    def transpose(self, *axes: Any) -> ndarray:
        """The axes in another order, as a view."""
        return self._view(self.host.transpose(*axes))

    def flatten(self, order: Any = "C") -> ndarray:
        """One axis, always a copy."""
        return _wrap(self.host.flatten(order))

    def copy(self, order: str = "C") -> ndarray:
        """A copy with its own memory."""
        return self.astype(self.dtype, order=order)

    def astype(self, dtype: DTypeLike, order: str = "K", casting: Any = None, *, copy: bool = True) -> ndarray:
        """A copy as another type; the array itself for `copy=False` and the same type."""
        if not copy and np.dtype(dtype) == self.dtype:
            return self
        fortran = order == "F" or (order in "KA" and self.host.flags.fnc)
        result = ndarray(self.shape, dtype, order="F" if fortran else "C")
        np.copyto(result.host, self.host, casting=casting or "unsafe")
        return result

    def fill(self, value: object) -> None:
        """Set all elements."""
        self.host.fill(_operand(value))

    def sort(self, axis: int = -1) -> None:
        """Sort in place."""
        self.host.sort(axis=axis)

    # -- to the host ------------------------------------------------------------------------------------------------
    def get(self, stream: object = None, order: Any = "C", out: NDArray[Any] | None = None) -> NDArray[Any]:  # noqa: ARG002
        """A NumPy copy."""
        if out is None:
            return self.host.copy(order=order)
        np.copyto(out, self.host)
        return out

    def set(self, arr: NDArray[Any], stream: object = None) -> None:  # noqa: ARG002 - CuPy's signature
        """Copy a NumPy array of the same type and shape into this one."""
        if arr.dtype != self.dtype or arr.shape != self.shape:
            raise ValueError(f"set needs {self.dtype} of shape {self.shape}, not {arr.dtype} of shape {arr.shape}.")
        self.host[...] = arr

    def item(self, *args: Any) -> Any:
        """One element as a Python scalar."""
        return self.host.item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python scalars."""
        return self.host.tolist()

    # -- NumPy's protocols; the operators are ufuncs ----------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: object, **kwargs: Any) -> Any:
        function = TABLE.get(ufunc.__name__)
        if method != "__call__" or function is None:
            return NotImplemented
        out = kwargs.pop("out", (None,))
        return function(*inputs, out=out[0], **kwargs)

    def __array_function__(self, func: Any, types: object, args: Any, kwargs: Any) -> Any:
        function = TABLE.get(func.__name__)
        return NotImplemented if function is None else function(*args, **kwargs)

    # -- Python protocols -------------------------------------------------------------------------------------------
    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. "
            "Please use `.get()` to construct a NumPy array explicitly."
        )

    def __getitem__(self, key: object) -> ndarray:
        index = _index(key)
        host = self.host[index]
        if not isinstance(host, np.ndarray):  # one element: CuPy gives a view without axes
            host = self.host[(*index, ...) if isinstance(index, tuple) else (index, ...)]
        return _wrap(host, self)

    def __setitem__(self, key: object, value: object) -> None:
        self.host[_index(key)] = _operand(value)

    def __len__(self) -> int:
        return len(self.host)

    def __iter__(self) -> Iterator[ndarray]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[index] for index in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self.host)

    def __int__(self) -> int:
        return int(self.host)

    def __index__(self) -> int:
        return self.host.__index__()

    def __float__(self) -> float:
        return float(self.host)

    def __complex__(self) -> complex:
        return complex(self.host)

    def __repr__(self) -> str:
        return repr(self.host)

    def __str__(self) -> str:
        return str(self.host)

    def __format__(self, spec: str) -> str:
        return format(self.host, spec)

    def __copy__(self) -> ndarray:
        return self.copy()

    def __deepcopy__(self, memo: object) -> ndarray:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_host, (self.get(),)


def _from_host(host: NDArray[Any]) -> ndarray:
    result = ndarray(host.shape, host.dtype)
    result.host[...] = host
    return result


def _reshaped_view(host: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    view = host.reshape(shape)
    if not np.may_share_memory(view, host):
        raise AttributeError("Incompatible shape for in-place modification; use reshape.")
    return view


def _wrap(host: NDArray[Any], *sources: ndarray) -> ndarray:
    """The result of a NumPy call: a view when it lies in a source's memory, else memory of its own."""
    for source in sources:
        if np.may_share_memory(host, source._memory.buffer):
            return ndarray.over(host, source._memory)
    return _from_host(host)


def _operand(value: object) -> Any:
    """An argument as NumPy takes it. Raises TypeError for what CuPy does not mix with its arrays."""
    if isinstance(value, ndarray):
        return value.host
    if isinstance(value, (bool, int, float, complex, np.generic)) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    ):
        return value
    raise TypeError(f"Unsupported type {type(value)}")


def _index(key: object) -> Any:
    if isinstance(key, tuple):
        return tuple(_index(part) for part in key)
    return key.host if isinstance(key, ndarray) else key
