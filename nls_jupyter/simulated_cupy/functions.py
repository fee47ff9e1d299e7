"""The stand-in's functions: NumPy's, by name, with memory that counts against the simulated Gpu."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from nls_jupyter.simulated_cupy.arrays import METHODS, TABLE, _from_host, _operand, _wrap, ndarray

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

_UFUNCS = (
    "absolute add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_or bitwise_xor cbrt ceil "
    "conj cos cosh deg2rad degrees divide equal exp exp2 expm1 fabs floor floor_divide fmax fmin fmod greater "
    "greater_equal hypot invert isfinite isinf isnan left_shift less less_equal log log10 log1p log2 logaddexp "
    "logical_and logical_not logical_or logical_xor maximum minimum mod multiply negative not_equal positive power "
    "rad2deg radians reciprocal remainder right_shift rint sign sin sinh sqrt square subtract tan tanh true_divide "
    "trunc"
)
_FUNCTIONS = (
    "all allclose amax amin any arange argmax argmin argpartition argsort argwhere array_equal atleast_1d atleast_2d "
    "average bincount broadcast_to clip column_stack concatenate count_nonzero cov cumprod cumsum diag diagonal diff "
    "dot dstack einsum expand_dims eye flip histogram hstack identity inner interp isclose kron linspace logspace "
    "matmul max mean median meshgrid min moveaxis nan_to_num nanmax nanmean nanmin nansum nonzero outer pad "
    "partition percentile prod ravel repeat reshape roll round searchsorted sort split squeeze stack std sum "
    "swapaxes take tensordot tile trace transpose tril triu unique var vdot vstack where"
)
# Names of types and constants that mean the same here.
_REEXPORTS = (
    "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128 dtype "
    "e inf nan newaxis pi finfo iinfo result_type promote_types can_cast"
)
REEXPORTS = frozenset(_REEXPORTS.split())


def _host(value: object) -> Any:
    """An argument with every stand-in array replaced by its memory as NumPy sees it."""
    if isinstance(value, ndarray):
        return value.host
    if isinstance(value, (list, tuple)):
        return type(value)(_host(part) for part in value)
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    return value


def _arrays(values: object) -> list[ndarray]:
    if isinstance(values, ndarray):
        return [values]
    return [array for part in values for array in _arrays(part)] if isinstance(values, (list, tuple)) else []


def _result(value: object, sources: list[ndarray]) -> Any:
    if isinstance(value, np.ndarray):
        return _wrap(value, *sources)
    if isinstance(value, np.generic):
        return _from_host(np.asarray(value))
    if isinstance(value, (list, tuple)):
        return type(value)(_result(part, sources) for part in value)
    return value


def _function(name: str) -> Callable[..., Any]:
    numpy_function = getattr(np, name)

    @functools.wraps(numpy_function)
    def call(*args: object, **kwargs: object) -> Any:
        # As on a Gpu: division by zero and overflow give inf and nan without a warning.
        with np.errstate(all="ignore"):
            value = numpy_function(*_host(args), **{key: _host(part) for key, part in kwargs.items()})
        out = kwargs.get("out")
        return out if isinstance(out, ndarray) else _result(value, _arrays(args) + _arrays(tuple(kwargs.values())))

    return call


def _ufunc(name: str) -> Callable[..., Any]:
    numpy_ufunc = getattr(np, name)

    @functools.wraps(numpy_ufunc)
    def call(*args: object, out: ndarray | None = None, dtype: DTypeLike | None = None) -> ndarray:
        if len(args) > numpy_ufunc.nin:
            *args, out = args  # type: ignore[assignment]
        hosts = [_operand(value) for value in args]
        if out is None:
            # The result's memory counts before the host computes it.
            kinds = [h.dtype if hasattr(h, "dtype") else _python_kind(h) for h in hosts]
            kind = dtype or numpy_ufunc.resolve_dtypes((*kinds, None))[-1]
            out = ndarray(np.broadcast_shapes(*(np.shape(h) for h in hosts)), kind)
        with np.errstate(all="ignore"):
            numpy_ufunc(*hosts, out=out.host, dtype=dtype)
        return out

    return call


def _python_kind(value: object) -> Any:
    return np.dtype(bool) if isinstance(value, bool) else type(value)


def array(
    obj: object,
    dtype: DTypeLike | None = None,
    copy: bool | None = True,  # noqa: FBT001, FBT002 - NumPy's signature
    order: str = "K",
    ndmin: int = 0,
) -> ndarray:
    """A stand-in array of anything NumPy makes an array of; NumPy arrays are copied to the simulated Gpu."""
    if isinstance(obj, ndarray):
        result = obj.astype(dtype or obj.dtype, order, copy=bool(copy))
    else:
        host = np.asarray(_host(obj) if isinstance(obj, (list, tuple)) else obj, dtype)
        result = _from_host(host)
    if result.ndim < ndmin:
        result = result.reshape((1,) * (ndmin - result.ndim) + result.shape)
    return result


def asarray(a: object, dtype: DTypeLike | None = None, order: str = "K") -> ndarray:
    """`array` without a copy for what is already on the simulated Gpu with the right type."""
    return array(a, dtype, copy=False, order=order)


def ascontiguousarray(a: object, dtype: DTypeLike | None = None) -> ndarray:
    """`asarray` in C order."""
    result = asarray(a, dtype)
    return result if result.host.flags.c_contiguous else result.copy("C")


def asnumpy(a: object, stream: object = None, order: Any = "C") -> NDArray[Any]:  # noqa: ARG001 - CuPy's signature
    """A NumPy copy of an array, wherever it is."""
    return a.get(order=order) if isinstance(a, ndarray) else np.asarray(a, order=order)


def empty(shape: Any, dtype: DTypeLike = float, order: str = "C") -> ndarray:
    """Memory that counts, and that the host provides only where it is written."""
    return ndarray(shape, dtype, order=order)


# Fresh memory of the stand-in is zero.
zeros = empty


def full(shape: Any, fill_value: object, dtype: DTypeLike | None = None, order: str = "C") -> ndarray:
    """An array of one value."""
    result = ndarray(shape, dtype or np.asarray(_operand(fill_value)).dtype, order=order)
    result.fill(fill_value)
    return result


def ones(shape: Any, dtype: DTypeLike = float, order: str = "C") -> ndarray:
    """An array of ones."""
    return full(shape, 1, dtype, order)


def empty_like(a: ndarray, dtype: DTypeLike | None = None, shape: Any = None) -> ndarray:
    """`empty` with another array's shape and type."""
    return ndarray(a.shape if shape is None else shape, dtype or a.dtype)


