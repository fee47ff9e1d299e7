"""What is left of the tests that take long when their time is over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from in_time import REASON

TESTS = Path(__file__).parent.parent
SUITE = """
import pytest

@pytest.fixture
def costly():
    raise AssertionError("begun")

@pytest.mark.long("it takes long")
def test_long(costly):
    pass

def test_short():
    pass
"""


@pytest.mark.parametrize(("ends_at", "outcome"), [("1", "1 passed, 1 skipped"), ("1e12", "1 passed, 1 error")])
def test_only_what_takes_long_is_skipped_and_the_reason_is_told(tmp_path: Path, ends_at: str, outcome: str) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "conftest.py").write_text(
        "from in_time import InTime\n"
        "def pytest_configure(config):\n"
        "    config.addinivalue_line('markers', 'long(why): takes long')\n"
        "    config.pluginmanager.register(InTime())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir=.", "test_suite.py"],
        env={**os.environ, "NLS_ENDS_AT": ends_at, "PYTHONPATH": str(TESTS), "PYTEST_ADDOPTS": ""},
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert outcome in ran.stdout
    assert (REASON in " ".join(ran.stdout.split())) == (ends_at == "1")
