"""Fixtures for all tests."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What a shell starts in its background ignores these, and so would every process of the tests.
for ignored in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, signal.default_int_handler if ignored is signal.SIGINT else signal.SIG_DFL)


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
