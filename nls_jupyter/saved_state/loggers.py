"""Loggers of a class of the user's own: each is in its place again, with its class and attributes.

So are those that nobody finds by their name. Any other logger is known by that, and is the new process's. What loggers
that are known may be told, levels, handlers and filters, is in `logging_settings.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state.kinds import module_of, owner_of
from nls_jupyter.saved_state.looks import Look, is_registered
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place
from nls_jupyter.saved_state.reducers import set_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

# What `logging` gives each of them, and keeps in order itself.
_GIVEN: Final = frozenset({*vars(logging.Logger("")), "manager"})
# Of a logger with a name for all, that is kept by this name.
_TOLD: Final = frozenset({"level", "parent", "propagate", "handlers", "filters", "disabled"})


def place() -> Place:
    """Those that are known by their names."""
    return Place("logger", _entries, lambda *_: None, lambda name, _: name)


def _entries() -> Iterator[tuple[Hashable, Entry]]:
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if _is_of_the_user(type(logger)):
            yield name, (name, logger)


def _is_of_the_user(kind: type) -> bool:
    return issubclass(kind, logging.Logger) and is_the_users_module(module_of(kind))


def families() -> Iterator[tuple[type, Callable[[Any], Any]]]:
    """The base class of loggers and the reducer of those of a class of the user's."""
    yield logging.Logger, _reduce


def looker(kind: type) -> Callable[[Any], Look | None] | None:
    """How a walk sees them: one leads to all others."""
    return _look if issubclass(kind, logging.Logger) and _is_pickled_by_name(kind) else None


def _look(logger: logging.Logger) -> Look:
    attributes, slots = _given_to(logger)
    content = {**attributes, **slots}
    return Look("\0".join([logger.name, *content]).encode(), (type(logger), *content.values()))


def _is_pickled_by_name(kind: type) -> bool:
    return owner_of(kind, "__reduce__") is logging.Logger and owner_of(kind, "__reduce_ex__") is object


def _comes_by_its_name(logger: logging.Logger) -> bool:
    return is_registered(logger) and not _is_of_the_user(type(logger))


def _given_to(logger: logging.Logger) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attributes and slots that its name does not bring back."""
    if _comes_by_its_name(logger):
        return {}, {}
    state: Any = object.__getstate__(logger)
    attributes, slots = state if type(state) is tuple else (state, {})
    left_out = _GIVEN if is_registered(logger) else _GIVEN - _TOLD
    return {name: value for name, value in attributes.items() if name not in left_out}, slots


def _reduce(logger: logging.Logger) -> Any:
    kind = type(logger)
    if not _is_pickled_by_name(kind) or _comes_by_its_name(logger):
        return NotImplemented
    maker = make if is_registered(logger) else new
    return maker, (kind, logger.name), _given_to(logger), None, None, set_attributes


def make(kind: type[logging.Logger], name: str) -> logging.Logger:
    """The logger of this name, of this class; called by the unpickler. Raises TypeError where it cannot be of it."""
    manager = logging.root.manager
    known = manager.loggerDict.get(name)
    if isinstance(known, logging.Logger):
        if type(known) is not kind:
            known.__class__ = kind
        return known
    wanted = manager.loggerClass
    manager.loggerClass = lambda name: new(kind, name)  # type: ignore[assignment]
    try:
        return manager.getLogger(name)
    finally:
        manager.loggerClass = wanted


def new(kind: type[logging.Logger], name: str) -> logging.Logger:
    """One that nobody finds by its name; called by the unpickler."""
    made = object.__new__(kind)
    logging.Logger.__init__(made, name)
    return made
