"""A run of the tests leaves its folder behind when a test has failed, with that test's files, and else nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import wait_until

CONFTEST = """
from own_folder import OwnFolder

def pytest_configure(config):
    config.pluginmanager.register(OwnFolder(config))
"""
TESTS = """
import time

def test_passes(tmp_path):
    (tmp_path / "file").touch()

def test_fails(tmp_path):
    (tmp_path / "file").touch()
    assert False

def test_waits(tmp_path):
    (tmp_path / "file").touch()
    time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project's, with its tests and where the runs' folders come to be."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntmp_path_retention_policy = failed\n")
    (tmp_path / "temporary").mkdir()
    return tmp_path


def begun(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder / "temporary"),
    }
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE)


def left(folder: Path) -> list[str]:
    files = (folder / "temporary").rglob("*")
    return [str(file.relative_to(folder / "temporary").parent.name) for file in files if file.name == "file"]


@pytest.mark.parametrize(
    ("options", "code"), [(("-k", "passes"), 0), (("no_such_file.py",), 4), (("-k", "nothing"), 5), (("--markers",), 0)]
)
def test_nothing_is_left_of_a_run_without_a_failure(folder: Path, options: tuple[str, ...], code: int) -> None:
    with begun(folder, *options) as run:
        run.communicate(timeout=60)
    assert run.returncode == code
    assert not [*(folder / "temporary").iterdir()]


@pytest.mark.long("runs of tests that are tests themselves")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_a_run_that_is_ended(folder: Path, number: signal.Signals) -> None:
    with begun(folder, "-k", "waits") as run:
        wait_until(lambda: left(folder))
        run.send_signal(number)
        run.communicate(timeout=60)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert not [*(folder / "temporary").iterdir()]


def test_what_a_failing_test_has_left_is_kept_and_said(folder: Path) -> None:
    with begun(folder, "-k", "passes or fails") as run:
        told = run.communicate(timeout=60)[0]
    (kept,) = (folder / "temporary").iterdir()
    assert f"The tests' files are in {kept}\n" in told
    assert left(folder) == ["test_fails0"]
