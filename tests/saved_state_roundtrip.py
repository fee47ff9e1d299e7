"""Saves and restores namespaces for tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import cloudpickle

from nls_jupyter import saved_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WITHIN_S = 60


class Roundtrip:
    """One namespace through saved state; what came of it, and the new namespace."""

    def __init__(self, namespace: dict[str, Any], *, function_globals: dict[str, Any] | None = None) -> None:
        self.namespace: dict[str, Any] = {}
        with contextlib.closing(saved_state.Saver()) as saver:
            self.manifest = saver.save(namespace, cell="5", function_globals=function_globals)
            self.report = restore(saver.descriptors(), self.namespace)

    def __getitem__(self, name: str) -> Any:
        return self.namespace[name]

    @property
    def unsaved(self) -> dict[str, str]:
        return {missing.name: missing.reason for missing in self.manifest.missing}


def taken(lock: Any = None) -> Any:
    """A lock that somebody has: what no process can give to another one."""
    lock = threading.Lock() if lock is None else lock
    lock.acquire()
    return lock


def restore(descriptors: Sequence[int], namespace: dict[str, Any]) -> saved_state.RestoreReport:
    """As a new process would, which knows none of the classes."""
    with contextlib.closing(saved_state.Saver()) as saver, _no_class_is_known():
        return saver.restore(descriptors, namespace)


@contextlib.contextmanager
def _no_class_is_known() -> Iterator[None]:
    """Else cloudpickle takes a class that it has saved, with all that it has, for the one that it is to make."""
    names = "_DYNAMIC_CLASS_TRACKER_BY_ID", "_DYNAMIC_CLASS_TRACKER_BY_CLASS"
    before = {name: getattr(cloudpickle.cloudpickle, name) for name in names}
    for name, known in before.items():
        setattr(cloudpickle.cloudpickle, name, type(known)())
    try:
        yield
    finally:
        for name, known in before.items():
            setattr(cloudpickle.cloudpickle, name, known)


@contextlib.contextmanager
def saved(namespace: dict[str, Any], **options: Any) -> Iterator[tuple[list[int], saved_state.Manifest]]:
    """Descriptors and manifest of a saved namespace."""
    with contextlib.closing(saved_state.Saver()) as saver:
        manifest = saver.save(namespace, cell=None, **options)
        yield saver.descriptors(), manifest


def cells(source: str) -> dict[str, Any]:
    """The namespace that a notebook would have after these lines, `__main__`'s as in IPython."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec", dont_inherit=True), namespace)
    return namespace


def roundtrip(source: str) -> Roundtrip:
    """Run lines as cells, save the user's names, restore them."""
    return of_user(cells(source))


def of_user(namespace: dict[str, Any]) -> Roundtrip:
    """Save and restore the user's names; builtins are there too, in which libraries put what nobody can save."""
    return Roundtrip(saved_state.user_names(namespace, {}), function_globals=namespace)


_RESTORE = """
import sys
from nls_jupyter import saved_state
saver = saved_state.Saver()
report = saver.restore([int(sys.argv[1])], globals())
assert not report.missing, report
exec(compile(sys.argv[2], "<check>", "exec"))
"""


def check_in_a_new_process(source: str, check: str) -> None:
    """Run `source` as cells here, restore in a new Python process's `__main__`, and run `check` there."""
    namespace = cells(source)
    with saved(saved_state.user_names(namespace, {}), function_globals=namespace) as (descriptors, manifest):
        assert not manifest.missing, manifest
        done = subprocess.run(
            [sys.executable, "-c", _RESTORE, str(descriptors[0]), check],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=descriptors,
            timeout=WITHIN_S,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
