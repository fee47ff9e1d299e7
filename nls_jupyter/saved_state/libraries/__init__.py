"""Array libraries: how their objects keep views and shared storages through a saved state.

Only libraries that the user's process has already imported are touched.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
import warnings
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.saved_state.looks import Look
    from nls_jupyter.saved_state.regions import Regions

    Handler = Callable[[Any], Any]
    Looker = Callable[[Any], Look | None]


class Library(Protocol):
    """One array library during one save."""

    def handlers(self) -> Mapping[type, Handler]:
        """Reducer per exact type: a pickle reduce value, or `NotImplemented` for the type's own."""

    def lookers(self) -> Mapping[type, Looker]:
        """How a walk sees objects, per exact type. Those of other types are pickled at each save."""

    def prepare(self, values: list[Any]) -> None:
        """See all objects that show memory before the first of them is pickled."""


# The library's module, and what knows it: `library(module, regions) -> Library`.
_OWN = {
    "numpy": "nls_jupyter.saved_state.libraries.numpy_arrays",
    "cupy": "nls_jupyter.saved_state.libraries.cupy_arrays",
    "nls_jupyter.simulated_cupy": "nls_jupyter.saved_state.libraries.cupy_arrays",
    "torch": "nls_jupyter.saved_state.libraries.torch_tensors",
    "jax": "nls_jupyter.saved_state.libraries.jax_arrays",
    "cudf": "nls_jupyter.saved_state.libraries.cudf_objects",
    "numba": "nls_jupyter.saved_state.libraries.numba_functions",
}
# Whose memory only its own process can read; PyTorch's, once it has used a Gpu.
_ON_DEVICES = ("cupy", "nls_jupyter.simulated_cupy", "jax")
#: Entry points of other packages: the name is the library's module, the object is as `library` in ours.
ENTRY_POINTS = "nls_jupyter.codecs"


def loaded(regions: Regions) -> list[Library]:
    """The libraries that this process uses. A package's own codec comes after ours, and wins."""
    found = [
        importlib.import_module(ours).library(sys.modules[theirs], regions)
        for theirs, ours in _OWN.items()
        if theirs in sys.modules
    ]
    for entry in _entry_points():
        if entry.name in sys.modules:
            try:
                found.append(entry.load()(sys.modules[entry.name], regions))
            except Exception as error:  # noqa: BLE001 - somebody else's package must not cost the user the save
                warnings.warn(
                    f"The codec for {entry.name} of {entry.value} is not used: {error!r}", RuntimeWarning, stacklevel=2
                )
    return found


@functools.cache
def _entry_points() -> tuple[importlib.metadata.EntryPoint, ...]:
    return tuple(importlib.metadata.entry_points(group=ENTRY_POINTS))


def may_be_on_devices() -> bool:
    """Whether any object of this process can hold memory that only this process can read."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    return not sys.modules.keys().isdisjoint((*_ON_DEVICES, *(entry.name for entry in _entry_points())))


def synchronize() -> None:
    """Wait for what this thread's Gpu still does, without creating a context. Raises what the libraries raise.

    Work on other Gpus is waited for before their memory is copied.
    """
    cupy = sys.modules.get("cupy")
    if cupy is not None and cupy.cuda.is_available() and cupy.cuda.driver.ctxGetCurrent():
        cupy.cuda.runtime.deviceSynchronize()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
