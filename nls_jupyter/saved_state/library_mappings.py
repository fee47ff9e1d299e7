"""Settings that libraries keep in mappings of their own: ArviZ' parameters, NetworkX' configuration."""

from __future__ import annotations

import copy
import functools
import sys
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of ArviZ before its version 1.0, and since.
_ARVIZ: Final = ("arviz.rcparams", "arviz_base.rcparams")
_NETWORKX: Final = "networkx.utils.configs"


def of_mappings() -> tuple[Aspect, ...]:
    """Each where its module is imported."""
    return (
        *map(_arviz, _ARVIZ),
        Aspect("NetworkX' configuration", _configured, _set_networkx, _NETWORKX),
    )


def _arviz(module: str) -> Aspect:
    return Aspect(
        f"parameters of {module}", functools.partial(_parameters, module), functools.partial(_set, module), module
    )


def _parameters(module: str) -> dict[str, Any]:
    return copy.deepcopy(dict(sys.modules[module].rcParams))


def _set(module: str, kept: Mapping[str, Any]) -> None:
    now = sys.modules[module].rcParams
    for name, value in kept.items():
        if name in now and now[name] != value:
            now[name] = value


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


def _set_networkx(kept: Mapping[tuple[str, ...], Any]) -> None:
    now = _configured()
    for path, value in kept.items():
        if path in now and now[path] != value:
            config = _networkx()
            for name in path[:-1]:
                config = config[name]
            config[path[-1]] = value
