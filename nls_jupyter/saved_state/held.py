"""What a library holds once, and notebooks have under names of their own: `from matplotlib import rcParams`.

It comes back as the library's own: a copy would look the same, and change nothing. What is set in it is kept with the
library's settings.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.reducers import load_exported

if TYPE_CHECKING:
    from collections.abc import Callable

    Reduce = Callable[[Any], Any]

_HELD: Final = (
    ("os", ("environ", "environb")),
    ("logging", ("lastResort",)),
    ("matplotlib", ("rcParams", "rcParamsDefault", "rcParamsOrig", "colormaps", "color_sequences")),
    ("numpy", ("s_", "index_exp", "r_", "c_", "mgrid", "ogrid")),
    ("pandas", ("options",)),
    ("plotly.io", ("renderers", "templates")),
    ("altair", ("renderers", "data_transformers")),
    ("jax", ("config",)),
)


def by_place(kind: type, otherwise: Reduce | None) -> Reduce | None:
    """How an object of `kind` is saved, where one of them may be a library's own."""
    places = [
        (module, name)
        for module, names in _HELD
        for name in names
        if type(getattr(sys.modules.get(module), name, None)) is kind
    ]
    if not places:
        return otherwise

    def reduce(thing: Any) -> Any:
        for module, name in places:
            if getattr(sys.modules[module], name, None) is thing:
                return load_exported, (module, name)
        return NotImplemented if otherwise is None else otherwise(thing)

    return reduce
