"""Random numbers of the stand-in: NumPy's generators, with results on the simulated Gpu."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from nls_jupyter.simulated_cupy.arrays import ndarray
from nls_jupyter.simulated_cupy.functions import array

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = (
    "beta binomial choice exponential gamma normal permutation poisson rand randint randn random random_sample "
    "standard_normal uniform"
)
_GENERATOR_NAMES = "choice exponential integers normal permutation poisson random standard_normal uniform"
_state = np.random.RandomState()


def seed(value: int | None = None) -> None:
    """Start the sequence of the module's functions afresh."""
    _state.seed(value)


def _on_gpu(draw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(draw)
    def call(*args: Any, dtype: Any = None, **kwargs: Any) -> ndarray:
        values = draw(*(a.get() if isinstance(a, ndarray) else a for a in args), **kwargs)
        return array(values, dtype)

    return call


class Generator:
    """`numpy.random.Generator` with results on the simulated Gpu; made by `default_rng`."""

    def __init__(self, seed: int | None = None) -> None:
        self._generator = np.random.default_rng(seed)

    def __getattr__(self, name: str) -> Callable[..., ndarray]:
        if name not in _GENERATOR_NAMES.split():
            raise AttributeError(f"The simulated xp's Generator has no {name!r}: {_GENERATOR_NAMES}.")
        return _on_gpu(getattr(self._generator, name))


def default_rng(seed: int | None = None) -> Generator:
    """A generator of its own."""
    return Generator(seed)


def __getattr__(name: str) -> Callable[..., ndarray]:
    if name not in _NAMES.split():
        raise AttributeError(f"The simulated xp.random has no {name!r}: it is a small stand-in for CuPy.")
    return _on_gpu(getattr(_state, name))


def __dir__() -> list[str]:
    return sorted([*_NAMES.split(), "Generator", "default_rng", "seed"])
