"""What the operating system and the standard library hold for the process as a whole."""

from __future__ import annotations

import os
import random
import sys
import warnings
from typing import TYPE_CHECKING, Any

from nls_jupyter.saved_state.aspect import Aspect

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_THE_USERS = ("CUDA_VISIBLE_DEVICES", "NLS_")


def of_process() -> tuple[Aspect, ...]:
    """Made when the process starts: what is there then is not a change."""
    environment = dict(os.environ)
    return (
        Aspect("the working directory", os.getcwd, os.chdir, early=True),
        Aspect("sys.path", lambda: list(sys.path), _set_path, early=True),
        Aspect("os.environ", lambda: _changed_since(environment), _set_environment, early=True),
        Aspect("warning filters", lambda: list(warnings.filters), _set_filters, early=True),
        Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, early=True),
        Aspect("Python's random state", random.getstate, random.setstate),
        Aspect("decimal's context", _decimal_context, _set_decimal_context, "decimal"),
    )


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


def _set_environment(changed: Mapping[str, str | None]) -> None:
    for name, value in changed.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_filters(filters: list[Any]) -> None:
    warnings.filters[:] = filters  # type: ignore[index]  # a list, whatever typeshed says
    warnings._filters_mutated()  # type: ignore[attr-defined]  # or registries of modules would not see it


def _decimal_context() -> Any:
    decimal = sys.modules["decimal"]
    context = decimal.getcontext()
    return context if repr(context) != repr(decimal.DefaultContext) else None


def _set_decimal_context(context: Any) -> None:
    sys.modules["decimal"].setcontext(context)
