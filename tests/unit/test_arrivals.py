"""Files that a GPU process hands over, also to a kernel that can open no more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_jupyter.between.state_socket import StateSocket
from nls_jupyter.saved_state import Saver
from nls_jupyter.supervisor.arrivals import Arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nls_jupyter.saved_state import Manifest

NONE_FREE = r"this process has no free file descriptor .*\(ulimit -n\)"


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """So many numbers are left below the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def ends() -> Iterator[tuple[StateSocket, StateSocket]]:
    """The kernel's end and the GPU process's."""
    kernels, others = StateSocket.pair()
    others.setblocking(False)
    gpu_processs = StateSocket(others)
    yield kernels, gpu_processs
    kernels.close()
    gpu_processs.close()


@pytest.mark.parametrize("free", [0, 1])
def test_files_that_find_no_descriptor_are_told_as_that(ends: tuple[StateSocket, StateSocket], free: int) -> None:
    async def run() -> None:
        arrivals = Arrivals(ends[0], None)
        ends[1].send(1, (0, 1))
        open_before = open_files()
        with free_descriptors(free), pytest.raises(OSError, match=NONE_FREE):
            arrivals.sent(1)
        assert open_files() == open_before
        ends[1].send(2, (0, 1))
        for descriptor in arrivals.sent(2):
            os.close(descriptor)
        with pytest.raises(OSError, match="the GPU process did not send the file that it announced"):
            arrivals.sent(3)
        arrivals.close()

    asyncio.run(run())


def test_a_gpu_process_is_told_the_same(ends: tuple[StateSocket, StateSocket]) -> None:
    ends[0].send(1, (0,))
    with free_descriptors(0), pytest.raises(OSError, match=NONE_FREE):
        ends[1].receive(1)


@pytest.mark.parametrize("free", [0, 1])
def test_a_save_point_that_finds_no_descriptor_does_not_keep_the_next_one_away(
    ends: tuple[StateSocket, StateSocket], free: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The second case: its file comes, and cannot be read."""
    cells: list[str | None] = []

    def take(descriptors: tuple[int, ...], manifest: Manifest) -> None:
        cells.append(manifest.cell)
        for descriptor in descriptors:
            os.close(descriptor)

    async def run() -> None:
        arrivals = Arrivals(ends[0], take)
        with contextlib.closing(Saver()) as saver:
            saver.save({"x": 1}, cell="[1]")
            ends[1].send(0, saver.descriptors(), announced=False)
            with free_descriptors(free), caplog.at_level(logging.WARNING):
                arrivals.take()
            assert cells == []
            ends[1].send(0, saver.descriptors(), announced=False)
            await asyncio.sleep(0.1)
        arrivals.close()

    asyncio.run(run())
    assert cells == ["[1]"]
    assert "could not be taken over" in caplog.text
