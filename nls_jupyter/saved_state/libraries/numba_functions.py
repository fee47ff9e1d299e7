"""Functions that Numba compiles: what they are saved as, and not all of the compiler behind them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between.seams import NUMBA_STATE
from nls_jupyter.saved_state.kinds import below
from nls_jupyter.saved_state.looks import Look

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nls_jupyter.saved_state.libraries import Handler, Looker
    from nls_jupyter.saved_state.regions import Regions


class NumbaFunctions:
    """See `Library`. They are pickled by Numba's own protocol, and compiled again at their first call."""

    def handlers(self) -> Mapping[type, Handler]:
        """Their own."""
        return {}

    def lookers(self) -> Mapping[type, Looker]:
        """Of all that has Numba's protocol: dispatchers, ufuncs, generalized ufuncs."""
        protocol = getattr(sys.modules.get("numba.core.serialize"), "ReduceMixin", None)
        return {} if protocol is None else dict.fromkeys(below(protocol), _look)

    def prepare(self, values: list[Any]) -> None:
        """Nothing."""


def library(module: Any, regions: Regions) -> NumbaFunctions:
    """Numba's part of one save."""
    del module, regions
    return NumbaFunctions()


def _look(function: Any) -> Look:
    """What it consists of as Numba pickles it; what is made anew for each pickle is told by its text."""
    state: dict[str, Any] = NUMBA_STATE.of(function)()
    own = set(map(id, vars(function).values()))
    lasting = [value for value in state.values() if id(value) in own]
    made = {key: value for key, value in state.items() if id(value) not in own}
    return Look(repr((list(state), made)).encode(), tuple(lasting))
