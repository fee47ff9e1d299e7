"""What cells have set of `logging`: levels, and handlers of the root logger and of loggers of the user's own."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.modules import is_the_users
from nls_jupyter.saved_state.places import Place, name_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

    Levels = dict[str, tuple[int, bool, bool]]

_STREAMS = ("stdout", "stderr")


def of_levels() -> tuple[Aspect, ...]:
    """Made when the process starts: what is there then is not a change."""
    before = _levels()

    def changed() -> Levels | None:
        return {name: state for name, state in _levels().items() if state != before.get(name, _UNTOUCHED)} or None

    return (
        Aspect("logging's levels", changed, _set_levels),
        Aspect("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    )


_UNTOUCHED = (logging.NOTSET, True, False)


def _loggers() -> Iterator[logging.Logger]:
    yield logging.root
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger


def _levels() -> Levels:
    return {logger.name: (logger.level, logger.propagate, logger.disabled) for logger in _loggers()}


def _set_levels(levels: Levels) -> None:
    for name, (level, propagate, disabled) in levels.items():
        logger = _named(name)
        logger.setLevel(level)
        logger.propagate, logger.disabled = propagate, disabled


def _named(name: str) -> logging.Logger:
    return logging.getLogger(None if name == logging.root.name else name)


def handlers() -> Place:
    """Those that were added since. Handlers of a library's own loggers come with the library."""
    before = {id(handler): handler for logger in _loggers() for handler in logger.handlers}

    def entries() -> Iterator[tuple[Hashable, Entry]]:
        for logger in _loggers():
            if logger.handlers and not _is_a_librarys(logger):
                for handler in logger.handlers:
                    if id(handler) not in before and type(handler) is not logging.NullHandler:
                        yield (logger.name, id(handler)), (logger.name, *_described(handler))

    return Place("log handler", entries, _put, lambda _, parts: f"{name_of(parts[1])} of {parts[0]}")


def _described(handler: logging.Handler) -> Entry:
    """How to make one like it; of those that only their owner can make, the handler itself, for its reason."""
    stream = getattr(handler, "stream", None)
    target: object = handler
    if type(handler) is logging.StreamHandler and stream is not None:
        target = next((name for name in _STREAMS if getattr(sys, name) is stream), handler)
    elif type(handler) is logging.FileHandler:
        target = handler.baseFilename
    return type(handler), handler.level, handler.formatter, *handler.filters, target


def _put(logger: str, kind: type[Any], level: int, formatter: logging.Formatter | None, *others: Any) -> None:
    *filters, target = others
    if any(type(there) is kind and _described(there)[-1] == target for there in _named(logger).handlers):
        return  # an import has brought it
    handler = target if isinstance(target, logging.Handler) else _made(kind, target)
    handler.setLevel(level)
    handler.setFormatter(formatter)
    for accepts in filters:
        handler.addFilter(accepts)
    _named(logger).addHandler(handler)


def _made(kind: type[Any], target: str) -> Any:
    return kind(getattr(sys, target) if target in _STREAMS else target)


def _is_a_librarys(logger: logging.Logger) -> bool:
    module = sys.modules.get(logger.name.partition(".")[0])
    if logger is logging.root or module is None or module.__name__ == "__main__":
        return False
    return not is_the_users(module.__name__, getattr(module.__spec__, "origin", None))
