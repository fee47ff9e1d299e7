"""What cells have set of `logging`: levels, handlers and filters of loggers, names of levels, what makes records."""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.saved_state import log_handlers
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.looks import is_registered
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import Place, asked_by_a_cell, is_librarys_object, name_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

    # Its level, whether it passes on what it gets, and whether it is disabled.
    State = tuple[int, bool, bool]

#: Of a logger that nobody has told anything.
_NEW: Final[State] = (logging.NOTSET, True, False)
_STREAMS = ("stdout", "stderr")


class Logging:
    """What cells ask of `logging`, which does not tell it from what libraries ask when they are imported."""

    def __init__(self) -> None:
        self._loggers: set[str] = set()
        self._before = dict(_states())
        self._first_seen = dict(self._before)
        self._handlers: list[tuple[str, logging.Handler]] = []
        self._put_back: list[logging.Handler] = []
        self._filters: list[tuple[str, Any]] = []

    def follow(self) -> None:
        """Listen from now on. Called once in a process."""
        add, set_level, add_filter = logging.Logger.addHandler, logging.Logger.setLevel, logging.Logger.addFilter

        @functools.wraps(add)
        def add_handler(logger: logging.Logger, hdlr: logging.Handler) -> None:
            add(logger, hdlr)
            if is_registered(logger) and asked_by_a_cell():
                self._note(logger, hdlr)

        @functools.wraps(set_level)
        def note_level(logger: logging.Logger, level: int | str) -> None:
            set_level(logger, level)
            if is_registered(logger) and asked_by_a_cell():
                self._note(logger)

        @functools.wraps(add_filter)
        def note_filter(logger: logging.Logger, filter: Any) -> None:  # noqa: A002 - its name there
            add_filter(logger, filter)
            if is_registered(logger) and asked_by_a_cell():
                self._filters.append((logger.name, filter))

        for name, method in ("addHandler", add_handler), ("setLevel", note_level), ("addFilter", note_filter):
            setattr(logging.Logger, name, method)

    def aspects(self) -> tuple[Aspect, ...]:
        """Plain values."""
        return (
            Aspect("loggers", self._states, self._set_states),
            Aspect("logging's last resort", _level_of_last_resort, _set_level_of_last_resort),
            Aspect("logging.disable", lambda: logging.root.manager.disable, logging.disable),
            Aspect("logging's names of levels", _names_of_levels, _set_names_of_levels),
            Aspect("logging.captureWarnings", _captures_warnings, logging.captureWarnings),
        )

    def places(self) -> tuple[Place, ...]:
        """Objects."""
        return (
            Place("log handler", self._entries, self._put, lambda _, parts: f"{name_of(type(parts[1]))} of {parts[0]}"),
            Place("log filter", self._filtering, self._filter, lambda _, parts: f"{name_of(parts[1])} of {parts[0]}"),
            Place("logging", _makers, _set_maker, comes_by_itself=is_librarys_object),
        )

    def _note(self, logger: logging.Logger, *handlers: logging.Handler) -> None:
        self._loggers.add(logger.name)
        self._handlers += [(logger.name, handler) for handler in handlers]

    def _states(self) -> dict[str, tuple[State, str | None]] | None:
        """Of loggers that cells have told something, or that are not as they are in a new process.

        `disabled` and its like are attributes, of which nobody is told who has set them.
        """
        states = dict(_states())
        for name, state in states.items():
            first = self._first_seen.setdefault(name, state)
            by_a_library = name in self._before or _made_by(type(_named(name))) is not None
            if state != first or (state != _NEW and not by_a_library):
                self._loggers.add(name)
        kept = sorted(self._loggers & states.keys())
        return {name: (states[name], _made_by(type(_named(name)))) for name in kept} or None

    def _set_states(self, states: dict[str, tuple[State, str | None]]) -> None:
        for name, ((level, propagate, disabled), made_by) in states.items():
            if made_by is not None:
                importlib.import_module(made_by)
            logger = _named(name)
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagate, disabled
            self._note(logger)

    def _entries(self) -> Iterator[tuple[Hashable, Entry]]:
        for name, handler in dict.fromkeys(self._handlers):
            if handler in _named(name).handlers:
                yield (name, id(handler)), (name, handler)

    def _filtering(self) -> Iterator[tuple[Hashable, Entry]]:
        for name, accepts in self._filters:
            if accepts in _named(name).filters:
                yield (name, id(accepts)), (name, accepts)

    def _filter(self, name: str, accepts: Any) -> None:
        _named(name).addFilter(accepts)
        self._filters.append((name, accepts))

    def _put(self, name: str, handler: logging.Handler) -> None:
        logger = _named(name)
        if handler not in logger.handlers:
            asked_for = [there for whose, there in self._handlers if whose == name and there in logger.handlers]
            if (again := next((there for there in asked_for if self._is_made_again(there, handler)), None)) is not None:
                logger.removeHandler(again)
                again.close()
                log_handlers.register(handler)
            logger.addHandler(handler)
        self._put_back.append(handler)
        self._note(logger, handler)

    def _is_made_again(self, there: logging.Handler, handler: logging.Handler) -> bool:
        """Whether a module of the user's has asked for it again, when it was imported."""
        ours = any(there is one for one in self._put_back)
        return not ours and type(there) is type(handler) and _writes_to(there) == _writes_to(handler) != ""


def _states() -> Iterator[tuple[str, State]]:
    for name, logger in ((logging.root.name, logging.root), *logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):
            yield name, (logger.level, bool(logger.propagate), bool(logger.disabled))


def _made_by(kind: type[logging.Logger]) -> str | None:
    """The library that makes a logger of a class of its own, which it does when it is imported."""
    return None if is_the_users_module(kind.__module__) or kind.__module__ == logging.__name__ else kind.__module__


def _level_of_last_resort() -> int | None:
    return logging.lastResort.level if logging.lastResort is not None else None


def _set_level_of_last_resort(level: int) -> None:
    if logging.lastResort is not None:
        logging.lastResort.setLevel(level)


def _names_of_levels() -> dict[int, str]:
    return {level: logging.getLevelName(level) for level in logging.getLevelNamesMapping().values()}


def _set_names_of_levels(names: dict[int, str]) -> None:
    for level, name in names.items():
        logging.addLevelName(level, name)


def _captures_warnings() -> bool:
    return getattr(warnings.showwarning, "__module__", None) == logging.__name__


def _makers() -> Iterator[tuple[Hashable, Entry]]:
    for what, made_by in ("record factory", logging.getLogRecordFactory()), ("logger class", logging.getLoggerClass()):
        yield what, (what, made_by)


def _set_maker(what: str, made_by: Any) -> None:
    (logging.setLogRecordFactory if what == "record factory" else logging.setLoggerClass)(made_by)


def _named(name: str) -> logging.Logger:
    return logging.getLogger(None if name == logging.root.name else name)


def _writes_to(handler: logging.Handler) -> str:
    """The file or stream, where it is one that every process has; empty for all else."""
    if isinstance(handler, logging.FileHandler):
        return handler.baseFilename
    stream = getattr(handler, "stream", None)
    return next((name for name in _STREAMS if stream is not None and getattr(sys, name) is stream), "")
