"""What a library holds once, and notebooks have under names of their own: `from matplotlib import rcParams`.

It comes back as the library's own: a copy would look the same, and change nothing. What is set in it is kept with the
library's settings.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.seams import LOGURU_CORE
from nls_jupyter.saved_state.torch_hooks import HOOKS, MARKS

if TYPE_CHECKING:
    from collections.abc import Callable

    Reduce = Callable[[Any], Any]

#: Modules, and what each holds: attributes of attributes, and what a function without arguments gives.
_HELD: Final = (
    ("os", ("environ", "environb")),
    ("logging", ("lastResort", "root.manager")),
    ("decimal", ("getcontext()", "DefaultContext", "BasicContext", "ExtendedContext")),
    ("matplotlib", ("rcParams", "rcParamsDefault", "rcParamsOrig", "colormaps", "color_sequences")),
    ("numpy", ("s_", "index_exp", "r_", "c_", "mgrid", "ogrid")),
    ("numpy.random", ("rand.__self__", "get_bit_generator()")),
    ("pandas", ("options",)),
    ("plotly.io", ("renderers", "templates")),
    ("altair", ("renderers", "data_transformers")),
    ("loguru", ("logger", f"logger.{LOGURU_CORE.name}")),
    ("jax", ("config",)),
    ("cupy", ("get_default_memory_pool()", "get_default_pinned_memory_pool()")),
    ("cupy.cuda.stream", ("Stream.null", "Stream.ptds")),
    ("nls_jupyter.simulated_cupy", ("get_default_memory_pool()",)),
    ("torch", ("default_generator",)),
    *((seam.module, (seam.name,)) for seam in (*HOOKS.values(), *MARKS)),  # handles of hooks lead to these
)


def by_place(kind: type, otherwise: Reduce | None) -> Reduce | None:
    """How an object of `kind` is saved, where one of them may be a library's own."""
    places = [
        (module, name) for module, names in _HELD for name in names if type(_at(sys.modules.get(module), name)) is kind
    ]
    if not places:
        return otherwise

    def reduce(thing: Any) -> Any:
        for module, name in places:
            if _at(sys.modules[module], name) is thing:
                return load_held, (module, name)
        return NotImplemented if otherwise is None else otherwise(thing)

    return reduce


def is_within(module: str, path: str) -> bool:
    """Whether what is there belongs to something that a library holds once."""
    return any(path.startswith(f"{name}.") for of, names in _HELD if of == module for name in names)


def load_held(module: str, path: str) -> Any:
    """The library's own, in this process."""
    return _at(importlib.import_module(module), path)


def _at(found: Any, path: str) -> Any:
    for name in path.split("."):
        found = getattr(found, name.removesuffix("()"), None)
        if name.endswith("()") and found is not None:
            found = found()
    return found
