"""plotly's figures with their parts, as they are: plotly pickles what it would send to a page, and makes it anew.

Of that come arrays of NumPy as texts in base 64, traces and layouts that a name has and no figure hears of any more,
and nobody whom `on_change` is to call.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.reducers import set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base classes of figures and of their parts, and the reducer of both, if plotly's are imported."""
    if (found := sys.modules.get("plotly.basedatatypes")) is not None:
        for base in (found.BaseFigure, found.BasePlotlyType):
            yield base, functools.partial(_reduce, base.__reduce__)


def _reduce(plotlys_own: Any, thing: Any) -> Any:
    kind = type(thing)
    if kind.__reduce__ is not plotlys_own:
        return NotImplemented  # a way of somebody's own
    return copyreg.__newobj__, (kind,), dict(vars(thing)), None, None, set_attributes  # type: ignore[attr-defined]
