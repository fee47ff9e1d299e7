"""Fixtures for all tests."""

from __future__ import annotations

import _signal  # what `signal` is made of: there are tests that take parts of that away
import gc
import os
import signal
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import core
from hypothesis.vendor import pretty

from daemon_process import DaemonProcess
from in_time import InTime
from left_out import LeftOut
from own_folder import OwnFolder
from read_files import ReadFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENDED = pytest.StashKey[int]()
_OFTEN = 200
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

# What a shell starts in its background ignores these, and so would every process of the tests.
for ignored in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)

# PyTorch's threads that wait for one another leave the cores to the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Keras looks for TensorFlow unless it is told of another backend.
os.environ.setdefault("KERAS_BACKEND", "torch")

# What is drawn is the same on every machine, however busy, or a newcomer's first run may fail by chance; `make explore`
# draws anew. Properties take the rest of their settings from the profile when they are imported.
for profile, derandomize in (("fixed", True), ("explore", False)):
    hypothesis.settings.register_profile(
        profile, derandomize=derandomize, database=None, print_blob=True, deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )  # fmt: skip
hypothesis.settings.load_profile("fixed")


def pytest_configure(config: pytest.Config) -> None:
    """What is left out is said, and not read; no other run is in this one's folder."""
    config.pluginmanager.register(LeftOut(config))
    config.pluginmanager.register(InTime())
    config.pluginmanager.register(ReadFiles(config.option.markexpr))
    config.pluginmanager.register(OwnFolder(config))


def pytest_collection_finish() -> None:
    """What is there before the first test is no garbage, and is not looked through for it a hundred times.

    Failing examples are printed: schemathesis swaps the printer of all properties for one that prints nothing.
    """
    gc.freeze()
    core.RepresentationPrinter = pretty.RepresentationPrinter


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """What a test has set for signals is not in force in the next one.

    A daemon, for one, ends by Ctrl-C without a word until it serves, and so would this process after `nls up` in it.
    What libraries set beside Python, as OR-tools does when it solves, is undone as well.
    """
    before = {number: _signal.getsignal(number) for number in _HANDLED}
    try:
        yield
    finally:
        for number, handler in before.items():
            _signal.signal(number, handler)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Nor is, from time to time, what tests have imported: each look through all of that takes half a second."""
    item.session.stash[_ENDED] = ended = item.session.stash.get(_ENDED, 0) + 1
    if ended % _OFTEN == 0:
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _hangups_end_what_tests_begin() -> None:
    """Under nohup as well, where all would ignore them; the run itself goes on: what it handles nobody inherits."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A real daemon with two simulated Gpus of 16 GiB."""
    with DaemonProcess(tmp_path) as running:
        yield running


@pytest.fixture
def one_gpu_daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    """A real daemon with one simulated Gpu of 16 GiB, which reclaims within 2 seconds."""
    with DaemonProcess(tmp_path, "1x16GiB", "--set", "reclaim_deadline_s=2", "--set", "stop_grace_s=0.5") as running:
        yield running


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A real daemon for the tests of a module that leave no workload behind."""
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as running:
        yield running
