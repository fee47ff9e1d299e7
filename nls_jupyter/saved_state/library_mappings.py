"""Settings that libraries keep in mappings of their own: ArviZ' parameters, NetworkX' configuration."""

from __future__ import annotations

import copy
import functools
import operator
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.aspect import of_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nls_jupyter.saved_state.aspect import Aspect

# Of ArviZ before its version 1.0, and since.
_ARVIZ: Final = ("arviz.rcparams", "arviz_base.rcparams")
_NETWORKX: Final = "networkx.utils.configs"


def of_mappings() -> tuple[Aspect, ...]:
    """Each where its module is imported."""
    return (*map(_arviz, _ARVIZ), of_mapping("NetworkX' configuration", _configured, _configure, _NETWORKX))


def _arviz(module: str) -> Aspect:
    return of_mapping(
        f"parameters of {module}",
        lambda: copy.deepcopy(dict(sys.modules[module].rcParams)),
        lambda changed: sys.modules[module].rcParams.update(changed),
        module,
    )


def _networkx() -> Any:
    """`None`: of a version that has none, before 3.3."""
    return getattr(sys.modules[_NETWORKX], "config", None)


def _configured() -> dict[tuple[str, ...], Any]:
    return dict(_flat(_networkx(), ()))


def _flat(config: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What is in there and in the configurations within, which other packages add: each by its path."""
    for name, value in config.items() if config is not None else ():
        if isinstance(value, sys.modules[_NETWORKX].Config):
            yield from _flat(value, (*path, name))
        else:
            yield (*path, name), copy.deepcopy(value)


def _configure(changed: Mapping[tuple[str, ...], Any]) -> None:
    for path, value in changed.items():
        functools.reduce(operator.getitem, path[:-1], _networkx())[path[-1]] = value
