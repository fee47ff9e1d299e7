"""Each run of the tests has a temporary folder of its own, which is gone at its end, however that comes.

Runs of one user would share pytest's, which each of them closes to other users when it begins: also under another one's
tests that let such a user in. Caches are in there too: kernels that are killed leave jedi's in pieces, and it would
complete nothing from then on, for the user as well. A plugin of `conftest`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import pytest


class OwnFolder:
    """Where `tmp_path` of this run is; what failing tests have left there may be looked at.

    `--basetemp` names another, which is kept.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._made: str | None = None
        self._failed = False
        if config.option.basetemp is None:
            config.option.basetemp = self._made = tempfile.mkdtemp(prefix="nls-tests-")
            os.environ["XDG_CACHE_HOME"] = f"{self._made}/cache"
            # What ends the run ends its tests, whose fixtures end their processes.
            signal.signal(signal.SIGTERM, signal.default_int_handler)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In any phase of a test, and of another process's too."""
        self._failed |= report.failed

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Where that is."""
        if self._made is not None and self._failed:
            terminalreporter.write_line(f"The tests' files are in {self._made}")

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Also after Ctrl-C, SIGTERM, a wrong option, or a file that is not there."""
        if self._made is not None and not self._failed:
            shutil.rmtree(self._made, ignore_errors=True)
