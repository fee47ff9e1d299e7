"""Runs a cell in the GPU process from the thread that runs the notebook's cells: waiting, input and Ctrl-C included."""

from __future__ import annotations

import asyncio
import queue
import sys
from typing import TYPE_CHECKING

from IPython.display import DisplayHandle, clear_output

from nls_jupyter.supervisor import Cell

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from ipykernel.ipkernel import IPythonKernel

    from nls_jupyter.loop_thread import LoopThread
    from nls_jupyter.notices import Notice
    from nls_jupyter.pending import Message
    from nls_jupyter.relay import CellResult, OutputRelay
    from nls_jupyter.supervisor import Supervisor


# What the supervisor's thread wants done in the cell's thread; `None`: the cell is over.
_Todo = queue.SimpleQueue["Callable[[], object] | None"]


class LiveLine:
    """One line below a waiting cell that is written over and over, and leaves nothing in the document."""

    def __init__(self) -> None:
        self._handle: DisplayHandle | None = None

    def show(self, text: str | None) -> None:
        """Write `text` in place of the line before; `None` takes the line away."""
        if text is None:
            if self._handle is not None:
                clear_output()
                self._handle = None
        elif self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display({"text/plain": text}, raw=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)


class CellRunner:
    """Hands cells to the supervisor's thread and does in this thread what belongs here."""

    def __init__(self, kernel: IPythonKernel, thread: LoopThread, supervisor: Supervisor, relay: OutputRelay) -> None:
        self._kernel = kernel
        self._thread = thread
        self._supervisor = supervisor
        self._relay = relay

    def run(self, code: str, *, label: str, wait: bool, wait_timeout_s: float | None) -> CellResult | None:
        """Run `code` in the GPU process; its outputs appear as this cell's. Returns what becomes Out[n].

        Raises:
            RemoteError: what the cell raised, under its own name.
            KeyboardInterrupt: the wait or the cell was interrupted.
            GpuError: there is no GPU process to run it.
        """
        todo: _Todo = queue.SimpleQueue()
        line = LiveLine()
        msg_id = self._relay.follow(todo.put)
        cell = Cell(
            code=code,
            label=label,
            msg_id=msg_id,
            wait=wait,
            wait_timeout_s=wait_timeout_s,
            on_stdin=lambda message: todo.put(lambda: self._answer(message)),
            on_wait=lambda text: todo.put(lambda: line.show(text)),
            on_notices=lambda notices: _done_in(todo, lambda: _print_notices(notices)),
        )
        future = self._thread.submit(self._supervisor.run(cell))
        future.add_done_callback(lambda _: todo.put(None))
        try:
            self._work_off(todo, future)
            reply = future.result()
        except BaseException:
            self._relay.abandon(msg_id)
            line.show(None)
            raise
        return self._relay.finish(msg_id, reply)

    def _work_off(self, todo: _Todo, future: Future[Message]) -> None:
        """Do what belongs to this thread until the cell is over and nothing is left to do."""
        while True:
            try:
                work = todo.get()
                if work is None:
                    return
                work()
            except KeyboardInterrupt:
                self._interrupt(future)

    def _interrupt(self, future: Future[Message]) -> None:
        """Ctrl-C: ends the wait at once; interrupts a running cell, which then raises KeyboardInterrupt itself."""
        if self._supervisor.keeper.executing:
            self._thread.soon(self._supervisor.interrupt)
            return
        future.cancel()
        raise KeyboardInterrupt

    def _answer(self, message: Message) -> None:
        content = message["content"]
        ask = self._kernel.getpass if content.get("password") else self._kernel.raw_input
        value = ask(content.get("prompt", ""))
        self._thread.soon(lambda: self._supervisor.answer_stdin(value))


def _print_notices(notices: Sequence[Notice]) -> None:
    for notice in notices:
        print(f"GPU: {notice.text}", file=sys.stderr, flush=True)  # noqa: T201 - a cell's stderr is where users look


async def _done_in(todo: _Todo, work: Callable[[], object]) -> None:
    """Have `work` done in the cell's thread, and return when it is."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def do() -> None:
        try:
            work()
        finally:
            loop.call_soon_threadsafe(done.set)

    todo.put(do)
    await done.wait()
