"""What the operating system and the standard library hold for the process as a whole."""

from __future__ import annotations

import functools
import gc
import locale
import os
import random
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping

    _Content = tuple[dict[str, Any], dict[Any, bool], dict[Any, bool]]

# The last one is where W&B has its own helper, which ends with the process that started it.
_NOT_THE_USERS = ("CUDA_VISIBLE_DEVICES", "NLS_", "WANDB_SERVICE")
_OF_A_DIALECT = (
    *("delimiter", "doublequote", "escapechar", "lineterminator"),
    *("quotechar", "quoting", "skipinitialspace", "strict"),
)
_OF_A_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def of_process() -> tuple[Aspect, ...]:
    """Made when the process starts: what is there then is not a change."""
    environment = dict(os.environ)
    return (
        Aspect("the working directory", os.getcwd, os.chdir, early=True, always=True),
        Aspect("sys.path", lambda: list(sys.path), _set_path, early=True, always=True),
        Aspect("sys.argv", lambda: list(sys.argv), _set_arguments, early=True),
        Aspect("os.environ", lambda: changed_since(environment) or None, set_environment, early=True),
        Aspect("the time zone", lambda: time.tzname, lambda _: time.tzset(), early=True),
        Aspect("the locale", lambda: locale.setlocale(locale.LC_ALL), _set_locale, early=True),
        Aspect("os.umask", _umask, os.umask, early=True),
        Aspect("warning filters", lambda: list(warnings.filters), _set_filters, early=True, again=True, always=True),
        Aspect("os.nice", lambda: os.nice(0), lambda kept: os.nice(kept - os.nice(0)), early=True),
        Aspect(
            "os.sched_setaffinity",
            lambda: sorted(os.sched_getaffinity(0)),
            lambda processors: os.sched_setaffinity(0, processors),
            early=True,
        ),
        Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, early=True),
        Aspect("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits, early=True),
        Aspect("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
        Aspect("garbage collection", _garbage_collection, _set_garbage_collection),
        Aspect("Python's random state", random.getstate, random.setstate),
        Aspect("threads' stack size", threading.stack_size, threading.stack_size),
        Aspect("sys.dont_write_bytecode", lambda: sys.dont_write_bytecode, _set_dont_write_bytecode),
        Aspect("limits of resources", _limits, _set_limits, "resource"),
        Aspect("tracemalloc", _traced_frames, lambda frames: _of("tracemalloc").start(frames), "tracemalloc"),
        Aspect("types by mimetypes", _mime_types, _add_mime_types, "mimetypes"),
        Aspect(
            "decimal's default context",
            lambda: _content_of(_of("decimal").DefaultContext),
            lambda content: _fill_context(_of("decimal").DefaultContext, content),
            "decimal",
        ),
        Aspect(
            "decimal's context",
            lambda: _content_of(_of("decimal").getcontext()),
            lambda content: _fill_context(_of("decimal").getcontext(), content),
            "decimal",
        ),
        Aspect(
            "csv's field limit", lambda: _of("csv").field_size_limit(), lambda n: _of("csv").field_size_limit(n), "csv"
        ),
        Aspect("csv's dialects", _dialects, _register_dialects, "csv"),
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


def changed_since(before: Mapping[str, str]) -> dict[str, str | None]:
    """Variables that were set, changed or (`None`) removed, of those that are a user's to set."""
    now = os.environ
    changed: dict[str, str | None] = {name: now.get(name) for name in before.keys() | now.keys()}
    return {
        name: value
        for name, value in changed.items()
        if value != before.get(name) and not name.startswith(_NOT_THE_USERS)
    }


def _set_path(path: list[str]) -> None:
    sys.path[:] = path


def _set_arguments(arguments: list[str]) -> None:
    sys.argv[:] = arguments


def set_environment(changed: Mapping[str, str | None]) -> None:
    """Change these variables again."""
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_filters(filters: list[Any]) -> None:
    warnings.resetwarnings()  # or registries of modules would not see that they are others
    warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says


def _set_dont_write_bytecode(kept: bool) -> None:  # noqa: FBT001 - what was captured
    sys.dont_write_bytecode = kept


def _limits() -> dict[str, int]:
    """The soft ones, by name: what the process may take is its hard ones."""
    resource = _of("resource")
    return {
        name: resource.getrlimit(getattr(resource, name))[0] for name in dir(resource) if name.startswith("RLIMIT_")
    }


def _set_limits(kept: Mapping[str, int]) -> None:
    """Raises RuntimeError with all that could not be set."""
    resource = _of("resource")
    failed = []
    for name, soft in kept.items():
        now, hard = resource.getrlimit(number := getattr(resource, name))
        try:
            if soft != now:
                resource.setrlimit(number, (soft, hard))
        except (ValueError, OSError) as error:
            failed.append(f"{name}: {error}")
    if failed:
        raise RuntimeError("; ".join(failed))


def _traced_frames() -> int | None:
    """Of each allocation; `None`: nothing is traced."""
    return _of("tracemalloc").get_traceback_limit() if _of("tracemalloc").is_tracing() else None


def _dialects() -> dict[str, dict[str, Any]]:
    found = {name: _of("csv").get_dialect(name) for name in _of("csv").list_dialects()}
    return {name: {rule: getattr(dialect, rule) for rule in _OF_A_DIALECT} for name, dialect in found.items()}


def _register_dialects(dialects: Mapping[str, Mapping[str, Any]]) -> None:
    for name, rules in dialects.items():
        _of("csv").register_dialect(name, **rules)


def _mime_types() -> dict[str, str] | None:
    """By ending, those that this machine's files do not have so."""
    if not _of("mimetypes").inited:
        return None
    found, known = _of("mimetypes").types_map, _types_of_this_machine()
    return {ending: name for ending, name in found.items() if known.get(ending) != name} or None


@functools.cache
def _types_of_this_machine() -> dict[str, str]:
    known = _of("mimetypes").MimeTypes()
    for path in filter(os.path.isfile, _of("mimetypes").knownfiles):
        known.read(path)
    return dict(known.types_map[True])


def _add_mime_types(kept: Mapping[str, str]) -> None:
    for ending, name in kept.items():
        _of("mimetypes").add_type(name, ending)


def _content_of(context: Any) -> _Content:
    return {name: getattr(context, name) for name in _OF_A_CONTEXT}, dict(context.flags), dict(context.traps)


def _fill_context(context: Any, content: _Content) -> None:
    """In the one that is there: names of the user's may lead to it."""
    numbers, flags, traps = content
    for name, value in numbers.items():
        setattr(context, name, value)
    context.flags.update(flags)
    context.traps.update(traps)
