"""Saves and restores namespaces for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from nls_jupyter import saved_state

WITHIN_S = 60


class Roundtrip:
    """One namespace through saved state; what came of it, and the new namespace."""

    def __init__(self, namespace: dict[str, Any], *, function_globals: dict[str, Any] | None = None) -> None:
        fd, self.manifest = saved_state.save(namespace, cell="5", function_globals=function_globals)
        self.namespace: dict[str, Any] = {}
        try:
            self.report = saved_state.restore(fd, self.namespace)
        finally:
            os.close(fd)

    def __getitem__(self, name: str) -> Any:
        return self.namespace[name]

    @property
    def unsaved(self) -> dict[str, str]:
        return {missing.name: missing.reason for missing in self.manifest.missing}


def cells(source: str) -> dict[str, Any]:
    """The namespace that a notebook would have after these lines, `__main__`'s as in IPython."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "<cell>", "exec"), namespace)
    return namespace


def roundtrip(source: str) -> Roundtrip:
    """Run lines as cells, save the user's names, restore them."""
    namespace = cells(source)
    return Roundtrip(saved_state.user_names(namespace, {}), function_globals=namespace)


_RESTORE = """
import sys
from nls_jupyter import saved_state
report = saved_state.restore(int(sys.argv[1]), globals())
assert not report.missing, report
exec(compile(sys.argv[2], "<check>", "exec"))
"""


def check_in_a_new_process(source: str, check: str) -> None:
    """Run `source` as cells here, restore in a new Python process's `__main__`, and run `check` there."""
    namespace = cells(source)
    fd, manifest = saved_state.save(saved_state.user_names(namespace, {}), cell=None, function_globals=namespace)
    try:
        assert not manifest.missing, manifest
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        done = subprocess.run(
            [sys.executable, "-c", _RESTORE, str(fd), check],
            env=environment,
            pass_fds=[fd],
            timeout=WITHIN_S,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(fd)
    assert done.returncode == 0, done.stderr
