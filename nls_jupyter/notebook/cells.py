"""Runs a cell in the GPU process from the thread that runs the notebook's cells: waiting, input and Ctrl-C included."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import queue
import signal
import sys
import threading
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ipykernel.iostream import OutStream
from IPython.core.error import UsageError
from IPython.display import DisplayHandle, clear_output

from nls_jupyter.between.numbering import inputs_from
from nls_jupyter.notebook.relayed_commands import carry_out
from nls_jupyter.supervisor.calls import Call, Cell
from nls_jupyter.supervisor.wire import OWN_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from types import FrameType

    from ipykernel.ipkernel import IPythonKernel

    from nls_jupyter.between.cell_result import CellResult
    from nls_jupyter.notebook.relay import OutputRelay
    from nls_jupyter.notebook.status_view import GpuStatus
    from nls_jupyter.supervisor.loop_thread import LoopThread
    from nls_jupyter.supervisor.notices import Notice
    from nls_jupyter.supervisor.pending import Message
    from nls_jupyter.supervisor.supervisor import Supervisor


# What is wanted done in the cell's thread; the reply, or `None`: the cell is over.
_Todo = queue.SimpleQueue["Callable[[], object] | Message | None"]

_log = logging.getLogger(__name__)
_INTERRUPTS_BEFORE_HINT = 2
# A cell that has not ended so long after its first Ctrl-C is told about.
_HEARD_WITHIN_S = 5.0
_WAITING_HINT = "; a %%local cell needs no GPU"
# A thread that ended without a word is noticed after this.
_LOOK_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Ask:
    """One execute request of a frontend in auto mode.

    Attributes:
        code: the cell's source.
        label: how the user knows it, such as `[5]`.
        parent: the whole request.
        quiet: it is no cell of the user's (silent or not stored), so it brings no GPU process back.
        options: for `GpuProcess.execute`.
        meanwhile: done in the cell's thread while the cell runs, perhaps more than once; not at all if it was not sent.
    """

    code: str
    label: str
    parent: Message
    quiet: bool
    options: Mapping[str, Any]
    meanwhile: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it: the execute reply's content, the text of the last result, and whether anything was shown."""

    content: Message
    result: str | None
    showed: bool


class LiveLine:
    """One line below a waiting cell that is written over and over, and leaves nothing of it in the document.

    Args:
        alone: the cell has no other output yet, so that all of it can be cleared.
        hint: what the user can do meanwhile.

    Attributes:
        showed: there was a line, or anything else from this side.
        last: the text of the line that was shown last, without the hint.
    """

    def __init__(self, *, alone: bool, hint: str = "") -> None:
        self.showed = False
        self.last: str | None = None
        self._alone = alone
        self._hint = hint
        self._handle: DisplayHandle | None = None

    def show(self, text: str | None) -> None:
        """Write `text` in place of the line before; `None` takes the line away."""
        self.showed = True
        if text is None:
            self._take_away()
            return
        self.last = text
        text += self._hint
        if not isinstance(sys.stdout, OutStream):
            return  # the cell's outputs are captured: nobody would see a line, and it would stay in there
        if self._handle is None:
            self._handle = DisplayHandle()
            self._handle.display({"text/plain": text}, raw=True)
        else:
            self._handle.update({"text/plain": text}, raw=True)

    def others(self) -> None:
        """Something else was put out."""
        self.showed = True
        self._alone = False

    def _take_away(self) -> None:
        if self._handle is not None and self._alone:
            clear_output()
        elif self._handle is not None:
            self._handle.update({"text/plain": ""}, raw=True)
        self._handle = None


class _Interrupts:
    """Ctrl-C as one more thing to do instead of an exception at any moment: then no cell can be lost on the way.

    Only the main thread gets signals; a cell that runs in another one can't be interrupted by them.
    """

    def __init__(self, interrupted: Callable[[], object]) -> None:
        self._interrupted = interrupted
        self._caught = self._raises = False
        self._ending_prompt = threading.Lock()

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """While the cell runs."""
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or previous is None:
            yield
            return
        signal.signal(signal.SIGINT, self._on_sigint)
        self._caught = True
        try:
            yield
        finally:
            with self._ending_prompt:  # a signal of its own never comes after this
                signal.signal(signal.SIGINT, previous)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """While the cell waits for the user: only an exception ends that."""
        self._raises = True
        try:
            yield
        finally:
            self._raises = False

    def end_prompt(self) -> None:
        """Nobody waits for the user's answer any more. From another thread, which no Ctrl-C reaches."""
        with self._ending_prompt:
            if self._caught and self._raises:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self._raises:
            raise KeyboardInterrupt
        self._interrupted()


