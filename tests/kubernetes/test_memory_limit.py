"""A notebook's container is about to use up its memory: what can be had again goes, and the kernel lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from notebooks import PATIENCE_S, Bench
from waiting import wait_until

if TYPE_CHECKING:
    from notebooks import Book

LIMIT_BYTES = 1280 * 2**20  # so much that what the system counts as left and is not matters little
ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"))
FILES = {
    "memory.max": ("memory.current", "memory.events", "inactive_file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "memory.oom_control", "total_inactive_file"),
}


class Container:
    """A cgroup with a limit, as a container's: v2 where the machine has it for memory, else v1."""

    def __enter__(self) -> Self:
        for root in ROOTS:
            self.path = root / f"nls-test-{os.getpid()}"
            try:
                self.path.mkdir()
            except OSError:
                continue
            limit = next((name for name in FILES if (self.path / name).exists()), None)
            if limit is not None:
                (self.path / limit).write_text(str(LIMIT_BYTES))
                self._usage, self._events, self._reclaimable = FILES[limit]
                if (self.path / "memory.oom.group").exists():
                    (self.path / "memory.oom.group").write_text("1")  # as the kubelet does
                return self
            self.path.rmdir()
        pytest.skip("this machine lets nobody make a cgroup with a limit on memory")

    def __exit__(self, *_: object) -> None:
        print(f"{self.oom_kills()} were killed by the system, {self.left_bytes()} bytes are left")  # shown of a failure
        wait_until(lambda: not (self.path / "cgroup.procs").read_text())
        self.path.rmdir()

    def left_bytes(self) -> int:
        statistics = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        used = int((self.path / self._usage).read_text())
        return LIMIT_BYTES - used + int(statistics[self._reclaimable])

    def oom_kills(self) -> int:
        lines = (line.split() for line in (self.path / self._events).read_text().splitlines())
        return sum(int(value) for name, value in lines if name == "oom_kill")


class ContainedBench(Bench):
    """A notebook server in a container, with a daemon outside of it."""

    def __init__(self, container: Container, directory: Path) -> None:
        super().__init__(directory, "1x16GiB")
        enter = f'echo $$ > {container.path}/cgroup.procs; exec "$@"'
        self.before = ("sh", "-c", enter, "sh")


def fill(container: Container, book: Book, part: float) -> None:
    """The notebook takes memory until that part of the limit is left, a little at a time."""
    goal = int(part * LIMIT_BYTES)
    while (surplus := container.left_bytes() - goal) > 2**20:
        book.run(f"ballast.append(bytearray(b'x') * {max(2**20, min(surplus, 64 * 2**20) * 3 // 4)}); len(ballast)")


def saved_bytes(pid: int) -> int:
    """What the files take in which this process saves."""
    files = [file for file in Path(f"/proc/{pid}/fd").iterdir() if "nls-saved-state" in str(file.readlink())]
    return sum(file.stat().st_blocks * 512 for file in files)


@pytest.mark.long("a pod's memory limit, with a real notebook")
def test_what_was_saved_goes_then_the_gpu_process_and_the_notebook_lives(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    # Sockets have short paths.
    with Container() as container, ContainedBench(container, tmp_path_factory.mktemp("memory")) as bench:
        book = bench.open()
        pid = book.pid()
        book.run("ballast, mine = [], 'still here'")
        book.gpu("from nls_jupyter import xp\nkept = xp.arange(2**24)")
        wait_until(lambda: book.entry()["saved_bytes"], PATIENCE_S)
        assert saved_bytes(book.entry()["pid"]) > 2**24 * 8
        before = container.left_bytes()

        def told(part: float, notice: str) -> bool:
            """Whether the notice has come; what the system gives back meanwhile is taken again."""
            if notice in book.run("%gpu log").stdout:
                return True
            fill(container, book, part)
            return False

        wait_until(lambda: told(0.055, "What was saved of this notebook's GPU variables was dropped"), PATIENCE_S)
        # Not only forgotten, although the process that had saved them lives on.
        assert saved_bytes(book.entry()["pid"]) < 2**20
        assert book.entry(phase="running")["pid"] is not None
        assert book.gpu("print(int(kept.sum()))").stdout.strip() == str(2**23 * (2**24 - 1))
        wait_until(lambda: told(0.022, "The GPU process was ended so that the notebook could live"), PATIENCE_S)
        # It would only use up again what has just been given back.
        wait_until(lambda: book.entry()["phase"] in ("queued", "suspended"), PATIENCE_S)
        assert book.run("print(mine)").stdout.strip() == "still here"
        assert book.pid() == pid
        assert container.oom_kills() == 0
        book.run("ballast.clear()")
        assert container.left_bytes() > before
        assert book.gpu("print('kept' in globals())").stdout.strip() == "False"
