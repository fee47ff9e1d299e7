"""Objects of the user's that the process holds for everybody: handlers of signals, import hooks, builtins."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import functools
import gc
import itertools
import signal
import sys
import threading
import warnings
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Final

from nls_jupyter.between.held_signals import handler_of
from nls_jupyter.saved_state.origins import is_the_users_module
from nls_jupyter.saved_state.places import (
    Place,
    asked_by_a_cell,
    is_librarys_code,
    is_librarys_object,
    name_of,
    of_list,
)
from nls_scheduler.processes import debuggers

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from nls_jupyter.saved_state.places import Entry

# Those that people write handlers for (to ask for all costs more), without Ctrl-C's: that one is the kernel's.
_SIGNALS = (
    *(signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD),
    *(signal.SIGPIPE, signal.SIGWINCH, signal.SIGCONT, signal.SIGTSTP, signal.SIGVTALRM, signal.SIGPROF),
)
# IPython's own come and go with each cell.
_COME_AND_GO = frozenset(
    {"_", "get_ipython", "display", "exit", "quit", "copyright", "credits", "license", "__IPYTHON__"}
)
# What libraries written in C have for each other, as TensorFlow: their imports put it there.
_OF_C = "PyCapsule"
_HOOKS = {
    "sys.excepthook": sys,
    "sys.unraisablehook": sys,
    "sys.breakpointhook": sys,
    "threading.excepthook": threading,
}
# Functions of cells, each with what sets it and what tells it.
_FUNCTIONS: Final[dict[str, tuple[Callable[[Any], None], Callable[[], Any]]]] = {
    "warnings.showwarning": (functools.partial(setattr, warnings, "showwarning"), lambda: warnings.showwarning),
    "warnings.formatwarning": (functools.partial(setattr, warnings, "formatwarning"), lambda: warnings.formatwarning),
    "sys.settrace": (sys.settrace, debuggers.tracer),
    "sys.setprofile": (sys.setprofile, debuggers.profiler),
    "threading.settrace": (threading.settrace, threading.gettrace),
    "threading.setprofile": (threading.setprofile, threading.getprofile),
}


def of_process() -> tuple[Place, ...]:
    """The places that every process has."""
    return (
        Place("signal handler", _signal_handlers, _set_signal_handler, _name_of_signal, is_librarys_code),
        Place("builtin", _builtins, functools.partial(setattr, builtins)),
        Place("hook", _hooks, _set_hook, comes_by_itself=is_librarys_object),
        Place("function", _functions, _set_function, comes_by_itself=_is_librarys),
        of_list("callback of garbage collection", lambda: gc.callbacks, _is_librarys),
        of_list("import hook", lambda: sys.meta_path, is_librarys_object),
        of_list("path hook", lambda: sys.path_hooks, is_librarys_object),
    )


def _signal_handlers() -> Iterator[tuple[Hashable, Entry]]:
    for number in _SIGNALS:
        if (handler := handler_of(number)) is not None:  # else it is none of Python's
            yield number, (number, handler)


def _set_signal_handler(number: signal.Signals, handler: Any) -> None:
    signal.signal(number, handler)


def _name_of_signal(number: signal.Signals, _: Entry) -> str:
    return number.name


def _builtins() -> Iterator[tuple[Hashable, Entry]]:
    for name, value in list(vars(builtins).items()):
        if name not in _COME_AND_GO and type(value).__name__ != _OF_C:
            yield name, (name, value)


def _hooks() -> Iterator[tuple[Hashable, Entry]]:
    for path, module in _HOOKS.items():
        yield path, (path, getattr(module, path.partition(".")[2]))


def _set_hook(path: str, hook: Any) -> None:
    setattr(_HOOKS[path], path.partition(".")[2], hook)


def _functions() -> Iterator[tuple[Hashable, Entry]]:
    for path, (_, get) in _FUNCTIONS.items():
        yield path, (path, get())


def _set_function(path: str, function: Any) -> None:
    _FUNCTIONS[path][0](function)


def _is_librarys(function: Any) -> bool:
    """Whether it is none of the user's, whoever can import it: a debugger's is of no use without the debugger."""
    called = function.func if isinstance(function, functools.partial) else function
    return not is_the_users_module(getattr(called, "__module__", None))


def at_exit() -> Place:
    """Functions that cells gave to `atexit`, which tells nobody what it has: so it is listened to from now on."""
    given: dict[int, Entry] = {}
    numbers = itertools.count()
    register: Callable[..., Any] = atexit.register
    unregister = atexit.unregister

    def put(args: tuple[Any, ...], options: dict[str, Any], function: Any) -> None:
        given[next(numbers)] = (args, options, function)
        register(function, *args, **options)

    @functools.wraps(register)
    def listening(function: Any, /, *args: Any, **options: Any) -> Any:
        if asked_by_a_cell():
            put(args, options, function)
        else:
            register(function, *args, **options)
        return function

    @functools.wraps(unregister)
    def no_longer(function: Any) -> None:
        unregister(function)
        for number in [number for number, entry in given.items() if entry[-1] == function]:
            del given[number]

    atexit.register, atexit.unregister = listening, no_longer
    return Place(
        "atexit",
        lambda: list(given.items()),
        put,
        lambda _, parts: name_of(parts[-1]),
        _is_given_again,
    )


def _is_given_again(function: Any) -> bool:
    """Whether it is of a library's threads or workers, or of a part of IPython's: a new process's give their own."""
    owner = getattr(function, "__self__", None)
    held = (cell.cell_contents for cell in getattr(function, "__closure__", None) or ())
    begins_anew = any(map(_works_on, (owner, *held))) or type(owner).__module__.startswith("IPython.")
    return begins_anew and is_librarys_code(function)


def _works_on(owner: Any, deep: int = 2) -> bool:
    """Whether it is a thread, workers or a loop of events, or has some: such a thing never comes back as it is."""
    if isinstance(owner, (threading.Thread, Executor, asyncio.AbstractEventLoop)):
        return True
    held = vars(owner).values() if deep and is_librarys_object(owner) and hasattr(owner, "__dict__") else ()
    parts = (part for value in held for part in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(_works_on(part, deep - 1) for part in parts)
