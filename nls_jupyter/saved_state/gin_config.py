"""What cells tell gin-config: which functions and classes of theirs it calls, with which parameters, and constants.

Without, a function of a cell that is configured would be called with its defaults after a move, and nobody would know.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, MutableMapping

    from nls_jupyter.between.seam import Seam
    from nls_jupyter.saved_state.places import Entry

_MODULE: Final = "gin.config"
# Gin's own, of each process.
_REQUIRED: Final = "gin.REQUIRED"


def places() -> tuple[Place, ...]:
    """In the order in which they are put back."""
    return (
        Place("configurable of gin", _configurables, _put_configurable),
        Place("constant of gin", _constants, _put_constant),
        Place("parameters of gin", _parameters, _put_parameters, lambda key, _: "/".join(filter(None, key))),
    )


def _configurables() -> Iterator[tuple[Hashable, Entry]]:
    for selector, configurable in _items_of(seams.GIN_CONFIGURABLES):
        if is_the_users_module(getattr(configurable.wrapped, "__module__", None)):
            yield selector, (selector, configurable)


def _put_configurable(selector: str, configurable: Any) -> None:
    _loaded(seams.GIN_CONFIGURABLES)[selector] = configurable
    _loaded(seams.GIN_CONFIGURABLES_OF)[configurable.wrapped] = configurable


def _constants() -> Iterator[tuple[Hashable, Entry]]:
    for name, value in _items_of(seams.GIN_CONSTANTS):
        if name != _REQUIRED:
            yield name, (name, value)


def _put_constant(name: str, value: Any) -> None:
    _loaded(seams.GIN_CONSTANTS)[name] = value


def _parameters() -> Iterator[tuple[Hashable, Entry]]:
    for key, values in _items_of(seams.GIN_PARAMETERS):
        yield key, (key, values)


def _put_parameters(key: tuple[str, str], values: dict[str, Any]) -> None:
    _loaded(seams.GIN_PARAMETERS)[key] = values


def _items_of(seam: Seam) -> list[tuple[Any, Any]]:
    """Of one of gin's tables; of none before gin is imported."""
    table = seam.here(None) if _MODULE in sys.modules else None
    return [] if table is None else list(table.items())


def _loaded(seam: Seam) -> MutableMapping[Any, Any]:
    importlib.import_module(_MODULE)
    table: MutableMapping[Any, Any] = seam.here()
    return table
