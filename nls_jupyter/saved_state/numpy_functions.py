"""Functions of cells as ufuncs of NumPy's (`np.frompyfunc`, a `np.vectorize` that was called), which pickle looks up.

NumPy tells nobody which function one calls; Python's collector of garbage knows.
"""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# `ufunc_frompyfunc` of `numpy/_core/src/umath/umathmodule.c` names them so.
_OF_A_FUNCTION: Final = " (vectorized)"


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The class of ufuncs and the reducer of those of Python's functions, if NumPy is imported."""
    if (found := getattr(sys.modules.get("numpy"), "ufunc", None)) is not None:
        yield found, _reduce


def _reduce(ufunc: Any) -> Any:
    if type(ufunc) is not sys.modules["numpy"].ufunc or not ufunc.__name__.endswith(_OF_A_FUNCTION):
        return NotImplemented
    function = next(iter(gc.get_referents(ufunc)), None)
    if not callable(function):
        return NotImplemented
    options = {} if ufunc.identity is None else {"identity": ufunc.identity}
    return ufunc_of, (function, ufunc.nin, ufunc.nout, options)


def ufunc_of(function: Callable[..., Any], takes: int, gives: int, options: dict[str, Any]) -> Any:
    """Called by the unpickler."""
    return importlib.import_module("numpy").frompyfunc(function, takes, gives, **options)