zeros_like = empty_like


def full_like(a: ndarray, fill_value: object, dtype: DTypeLike | None = None, shape: Any = None) -> ndarray:
    """`full` with another array's shape and type."""
    return full(a.shape if shape is None else shape, fill_value, dtype or a.dtype)


def ones_like(a: ndarray, dtype: DTypeLike | None = None, shape: Any = None) -> ndarray:
    """`ones` with another array's shape and type."""
    return full_like(a, 1, dtype, shape)


def copyto(dst: ndarray, src: object) -> None:
    """Copy values into an array."""
    np.copyto(dst.host, _operand(src), casting="same_kind")


def copy(a: ndarray) -> ndarray:
    """A copy with its own memory."""
    return a.copy()


def shape(a: ndarray) -> tuple[int, ...]:
    """Length of each axis."""
    return a.shape


# What NumPy offers, and what must count its memory first.
TABLE.update(
    {name: _ufunc(name) for name in _UFUNCS.split()}
    | {name: _function(name) for name in _FUNCTIONS.split()}
    | {"abs": _ufunc("absolute")}
    | {
        function.__name__: function
        for function in (array, asarray, ascontiguousarray, asnumpy, copy, copyto, empty, empty_like, full)
    }
    | {"full_like": full_like, "ones": ones, "ones_like": ones_like, "shape": shape}
    | {"zeros": zeros, "zeros_like": zeros_like}
)

for _method in METHODS.split():
    setattr(ndarray, _method, lambda self, *args, f=TABLE[_method], **kwargs: f(self, *args, **kwargs))
