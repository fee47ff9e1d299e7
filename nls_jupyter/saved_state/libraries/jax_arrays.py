"""JAX arrays: through NumPy, since their memory is nobody else's to address. They come back on the default device."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import JAX_ARRAY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.regions import Regions


def library(module: ModuleType, regions: Regions) -> JaxArrays:
    """JAX for one save."""
    return JaxArrays(module, regions)


class JaxArrays:
    """Reduces the concrete arrays of this version of JAX."""

    def __init__(self, module: ModuleType, regions: Regions) -> None:
        self._module = module
        self._regions = regions

    def handlers(self) -> Mapping[type, Handler]:
        """See `Library`."""
        kind = JAX_ARRAY.here(None)  # `jax.Array` is abstract
        return {} if kind is None else {kind: self._reduce}

    def lookers(self) -> Mapping[type, Looker]:
        """A JAX array is pickled at each save."""
        return {}

    def prepare(self, values: list[Any]) -> None:
        """Nothing needs to be known beforehand."""

    def _reduce(self, array: Any) -> Any:
        if self._module.dtypes.issubdtype(array.dtype, self._module.dtypes.prng_key):
            return _load_key, (importlib.import_module("numpy").asarray(self._module.random.key_data(array)),)
        self._regions.note("a JAX array goes through NumPy and comes back on the default device")
        return _load, (importlib.import_module("numpy").asarray(array),)


def _load(content: Any) -> Any:
    return importlib.import_module("jax.numpy").asarray(content)


def _load_key(content: Any) -> Any:
    return importlib.import_module("jax").random.wrap_key_data(content)