class CellRunner:
    """Hands cells to the supervisor's thread and does in this thread what belongs here."""

    def __init__(
        self,
        kernel: IPythonKernel,
        thread: LoopThread,
        supervisor: Supervisor,
        relay: OutputRelay,
        command: Callable[[str], GpuStatus | None],
    ) -> None:
        self._kernel = kernel
        self._shell: Any = kernel.shell
        self._thread = thread
        self._supervisor = supervisor
        self._relay = relay
        self._command = command

    def execute(self, ask: Ask) -> Answer:
        """Run a whole cell of auto mode in the GPU process; its outputs, result and error are published as they come.

        Raises:
            KeyboardInterrupt: the wait was interrupted, or the cell is left alone.
            GpuError: there is no GPU process to run it.
        """
        line = LiveLine(alone=True, hint=_WAITING_HINT)
        run = self._supervisor.run_quietly if ask.quiet else self._supervisor.run

        def follow(_: Callable[[Callable[[], None]], object]) -> str:
            return self._relay.follow_directly(ask.parent)

        msg_id, reply = self._hand_over(
            ask.code, line, follow, run, label=ask.label, options=ask.options, meanwhile=ask.meanwhile
        )
        content, shown = reply["content"], self._relay.finish_directly(msg_id)
        if shown.is_usage_error(content):
            self._shell.show_usage_error(UsageError(content["evalue"]))
            content = {**content, "traceback": []}
        result = None if shown.result is None else shown.result["content"]["data"].get("text/plain")
        showed = content["status"] != "ok" or line.showed or shown.anything
        return Answer(content, result, showed)

    def run(
        self,
        code: str,
        *,
        label: str,
        wait: bool,
        wait_timeout_s: float | None,
        alone: bool,
        options: Mapping[str, Any],
    ) -> CellResult | None:
        """Run `code` in the GPU process; its outputs appear as this cell's. Returns what becomes Out[n].

        Args:
            code: the cell's source.
            label: how the user knows the cell.
            wait: see `Cell`, as for `wait_timeout_s`.
            wait_timeout_s: see above.
            alone: nothing of the notebook's cell was put out before.
            options: see `Cell`.

        Raises:
            RemoteError: what the cell raised, under its own name.
            KeyboardInterrupt: the wait or the cell was interrupted.
            GpuError: there is no GPU process to run it.
        """
        msg_id, reply = self._hand_over(
            code,
            LiveLine(alone=alone),
            self._relay.follow,
            self._supervisor.run,
            label=label,
            wait=wait,
            wait_timeout_s=wait_timeout_s,
            options=options,
        )
        return self._relay.finish(msg_id, reply)

    def _hand_over(
        self,
        code: str,
        line: LiveLine,
        follow: Callable[[Callable[[Callable[[], None]], object]], str],
        run: Callable[[Cell], Coroutine[Any, Any, Message]],
        *,
        label: str,
        options: Mapping[str, Any],
        wait: bool = True,
        wait_timeout_s: float | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> tuple[str, Message]:
        """Have the supervisor `run` the cell, and do here what belongs here until it is over."""
        todo: _Todo = queue.SimpleQueue()
        call = Call()
        interrupts = _Interrupts(lambda: self._thread.soon(lambda: self._interrupt(call, todo)))
        with interrupts.caught():
            msg_id = follow(todo.put)
            cell = Cell(
                code=code,
                label=label,
                msg_id=msg_id,
                wait=wait,
                wait_timeout_s=wait_timeout_s,
                on_stdin=lambda message: todo.put(lambda: self._answer(message, call, interrupts)),
                on_wait=lambda text: todo.put(lambda: line.show(text)),
                on_notices=lambda notices: _done_in(todo, lambda: _print_notices(notices, line)),
                caught_up=lambda: _done_in(todo, lambda: None),
                on_sent=_nothing if meanwhile is None else functools.partial(todo.put, meanwhile),
                on_reply=todo.put,
                options=options,
                call=call,
            )
            try:
                reply = self._until_over(run(cell), call, todo, line)
            except BaseException:
                self._relay.abandon(msg_id)
                raise
        return msg_id, reply

    def _until_over(self, run: Coroutine[Any, Any, Message], call: Call, todo: _Todo, line: LiveLine) -> Message:
        future = self._thread.submit(run)
        future.add_done_callback(lambda _: todo.put(None))
        reply, failure = self._work_off(todo, future, call)
        if reply is not None:
            future.add_done_callback(_tell_failure)
        try:
            reply = reply or future.result()
        except CancelledError:
            if call.left_alone:
                _print("the cell goes on in the GPU process, which does not react; %gpu restart ends it.")
                raise KeyboardInterrupt from None
            waited_for = "" if line.last is None else f" ({line.last})"
            raise KeyboardInterrupt(f"the cell was interrupted before it began{waited_for}") from None
        if failure is not None:
            raise failure
        return reply

    def _work_off(self, todo: _Todo, future: Future[Message], call: Call) -> tuple[Message | None, Exception | None]:
        """Do what belongs to this thread until the cell is over.

        Returns the reply, if it came before the end of the call, and the first failure of what was done here.

        A stream that the notebook's cell put in place of its output may raise anything: the cell then ends as by
        Ctrl-C, and is not left alone.
        """
        failure: Exception | None = None
        while True:
            try:
                work = todo.get(timeout=_LOOK_AFTER_S)
                if work is None or isinstance(work, dict):
                    return work, failure
                if failure is None:
                    work()
            except queue.Empty:
                if not self._thread.alive:
                    future.cancel()
                    ended = "the thread that looks after the GPU process has ended: restart the kernel"
                    return None, RuntimeError(ended)
            except KeyboardInterrupt:
                self._thread.soon(lambda: self._supervisor.interrupt(call))
            except Exception as error:  # noqa: BLE001 - raised when the cell is over
                failure = error
                self._thread.soon(lambda: self._supervisor.interrupt(call))

    def _interrupt(self, call: Call, todo: _Todo) -> None:
        """In the supervisor's thread."""
        times = self._supervisor.interrupt(call)
        if times == 1:
            asyncio.get_running_loop().call_later(_HEARD_WITHIN_S, self._tell_unheard, call, todo)
        elif times == _INTERRUPTS_BEFORE_HINT:
            todo.put(lambda: _print("interrupted again; one more Ctrl-C leaves the cell alone in the GPU process."))

    def _tell_unheard(self, call: Call, todo: _Todo) -> None:
        if (why := self._supervisor.why_unheard(call)) is not None:
            todo.put(lambda: _print(why))

    def _own_answer(self, message: Message) -> Message:
        content = message["content"]
        if message["header"]["msg_type"] == "nls_command_request":
            return carry_out(self._command, content["line"])
        raw, transformed = inputs_from(self._shell, content["start"])
        return {"raw": raw, "transformed": transformed}

    def _answer(self, message: Message, call: Call, interrupts: _Interrupts) -> None:
        content = message["content"]
        if message["header"]["msg_type"] in OWN_REQUESTS:
            with interrupts.raised():
                answer = self._own_answer(message)
            self._thread.soon(lambda: self._supervisor.answer_own(answer))
            return
        ask = self._kernel.getpass if content.get("password") else self._kernel.raw_input
        with interrupts.raised():
            self._thread.soon(lambda: call.when_over(interrupts.end_prompt))
            value = ask(content.get("prompt", ""))
        self._thread.soon(lambda: self._supervisor.answer_stdin(value))


def _nothing() -> None:
    """Nobody waits for this."""


def _tell_failure(future: Future[Message]) -> None:
    """Of what follows a reply, whose thread has gone on."""
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.error("What follows the end of a cell failed.", exc_info=error)


def _print(text: str) -> None:
    print(f"GPU: {text}", file=sys.stderr, flush=True)  # noqa: T201 - a cell's stderr is where users look


def _print_notices(notices: Sequence[Notice], line: LiveLine) -> None:
    line.others()
    for notice in notices:
        _print(notice.text)


async def _done_in(todo: _Todo, work: Callable[[], object]) -> None:
    """Have `work` done in the cell's thread, and return when it is. Cancelled, it is not done any more."""
    loop, done, dropped = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def do() -> None:
        if dropped.is_set():
            return
        try:
            work()
        finally:
            loop.call_soon_threadsafe(done.set)

    todo.put(do)
    try:
        await done.wait()
    except asyncio.CancelledError:
        dropped.set()
        raise
