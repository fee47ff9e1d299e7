"""NLS_ENDS_AT, in seconds since 1970: `long` tests whose turn comes after it are skipped, and that is said.

For continuous integration, whose machine may be three times slower on one day than on another, and which is ended
without any result when its time is over. A plugin of `conftest`.
"""

from __future__ import annotations

import os
import time

import pytest

REASON = "its turn came after NLS_ENDS_AT: the machine is slow, and what is left is not run"


class InTime:
    """Skips `long` tests after a moment, if one is given."""

    def __init__(self) -> None:
        self._ends_at_s = float(os.environ.get("NLS_ENDS_AT", "inf"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Before the fixtures, which may take long themselves."""
        if time.time() > self._ends_at_s and item.get_closest_marker("long") is not None:
            pytest.skip(REASON)
