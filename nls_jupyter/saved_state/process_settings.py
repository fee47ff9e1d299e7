"""What the operating system and the standard library hold for the process as a whole."""

from __future__ import annotations

import gc
import locale
import os
import random
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_THE_USERS = ("CUDA_VISIBLE_DEVICES", "NLS_")
_OF_A_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def of_process() -> tuple[Aspect, ...]:
    """Made when the process starts: what is there then is not a change."""
    environment = dict(os.environ)
    return (
        Aspect("the working directory", os.getcwd, os.chdir, early=True, always=True),
        Aspect("sys.path", lambda: list(sys.path), _set_path, early=True, always=True),
        Aspect("sys.argv", lambda: list(sys.argv), _set_arguments, early=True),
        Aspect("os.environ", lambda: _changed_since(environment), _set_environment, early=True),
        Aspect("the time zone", lambda: time.tzname, lambda _: time.tzset(), early=True),
        Aspect("the locale", lambda: locale.setlocale(locale.LC_ALL), _set_locale, early=True),
        Aspect("os.umask", _umask, os.umask, early=True),
        Aspect("warning filters", lambda: list(warnings.filters), _set_filters, early=True, always=True),
        Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, early=True),
        Aspect("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits, early=True),
        Aspect("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
        Aspect("garbage collection", _garbage_collection, _set_garbage_collection),
        Aspect("Python's random state", random.getstate, random.setstate),
        Aspect("decimal's context", _decimal_context, _set_decimal_context, "decimal"),
        Aspect(
            "csv's field limit", lambda: _of("csv").field_size_limit(), lambda n: _of("csv").field_size_limit(n), "csv"
        ),
        Aspect(
            "the start method of processes",
            lambda: _of("multiprocessing").get_start_method(allow_none=True),
            lambda method: _of("multiprocessing").set_start_method(method, force=True),
            "multiprocessing",
        ),
        Aspect(
            "sockets' timeout",
            lambda: _of("socket").getdefaulttimeout(),
            lambda timeout_s: _of("socket").setdefaulttimeout(timeout_s),
            "socket",
        ),
    )


def _of(module: str) -> Any:
    return sys.modules[module]


def _umask() -> int:
    """Without changing it for a moment, as `os.umask` does."""
    status = Path("/proc/self/status").read_bytes()
    return int(status.partition(b"\nUmask:")[2].split(maxsplit=1)[0], 8)


def _set_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _garbage_collection() -> tuple[bool, tuple[int, int, int], int]:
    return gc.isenabled(), gc.get_threshold(), gc.get_debug()


def _set_garbage_collection(state: tuple[bool, tuple[int, int, int], int]) -> None:
    enabled, threshold, debug = state
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*threshold)
    gc.set_debug(debug)


def _changed_since(before: Mapping[str, str]) -> dict[str, str | None] | None:
    """Variables that were set, changed or (`None`) removed."""
    now = os.environ
    changed: dict[str, str | None] = {name: now.get(name) for name in before.keys() | now.keys()}
    changed = {
        name: value
        for name, value in changed.items()
        if value != before.get(name) and not name.startswith(_NOT_THE_USERS)
    }
    return changed or None


def _set_path(path: list[str]) -> None:
    sys.path[:] = path


def _set_arguments(arguments: list[str]) -> None:
    sys.argv[:] = arguments


def _set_environment(changed: Mapping[str, str | None]) -> None:
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # or registries of modules would not see that they are others
    warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says


def _decimal_context() -> Any:
    decimal = sys.modules["decimal"]
    context = decimal.getcontext()
    if repr(context) == repr(decimal.DefaultContext):
        return None
    return {name: getattr(context, name) for name in _OF_A_CONTEXT}, dict(context.flags), dict(context.traps)


def _set_decimal_context(content: tuple[dict[str, Any], dict[Any, bool], dict[Any, bool]]) -> None:
    """In the one that is there: names of the user's may lead to it."""
    context = sys.modules["decimal"].getcontext()
    numbers, flags, traps = content
    for name, value in numbers.items():
        setattr(context, name, value)
    context.flags.update(flags)
    context.traps.update(traps)
