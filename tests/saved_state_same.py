"""Whether what came back of an object is what it was: equal in type and, all the way down, in content."""

from __future__ import annotations

import collections
import dataclasses
import enum
import io
import itertools
import math
import random
import types
import weakref
from typing import Any


def state(value: Any) -> Any:
    """What an instance consists of, for comparing."""
    if of("torch", "Optimizer")(value):
        return value.__getstate__()
    if hasattr(value, "__dict__"):
        return vars(value)
    if type(value) is itertools.count:  # from Python 3.14 on only its text tells
        return repr(value)
    return value.__reduce_ex__(4)[1:] if not isinstance(value, type) else None


def same(one: Any, other: Any, seen: set[tuple[int, int]] | None = None) -> bool:
    """Whether `other` is what came back of `one`: equal in type and, all the way down, in content."""
    seen = set() if seen is None else seen
    if (id(one), id(other)) in seen or one is other:
        return True
    seen.add((id(one), id(other)))
    if type(one) is not type(other) and type(one).__qualname__ != type(other).__qualname__:
        return False
    for kind, compare in COMPARISONS:
        if kind(one):
            return bool(compare(one, other, seen))
    return plain(one, other, seen)


def plain(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    """The last resort: equal, or of equal parts."""
    if isinstance(one, (str, bytes, int, complex, type(None))):
        return bool(one == other)
    if type(one).__eq__ is not object.__eq__ and type(one) is type(other):
        with_truth = one == other
        if isinstance(with_truth, bool) and with_truth:
            return True
    before, after = state(one), state(other)
    if hasattr(type(one), "__setstate__") and isinstance(before, dict) and isinstance(after, dict):
        # Their order is its own code's.
        before, after = (dict(sorted(values.items(), key=lambda item: str(item[0]))) for values in (before, after))
    return same(before, after, seen) if before is not None else repr(one) == repr(other)


def mappings(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if hasattr(one, "__dict__") and not same(getattr(one, "__dict__", {}), getattr(other, "__dict__", {}), seen):
        return False
    return same(list(one.keys()), list(other.keys()), seen) and same(list(one.values()), list(other.values()), seen)


def sequences(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return len(one) == len(other) and all(same(a, b, seen) for a, b in zip(one, other, strict=True))


def functions(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    cells = [[cell.cell_contents for cell in f.__closure__ or ()] for f in (one, other)]
    parts = [
        [f.__name__, f.__qualname__, f.__doc__, f.__defaults__, f.__kwdefaults__, vars(f), f.__annotations__]
        for f in (one, other)
    ]
    return one.__code__ == other.__code__ and same(parts[0], parts[1], seen) and same(cells[0], cells[1], seen)


def classes(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return one is other or (one.__qualname__, one.__mro__[-1]) == (other.__qualname__, other.__mro__[-1])


def sets(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    if one == other:
        return True
    pairs = [[same(member, there, {*seen}) for there in other] for member in one]
    return len(one) == len(other) and all(map(any, pairs)) and all(map(any, zip(*pairs, strict=True)))


def arrays(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    import numpy as np

    same_kind = (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
    if one.dtype.hasobject:
        return same_kind and same(one.tolist(), other.tolist(), seen)
    return same_kind and np.array_equal(one, other, equal_nan=one.dtype.kind in "fcMm")


def tensors(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    kind = [(t.dtype, t.shape, t.layout, t.device, t.requires_grad, t.is_conj()) for t in (one, other)]
    if kind[0] != kind[1]:
        return False
    if one.device.type == "meta":
        return True
    import torch

    if one.is_quantized:
        return torch.equal(one.dequantize(), other.dequantize())
    dense = [t.detach().to_dense() for t in (one, other)]
    equal = torch.equal(*(d.float() if d.dtype.itemsize == 1 and d.is_floating_point() else d for d in dense))
    return equal and (not one.is_leaf or same(one.grad, other.grad, seen))


def of(module: str, *names: str) -> Any:
    """Whether a value is of a library's types, by name: the library need not be there."""

    def check(value: Any) -> bool:
        return any(k.__module__.partition(".")[0] == module and k.__name__ in names for k in type(value).__mro__)

    return check


def tables(one: Any, other: Any, _: Any) -> bool:
    return one.equals(other) and repr(one) == repr(other)


def floats(one: Any, other: Any, _: Any) -> bool:
    return (math.isnan(one) and math.isnan(other)) or repr(one) == repr(other)


def pictures(one: Any, other: Any, _: Any) -> bool:
    drawn = [io.BytesIO(), io.BytesIO()]
    for figure, file in zip((one, other), drawn, strict=True):
        figure.savefig(file, format="raw")
    return drawn[0].getvalue() == drawn[1].getvalue()


def by_drawing(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    figures = [artist.figure for artist in (one, other)]
    return same(figures[0], figures[1], seen)


def random_numbers(one: Any, other: Any, _: Any) -> bool:
    return [one.random() for _ in range(3)] == [other.random() for _ in range(3)]


def modules(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    parts = [(repr(m), m.training, dict(m.state_dict()), list(m.parameters())) for m in (one, other)]
    return same(parts[0], parts[1], seen)


def frozen(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return same((one.dist.name, one.args, one.kwds), (other.dist.name, other.args, other.kwds), seen)


def methods(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return one.__name__ == other.__name__ and same(one.__self__, other.__self__, seen)


def caches(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return one.cache_parameters() == other.cache_parameters() and same(one.__wrapped__, other.__wrapped__, seen)


def groups(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return one.message == other.message and same(one.exceptions, other.exceptions, seen)


def records(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    values = [[getattr(record, field.name) for field in dataclasses.fields(record)] for record in (one, other)]
    return same(values[0], values[1], seen)


def spatial(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return same(one.data, other.data, seen) and same(one.query([0, 0]), other.query([0, 0]), seen)


def neighbours(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return same(one.__getstate__()[:4], other.__getstate__()[:4], seen)


def scales(one: Any, other: Any, seen: set[tuple[int, int]]) -> bool:
    return same((one.vmin, one.vmax, one([2.0])), (other.vmin, other.vmax, other([2.0])), seen)


_SEARCH_TREES = ("BinaryTree", "KDTree", "BallTree", "KDTree64", "BallTree64")
COMPARISONS = (
    (lambda v: isinstance(v, float), floats),
    (of("numpy", "Generator", "RandomState"), random_numbers),
    (lambda v: isinstance(v, random.Random), random_numbers),
    (of("numpy", "ndarray"), arrays),
    (of("torch", "Tensor"), tensors),
    (of("torch", "Module"), modules),
    (of("torch", "Generator"), lambda a, b, s: same(a.get_state(), b.get_state(), s)),
    (of("torch", "UntypedStorage"), lambda a, b, _: bytes(a) == bytes(b)),
    (of("pandas", "DataFrame", "Series", "Index"), tables),
    (of("pandas", "GroupBy", "BaseWindow"), lambda a, b, s: same(a.sum(), b.sum(), s)),
    (of("scipy", "spmatrix", "sparray"), lambda a, b, s: a.format == b.format and same(a.toarray(), b.toarray(), s)),
    (of("scipy", "cKDTree"), spatial),
    (of("scipy", "Rotation"), lambda a, b, s: same(a.as_quat(), b.as_quat(), s)),
    (of("scipy", "rv_frozen"), frozen),
    (of("sklearn", "Tree"), lambda a, b, s: same(a.__getstate__(), b.__getstate__(), s)),
    (of("sklearn", *_SEARCH_TREES), neighbours),
    (of("matplotlib", "Figure"), pictures),
    (of("matplotlib", "Normalize"), scales),
    (of("matplotlib", "Artist"), by_drawing),
    (lambda v: isinstance(v, weakref.ref), lambda a, b, s: same(a(), b(), s)),
    (lambda v: isinstance(v, memoryview), lambda a, b, _: (a == b, a.readonly) == (True, b.readonly)),
    (lambda v: type(v).__name__ == "_lru_cache_wrapper", caches),
    (lambda v: isinstance(v, enum.Enum), lambda a, b, _: (a.name, a.value) == (b.name, b.value)),
    (lambda v: isinstance(v, type), classes),
    (lambda v: isinstance(v, types.FunctionType), functions),
    (lambda v: isinstance(v, (types.MethodType, types.BuiltinMethodType)), methods),
    (lambda v: isinstance(v, (io.StringIO, io.BytesIO)), lambda a, b, _: a.getvalue() == b.getvalue()),
    (lambda v: isinstance(v, types.ModuleType), lambda a, b, _: a is b),
    (lambda v: isinstance(v, BaseExceptionGroup), groups),
    (lambda v: isinstance(v, BaseException), lambda a, b, s: same((a.args, vars(a)), (b.args, vars(b)), s)),
    (lambda v: isinstance(v, collections.deque), lambda a, b, s: a.maxlen == b.maxlen and sequences(a, b, s)),
    (lambda v: isinstance(v, (dict, types.MappingProxyType)), mappings),
    (lambda v: isinstance(v, (list, tuple)), sequences),
    (lambda v: isinstance(v, (set, frozenset)), sets),
    (dataclasses.is_dataclass, records),
)
