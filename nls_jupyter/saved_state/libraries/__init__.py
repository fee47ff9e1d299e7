"""Array libraries: how their objects keep views and shared storages through a saved state.

Only libraries that the user's process has already imported are touched.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nls_jupyter.saved_state.regions import Regions

    Handler = Callable[[Any], Any]


class Library(Protocol):
    """One array library during one save."""

    def handlers(self) -> Mapping[type, Handler]:
        """Reducer per exact type: a pickle reduce value, or `NotImplemented` for the type's own."""

    def prepare(self, values: list[Any]) -> None:
        """See the namespace's values before the first of them is pickled."""


# The library's module, and ours that knows it.
_MODULES = {
    "numpy": "numpy_arrays",
    "cupy": "cupy_arrays",
    "nls_jupyter.simulated_cupy": "cupy_arrays",
    "torch": "torch_tensors",
}


def loaded(regions: Regions) -> list[Library]:
    """The libraries that this process uses."""
    return [
        importlib.import_module(f"{__name__}.{ours}").library(sys.modules[theirs], regions)
        for theirs, ours in _MODULES.items()
        if theirs in sys.modules
    ]


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
