"""Each run of the tests has a temporary folder of its own, which is gone when all of them have passed.

Runs of one user would share pytest's, which each of them closes to other users when it begins: also under another one's
tests that let such a user in. Caches are in there too: kernels that are killed leave jedi's in pieces, and it would
complete nothing from then on, for the user as well. A plugin of `conftest`.
"""

from __future__ import annotations

import os
import shutil
import tempfile

import pytest


class OwnFolder:
    """Where `tmp_path` of this run is. `--basetemp` names another, which is kept."""

    def __init__(self, config: pytest.Config) -> None:
        self._made: str | None = None
        if config.option.basetemp is None:
            config.option.basetemp = self._made = tempfile.mkdtemp(prefix="nls-tests-")
            os.environ["XDG_CACHE_HOME"] = f"{self._made}/cache"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """What failing tests have left may be looked at."""
        if self._made is not None and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            shutil.rmtree(self._made, ignore_errors=True)
            self._made = None

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where that is."""
        if self._made is not None and terminalreporter.stats.get("failed"):
            terminalreporter.write_line(f"The tests' files are in {self._made}")
