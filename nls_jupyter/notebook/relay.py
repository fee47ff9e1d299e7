"""Shows what a GPU process puts out as the output of the notebook's cell that called it."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from ipykernel.iostream import OutStream
from IPython.core.error import UsageError

from nls_jupyter.between.cell_result import CellResult
from nls_jupyter.between.errors import GpuReclaimed
from nls_jupyter.between.seams import LAST_TRACEBACK, OUTPUT_HOOKS, SHOW_TRACEBACK
from nls_jupyter.notebook.flushes import leave_out_idle_flushes
from nls_jupyter.notebook.topics import topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipykernel.ipkernel import IPythonKernel

Message = dict[str, Any]

# Threads of a cell may print long after it.
REMEMBERED_CELLS = 1000

# Kinds that mean something to IPython or to `raise` itself; a class below them would behave, not only look, alike.
_NOT_IMITATED = (SyntaxError, StopIteration, StopAsyncIteration, BaseExceptionGroup, UnicodeError)


class _Remote(BaseException):
    """What the imitations share: the GPU process's own message and traceback, shown as they are.

    Attributes:
        shown: the user has seen all there is to see (IPython prints the traceback of an exception group, a handler of
            the user's shows what it likes): the exception only makes the cell a failed one.
    """

    def __init__(self, evalue: str = "", traceback_lines: Sequence[str] = (), *, shown: bool = False) -> None:
        super().__init__(evalue)
        self.evalue = evalue
        self.traceback_lines = list(traceback_lines)
        self.shown = shown

    def __str__(self) -> str:
        return self.evalue

    def _render_traceback_(self) -> list[str]:
        """For IPython, instead of the traceback of our own frames."""
        return self.traceback_lines


class RemoteError(_Remote, Exception):
    """A cell's exception, carried over from the GPU process; its class is named like the original's."""


class RemoteInterrupt(_Remote, KeyboardInterrupt):
    """The `KeyboardInterrupt` that ended a cell in the GPU process; a real one here too."""


class RemoteReclaimed(RemoteInterrupt, GpuReclaimed):
    """The `GpuReclaimed` that ended a cell in the GPU process; `except GpuReclaimed` catches it here too."""

    def __init__(self, evalue: str = "", traceback_lines: Sequence[str] = (), *, shown: bool = False) -> None:
        GpuReclaimed.__init__(self, evalue, 0.0)  # over already
        self.evalue = evalue
        self.traceback_lines = list(traceback_lines)
        self.shown = shown


@functools.lru_cache(maxsize=1000)
def error_class(ename: str) -> type[RemoteError] | type[RemoteInterrupt]:
    """The one class for exceptions of this name: `except ValueError` in the kernel catches the imitation as well."""
    bases: tuple[type, ...] = (RemoteError,)
    native = getattr(builtins, ename, None)
    if ename == "KeyboardInterrupt":
        bases = (RemoteInterrupt,)
    elif ename == GpuReclaimed.__name__:
        bases = (RemoteReclaimed,)
    elif isinstance(native, type) and issubclass(native, Exception) and not issubclass(native, _NOT_IMITATED):
        bases = (RemoteError, native) if native is not Exception else (RemoteError,)
    imitation: type[RemoteError] = type(ename, bases, {"__module__": "builtins"})
    return imitation


def remote_error(content: Mapping[str, Any], *, shown: bool = False) -> RemoteError | RemoteInterrupt:
    """The exception for an `error` message's or failed `execute_reply`'s content."""
    return error_class(content["ename"])(content["evalue"], content.get("traceback", ()), shown=shown)


def show_once(shell: Any) -> None:
    """Have IPython show nothing of a remote exception that was shown already. Idempotent."""
    show = SHOW_TRACEBACK.of(shell, None)  # made to be overridden, as ipykernel does
    if show is None or getattr(show, "shows_once", False):
        return

    def show_traceback(etype: type[BaseException], evalue: BaseException, lines: list[str]) -> None:
        if isinstance(evalue, _Remote) and evalue.shown:
            LAST_TRACEBACK.put(shell, lines)  # what ipykernel puts into the reply
        else:
            show(etype, evalue, lines)

    show_traceback.shows_once = True  # type: ignore[attr-defined]
    SHOW_TRACEBACK.put(shell, show_traceback)


class Shown(NamedTuple):
    """What a call's outputs were, as far as it matters to who made it.

    Attributes:
        result: the `execute_result` message that was published, or is still to be.
        error: as `result`; at most one of them.
        anything: whether anything was published directly.
    """

    result: Message | None
    error: Message | None
    anything: bool

    def is_usage_error(self, content: Message) -> bool:
        """Whether a reply's `content` is an error that the GPU process leaves to this kernel to show.

        IPython prints these in a line; the traceback in such a reply is that of an earlier error.
        """
        return content["status"] == "error" and content["ename"] == "UsageError" and self.error is None


class _Call:
    """One cell on its way through the GPU process; remembered for late outputs, so it keeps no more than it needs."""

    def __init__(self, parent: Message, run_in_caller: Callable[[Callable[[], None]], object] | None) -> None:
        # What is published belongs to the parent's header; the rest is the cell's whole code.
        self.parent: Message = {"header": parent["header"]} if "header" in parent else {}
        self.run_in_caller = run_in_caller
        self.direct = run_in_caller is None
        self.in_caller = False
        self.is_over = False
        self._showed = False
        # At most one of them: the last message, which may be what the cell ends with.
        self.result: Message | None = None
        self.error: Message | None = None

    def note(self, message: Message) -> None:
        """Remember what was published directly, for who made the call."""
        self._showed = True
        if self.is_over:
            return
        if message["header"]["msg_type"] == "execute_result":
            self.result = message
        elif message["header"]["msg_type"] == "error":
            self.error = message

    def end(self) -> Shown:
        """What was shown until now; what comes yet is published directly."""
        shown = Shown(self.result, self.error, self._showed)
        self.is_over = True
        self.result = self.error = self.run_in_caller = None
        self.in_caller = False
        return shown


class OutputRelay:
    """Finds the calling cell of each output message and publishes it there.

    `follow` and `finish` are called by the magic in the thread that runs the cell; `forward` by the channel's thread.
    """

    def __init__(self, kernel: IPythonKernel) -> None:
        self._kernel: Any = kernel  # most of ipykernel is untyped
        show_once(self._kernel.shell)
        leave_out_idle_flushes([sys.stdout, sys.stderr])
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._lock = threading.Lock()

    def follow(self, run_in_caller: Callable[[Callable[[], None]], object]) -> str:
        """Begin a call from the cell that runs now. Returns the `msg_id` for `GpuProcess.execute`.

        Args:
            run_in_caller: puts a function where the calling thread takes and runs it while it waits for the reply, and
                once more after the reply. Outputs that the cell captures (`%%capture`) are written there.
        """
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        call = _Call(self._kernel.get_parent("shell"), run_in_caller)
        call.in_caller = self._captured()
        return self._remember(call)

    def follow_directly(self, parent: Message) -> str:
        """Begin a call for a frontend's own message, a cell in auto mode or a widget's. Returns the `msg_id` for it.

        Its outputs, result and error included, are published under `parent` as the GPU process made them. It ends with
        `finish_directly`.
        """
        return self._remember(_Call(parent, None))

    def _remember(self, call: _Call) -> str:
        # The frontend's own where there is one: an ipywidgets Output catches what belongs to the id it knows.
        msg_id: str = call.parent.get("header", {}).get("msg_id") or uuid.uuid4().hex
        with self._lock:
            if (earlier := self._calls.get(msg_id)) is not None and not earlier.is_over:
                msg_id = uuid.uuid4().hex  # another thread of the cell waits for that one
            self._calls[msg_id] = call
            self._calls.move_to_end(msg_id)
            if len(self._calls) > REMEMBERED_CELLS:
                # Whoever is not over yet shows more, however many widgets' messages came since.
                oldest = next((key for key, call in self._calls.items() if call.is_over), None)
                if oldest is not None:
                    del self._calls[oldest]
        return msg_id

    def forward(self, message: Message) -> None:
        """Show one message of the GPU process, unless no cell owns it, as frontends do. In order, in one thread."""
        call = self._call_of(message)
        if call is None:
            return
        msg_type = message["header"]["msg_type"]
        if call.direct:
            call.note(message)
            self._publish(call, message)
            return
        if not msg_type.startswith("comm_") or _moves_outputs(message):
            # Something follows the result or the error (a figure that closes the cell): it keeps its place before that.
            self._let_go(call)
        if msg_type == "execute_result" and call.run_in_caller is not None:
            call.result = message
        elif msg_type == "error" and call.run_in_caller is not None:
            call.error = message
        else:
            self._pass_on(call, message)

    def finish(self, msg_id: str, reply: Message) -> CellResult | None:
        """End the call after its reply, in the calling thread. Returns the result that is still to be displayed.

        Raises:
            RemoteError, RemoteInterrupt: the cell failed.
            UsageError: it did, in a way that IPython says in a line.
        """
        call = self._going_on(msg_id)
        shown, content = call.end(), reply["content"]
        if shown.is_usage_error(content):
            raise UsageError(content["evalue"])
        for payload in content.get("payload", ()):
            # exit() of the GPU process ends that process, never this kernel.
            if payload.get("source") != "ask_exit":
                self._kernel.shell.payload_manager.write_payload(payload)
        result = None if shown.result is None else _result_of(shown.result)
        if content["status"] == "error":
            self._raise(call, content, result, shown.error)
        if shown.error is not None:
            self._publish(call, shown.error)  # shown by the user's own code (showtraceback), not raised
        return result

    def _raise(self, call: _Call, content: Message, result: CellResult | None, error: Message | None) -> NoReturn:
        """Fail the cell; its exception is shown by being raised, unless the GPU process has shown it in another way."""
        if error is not None and error["content"]["ename"] == content["ename"]:
            raise remote_error(content)
        if error is not None:
            self._publish(call, error)
        if result is not None:
            _display(result)  # one of its forms failed, the others are there
        raise remote_error(content, shown=True)

    def abandon(self, msg_id: str) -> None:
        """End the call without a reply: what was held back for that is shown, and late outputs find their cell."""
        call = self._going_on(msg_id)
        shown = call.end()
        held_back = shown.result or shown.error
        if held_back is not None and not call.direct:
            self._publish(call, held_back)

    def finish_directly(self, msg_id: str) -> Shown:
        """End a call of `follow_directly`. Returns what it showed."""
        return self._going_on(msg_id).end()

    def say(self, parent: Message, sentence: str) -> None:
        """Publish a line of our own, as what the call of `parent` has printed."""
        content = {"name": "stderr", "text": f"{sentence}\n"}
        self._publish(_Call(parent, None), {"header": {"msg_type": "stream"}, "content": content})

    def _going_on(self, msg_id: str) -> _Call:
        """A call that is not over, and so is not forgotten."""
        with self._lock:
            return self._calls[msg_id]

    def _call_of(self, message: Message) -> _Call | None:
        with self._lock:
            call = self._calls.get(message["parent_header"].get("msg_id", ""))
        if call is None and message["header"]["msg_type"].startswith(("comm_", "debug_")):
            return _Call({}, None)  # a widget's or the debugger's message means the same in whichever cell
        return call

    def _let_go(self, call: _Call) -> None:
        """What was held back for `finish` was not the cell's end: show it now."""
        result, error = call.result, call.error
        call.result = call.error = None
        if error is not None:
            self._pass_on(call, error)
        if result is not None and call.run_in_caller is not None:
            call.in_caller = True  # from now on, or the next output would overtake the result
            call.run_in_caller(functools.partial(_display, _result_of(result)))

    def _pass_on(self, call: _Call, message: Message) -> None:
        run_in_caller = call.run_in_caller
        if call.in_caller and run_in_caller is not None:
            run_in_caller(functools.partial(self._show_here, call, message))
        else:
            self._publish(call, message)

    def _show_here(self, call: _Call, message: Message) -> None:
        """In the calling thread: through whatever the cell put in place of the notebook."""
        content = message["content"]
        msg_type = message["header"]["msg_type"]
        publisher = self._kernel.shell.display_pub
        stream = getattr(sys, content["name"]) if msg_type == "stream" else None
        if stream is not None and not isinstance(stream, OutStream):
            stream.write(content["text"])
        elif msg_type in ("display_data", "update_display_data"):
            update = msg_type == "update_display_data"
            publisher.publish(
                content["data"], content.get("metadata"), transient=content.get("transient"), update=update
            )
        elif msg_type == "clear_output":
            publisher.clear_output(wait=content.get("wait", False))
        elif msg_type != "stream" or stream is not None:  # where there is none, nothing is printed
            self._publish(call, message)

    def _publish(self, call: _Call, message: Message) -> None:
        msg_type = message["header"]["msg_type"]
        content = message["content"]
        stream = msg_type == "stream"
        # The kernel's iopub socket hands each message to ipykernel's own publishing thread, in the order of the calls.
        self._kernel.session.send(
            self._kernel.iopub_socket,
            msg_type,
            content,
            parent=call.parent,
            ident=f"stream.{content['name']}".encode() if stream else topic(self._kernel, msg_type),
            buffers=message.get("buffers") or None,
            metadata=message.get("metadata") or None,
        )

    def _captured(self) -> bool:
        streams = all(isinstance(stream, OutStream) for stream in (sys.stdout, sys.stderr))
        publisher = self._kernel.shell.display_pub
        # The kernel's own publisher has a socket; a capturing one, or one with hooks, wants to see the outputs itself.
        plain = getattr(publisher, "pub_socket", None) is not None and not OUTPUT_HOOKS.of(publisher, None)
        return not (streams and plain)


def _moves_outputs(message: Message) -> bool:
    """Whether an ipywidgets Output begins or ends to take what belongs to this cell: frontends go by the order."""
    data = message["content"].get("data")
    state = data.get("state") if isinstance(data, dict) else None
    return isinstance(state, dict) and "msg_id" in state


def _result_of(message: Message) -> CellResult:
    content = message["content"]
    return CellResult(content["data"], content.get("metadata") or {})


def _display(result: CellResult) -> None:
    sys.displayhook(result)
