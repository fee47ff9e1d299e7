"""Real notebooks on a real Jupyter Server beside a real daemon, driven from tests that are plain functions."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from daemon_process import DaemonProcess
from nls_scheduler.demo.jupyter import CellFailed, Notebook, Outputs, serve
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

T = TypeVar("T")
PATIENCE_S = 60.0


class RunningCell:
    """A cell that was started and may still run."""

    def __init__(self, bench: Bench, notebook: Notebook, code: str) -> None:
        self.outputs = Outputs()
        self._bench = bench
        self._task = bench.loop.create_task(notebook.run(code, PATIENCE_S, self.outputs))
        # How a cell ended that a test leaves alone is nothing to tell the test in which it is collected.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())

    def until(self, holds: Callable[[Outputs], object]) -> Outputs:
        """Wait until its outputs are so."""

        async def so() -> bool:
            assert not self._task.done() or holds(self.outputs), f"the cell is over: {self.outputs} {self._task}"
            return bool(holds(self.outputs))

        self._bench.wait(eventually(so, PATIENCE_S))
        return self.outputs

    @property
    def over(self) -> bool:
        """Whether it is known to be over."""
        return self._task.done()

    def finish(self) -> Outputs:
        """Its outputs once it is over. Raises CellFailed."""
        return self._bench.wait(self._task)

    def fail(self) -> CellFailed:
        """How it failed, once it has."""
        with contextlib.suppress(CellFailed):
            raise AssertionError(f"the cell did not fail: {self.finish()}")
        error = self._task.exception()
        assert isinstance(error, CellFailed)
        return error


class Book:
    """One notebook."""

    def __init__(self, bench: Bench, notebook: Notebook) -> None:
        self.notebook = notebook
        self._bench = bench

    @property
    def name(self) -> str:
        """As the daemon calls its workload."""
        return self.notebook.path

    def start(self, code: str) -> RunningCell:
        """Start a cell."""
        return RunningCell(self._bench, self.notebook, code)

    def run(self, code: str) -> Outputs:
        """Run a cell. Raises CellFailed."""
        return self.start(code).finish()

    def gpu(self, code: str) -> Outputs:
        """Run a cell in the GPU process."""
        return self.run(f"%%gpu\n{code}")

    def fails(self, code: str) -> CellFailed:
        """Run a cell that fails."""
        return self.start(code).fail()

    def interrupt(self) -> None:
        """The Stop button."""
        return self._bench.wait(self.notebook.interrupt())

    def restart(self) -> None:
        """Restart the kernel."""
        self._bench.wait(self.notebook.restart())

    def close(self) -> None:
        """End the kernel."""
        self._bench.wait(self.notebook.shut_down())

    def pid(self) -> int:
        """The kernel's."""
        return int(self.run("import os; os.getpid()").result or 0)

    def entry(self, **fields: object) -> Any:
        """Its workload's status entry, once it has these fields."""
        return self._bench.daemon.wait_for(self.name, PATIENCE_S, **fields)


class Bench:
    """A daemon, on real Gpus where `simulate` is `None`, and a Jupyter Server whose kernels find it.

    Use as a context manager.
    """

    before: tuple[str, ...] = ()
    """Words before the server's command."""

    def __init__(self, directory: Path, simulate: str | None, *arguments: str, **variables: str) -> None:
        self._directory = directory
        self._variables = variables
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._books: list[Book] = []
        context = [] if simulate is None else ["--context-memory", "16MiB"]
        self.daemon = DaemonProcess(directory, simulate, *context, *arguments)

    def __enter__(self) -> Self:
        self.loop = self._runner.get_loop()
        self.daemon.__enter__()
        # What stands by takes time from the other tests on the machine; those about it turn it on.
        environment = {"NLS_STANDBY_MEMORY": "0", **self.daemon.environment, **self._variables}
        self._server = self.wait(self._stack.enter_async_context(serve(self._directory, environment, self.before)))
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for book in self._books:
                book.notebook.close()
            self.wait(self._stack.aclose())
        finally:
            self._runner.close()
            self.daemon.__exit__()

    def wait(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Run the loop until `work` is done."""

        async def waiting() -> T:
            return await work

        return self._runner.run(waiting())

    def open(self, name: str | None = None) -> Book:
        """A new notebook with a kernel of its own."""
        number = len(self._books) + 1
        self._books.append(Book(self, self.wait(self._server.open(name or f"book-{number}.ipynb"))))
        return self._books[-1]
