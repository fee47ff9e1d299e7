"""What cells tell gin-config: which functions and classes of theirs it calls, with which parameters, and constants.

Without, a function of a cell that is configured would be called with its defaults after a move, and nobody would know.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.between import seams
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.between.seam import Seam
    from nls_jupyter.saved_state.places import Entry


def places() -> tuple[Place, ...]:
    """In the order in which they are put back."""
    return (
        _place("configurable of gin", seams.GIN_CONFIGURABLES, put=_put_configurable, comes_by_itself=_is_librarys),
        _place("constant of gin", seams.GIN_CONSTANTS, comes_by_itself=_is_gins),
        _place("parameters of gin", seams.GIN_PARAMETERS, label=lambda key, _: "/".join(filter(None, key))),
    )


def _place(what: str, table: Seam, **more: Any) -> Place:
    """Of one of gin's tables."""
    put = functools.partial(_put, table)
    return Place(what, functools.partial(_entries, table), **{"put": put, **more})


def _entries(table: Seam) -> Iterator[tuple[Hashable, Entry]]:
    for key, value in list(table.here({}).items()):
        yield key, (key, value)


def _put(table: Seam, key: Any, value: Any) -> None:
    importlib.import_module(table.module)
    table.here()[key] = value


def _put_configurable(selector: str, configurable: Any) -> None:
    _put(seams.GIN_CONFIGURABLES, selector, configurable)
    _put(seams.GIN_CONFIGURABLES_OF, configurable.wrapped, configurable)


def _is_librarys(configurable: Any) -> bool:
    return not is_the_users_module(getattr(configurable.wrapped, "__module__", None))


def _is_gins(constant: Any) -> bool:
    """Whether it is `gin.REQUIRED`, which each process has."""
    return constant is sys.modules[seams.GIN_CONSTANTS.module].REQUIRED
