"""What cells have told loguru, which has one logger for the whole process: sinks, levels, what is added to records.

A sink is added again as it was, under its number. What imports have added, they add again.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between import seams
from nls_jupyter.between.after_import import AfterImport
from nls_jupyter.saved_state.aspect import Aspect
from nls_jupyter.saved_state.looks import Look
from nls_jupyter.saved_state.places import Place, asked_by_a_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from types import ModuleType

    from nls_jupyter.saved_state.places import Entry

    # The module, and the line of it, that adds a sink when it is imported.
    _Line = tuple[str, int]

_LIBRARY: Final = "loguru"


def lookers() -> Mapping[type, Callable[[Any], Look | None]]:
    """How a walk sees what its loggers share: it ends there, as this is the library's own in each process."""
    if (core := _core()) is None:
        return {}
    return {type(core): lambda found: Look(_LIBRARY.encode()) if found is core else None}


class Loguru:
    """That of this process."""

    def __init__(self) -> None:
        self._asked: dict[int, tuple[dict[str, Any], Any]] = {}
        self._by_imports: dict[_Line, int] = {}
        self._own_levels: dict[str, Any] = {}

    def follow(self) -> None:
        """Listen from now on. Called once in a process."""
        AfterImport({_LIBRARY: self._listen}).install()

    def places(self) -> tuple[Place, ...]:
        """Objects."""
        return (
            Place("loguru level", self._levels, _put_level),
            Place("setting of loguru", _settings, _configure),
            Place("loguru sink", self._sinks, self._put),
        )

    def aspects(self) -> tuple[Aspect, ...]:
        """Plain values."""
        return (
            Aspect("loguru's sinks", self._numbers, self._set_numbers, _LIBRARY),
            Aspect("what loguru is to leave out", _activation, _activate, _LIBRARY),
        )

    def _listen(self, library: ModuleType) -> None:
        core = seams.LOGURU_CORE.of(library.logger)
        kind = type(library.logger)
        add = kind.add
        self._own_levels = dict(core.levels)
        self._by_imports = {(_LIBRARY, number): number for number in core.handlers}

        @functools.wraps(add)
        def listening(logger: Any, sink: Any, **options: Any) -> int:
            number: int = add(logger, sink, **options)
            if seams.LOGURU_CORE.of(logger) is core:
                if asked_by_a_cell(no_import_of_theirs=True):
                    self._asked[number] = options, sink
                else:
                    caller = sys._getframe(1)
                    self._by_imports[caller.f_globals.get("__name__", ""), caller.f_lineno] = number
            return number

        kind.add = listening

    def _sinks(self) -> Iterator[tuple[Hashable, Entry]]:
        handlers = getattr(_core(), "handlers", {})
        self._asked = {number: asked for number, asked in self._asked.items() if number in handlers}
        for number, (options, sink) in self._asked.items():
            yield number, (number, _file_of(handlers[number]), options, sink)

    def _put(self, number: int, file: str | None, options: dict[str, Any], sink: Any) -> None:
        if number in self._asked:
            return
        logger = importlib.import_module(_LIBRARY).logger
        core = seams.LOGURU_CORE.of(logger)
        if file is not None:  # else it would be missed with each message
            Path(file).parent.mkdir(parents=True, exist_ok=True)
            with Path(file).open("a", encoding="utf-8"):
                pass
        self._make_room(core, number)
        following, core.handlers_count = core.handlers_count, number
        try:
            logger.add(sink, **(options if file is None else options | _going_on(options)))
        finally:
            core.handlers_count = max(following, number + 1)
        self._asked[number] = options, sink
        if file is not None:
            seams.LOGURU_OPEN.of(seams.LOGURU_SINK.of(core.handlers[number]))(file)

    def _make_room(self, core: Any, number: int) -> None:
        """Another number for what an import has added, which was to come later."""
        if number not in core.handlers:
            return
        free = max(core.handlers_count, number + 1)
        core.handlers = {free if each == number else each: handler for each, handler in core.handlers.items()}
        core.handlers_count = free + 1
        self._by_imports = {line: free if each == number else each for line, each in self._by_imports.items()}

    def _numbers(self) -> tuple[int, list[_Line]] | None:
        """The next sink's, and which lines have added those that were removed."""
        if (core := _core()) is None:
            return None  # it is only being imported
        return core.handlers_count, [line for line, number in self._by_imports.items() if number not in core.handlers]

    def _set_numbers(self, kept: tuple[int, list[_Line]]) -> None:
        following, removed = kept
        core = _core()
        for number in {self._by_imports.get(line) for line in removed} & core.handlers.keys():
            sys.modules[_LIBRARY].logger.remove(number)
        core.handlers_count = max(core.handlers_count, following)

    def _levels(self) -> Iterator[tuple[Hashable, Entry]]:
        for name, level in list(getattr(_core(), "levels", {}).items()):
            if level != self._own_levels.get(name):
                yield name, tuple(level)


def _core() -> Any:
    """What all loggers share; `None` where loguru is not imported."""
    logger = getattr(sys.modules.get(_LIBRARY), "logger", None)
    return None if logger is None else seams.LOGURU_CORE.of(logger, None)


def _file_of(handler: Any) -> str | None:
    """The path of the one that is open now, if a sink is a file of loguru's."""
    path: str | None = seams.LOGURU_FILE.of(seams.LOGURU_SINK.of(handler), None)
    return path


def _going_on(options: Mapping[str, Any]) -> dict[str, Any]:
    """What opens a file at its end, and not at once: the name that it is given may tell the time."""
    return {"mode": options.get("mode", "a").translate(str.maketrans("wx", "aa")), "delay": True}


def _put_level(name: str, number: int, color: str, icon: str) -> None:
    logger = importlib.import_module(_LIBRARY).logger
    is_there = name in seams.LOGURU_CORE.of(logger).levels
    logger.level(name, no=None if is_there else number, color=color, icon=icon)


def _settings() -> Iterator[tuple[Hashable, Entry]]:
    for name in ("extra", "patcher"):
        if value := getattr(_core(), name, None):
            yield name, (name, value)


def _configure(name: str, value: Any) -> None:
    importlib.import_module(_LIBRARY).logger.configure(**{name: value})


def _activation() -> tuple[bool, list[tuple[str, bool]]] | None:
    core = _core()
    return None if core is None else (core.activation_none, list(core.activation_list))


def _activate(kept: tuple[bool, list[tuple[str, bool]]]) -> None:
    """Anew: each stands where it differs from what holds for the packages above it, and these come last."""
    of_no_module, names = kept
    in_order = [(name.removesuffix("."), is_on) for name, is_on in reversed(names)]
    sys.modules[_LIBRARY].logger.configure(activation=[("", True), (None, of_no_module), *in_order])
