from __future__ import annotations

import builtins
import gc
import io
import sys
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from ipykernel.iostream import OutStream
from IPython.core.displaypub import CapturingDisplayPublisher

from nls_jupyter.between.cell_result import CellResult
from nls_jupyter.notebook.relay import REMEMBERED_CELLS, OutputRelay, RemoteError, error_class, remote_error

if TYPE_CHECKING:
    from collections.abc import Callable

    Waiting = list[Callable[[], None]]
    OpenRelay = Callable[[], OutputRelay]

Message = dict[str, Any]


class NotebookStream(OutStream):
    """What sys.stdout is in a kernel, without its thread."""

    def __init__(self) -> None:
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1

    def close(self) -> None:
        pass


class Kernel:
    """As much of ipykernel as the relay uses."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message, Message]] = []
        self.buffers: list[Any] = []
        self.payloads: list[Message] = []
        self.tracebacks: list[tuple[Any, ...]] = []
        self.session = SimpleNamespace(send=self._send)
        self.iopub_socket = object()
        self.ident = "kernel"
        self.execution_count = 12
        self.cell: Message = {"header": {"msg_id": "first cell"}}
        self.shell = SimpleNamespace(
            display_pub=SimpleNamespace(pub_socket=object(), _hooks=[]),
            payload_manager=SimpleNamespace(write_payload=self.payloads.append),
            _showtraceback=lambda *shown: self.tracebacks.append(shown),
        )

    def get_parent(self, channel: str) -> Message:
        assert channel == "shell"
        return self.cell

    def _send(self, socket: Any, msg_type: str, content: Message, *, parent: Message, **more: Any) -> None:
        assert socket is self.iopub_socket
        self.sent.append((msg_type, content, parent))
        self.buffers.append(more["buffers"])

    def kinds(self) -> list[str]:
        return [msg_type for msg_type, _, _ in self.sent]


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def open_relay(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> OpenRelay:
    """Called in the test, because pytest replaces the streams once more after the fixtures."""

    def opened() -> OutputRelay:
        monkeypatch.setattr(sys, "stdout", NotebookStream())
        monkeypatch.setattr(sys, "stderr", NotebookStream())
        return OutputRelay(kernel)  # type: ignore[arg-type]

    return opened


@pytest.fixture
def waiting() -> Waiting:
    """What the relay wants to run in the calling thread."""
    return []


def message(msg_type: str, msg_id: str, **content: Any) -> Message:
    return {
        "header": {"msg_type": msg_type},
        "parent_header": {"msg_id": msg_id} if msg_id else {},
        "content": content,
        "metadata": {},
        "buffers": [],
    }


def stream(msg_id: str, text: str) -> Message:
    return message("stream", msg_id, name="stdout", text=text)


def result(msg_id: str, text: str) -> Message:
    return message("execute_result", msg_id, data={"text/plain": text}, metadata={}, execution_count=1)


def reply(status: str = "ok", **content: Any) -> Message:
    return {"content": {"status": status, **content}}


def run_all(waiting: Waiting) -> None:
    while waiting:
        waiting.pop(0)()


def test_outputs_go_to_the_calling_cell_in_order(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(stream(msg_id, "a"))
    relay.forward(message("display_data", msg_id, data={}, metadata={}, transient={"display_id": "x"}))
    relay.forward(stream(msg_id, "b"))
    assert relay.finish(msg_id, reply()) is None
    assert kernel.kinds() == ["stream", "display_data", "stream"]
    assert kernel.sent[1][1]["transient"] == {"display_id": "x"}
    assert all(parent == kernel.cell for _, _, parent in kernel.sent)
    assert not waiting


def test_what_the_cell_printed_itself_comes_before(waiting: Waiting, open_relay: OpenRelay) -> None:
    open_relay().follow(waiting.append)
    assert isinstance(sys.stdout, NotebookStream)
    assert sys.stdout.flushed == 1


def test_late_output_finds_its_own_cell(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    first, first_cell = relay.follow(waiting.append), kernel.cell
    relay.finish(first, reply())
    kernel.cell = {"header": {"msg_id": "second cell"}}
    relay.follow(waiting.append)
    relay.forward(stream(first, "late"))
    assert kernel.sent == [("stream", {"name": "stdout", "text": "late"}, first_cell)]


def test_only_so_many_cells_are_remembered(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    first = relay.follow(waiting.append)
    kernel.cell = {"header": {"msg_id": "second cell"}}
    second = relay.follow(waiting.append)
    relay.finish(first, reply())
    for number in range(REMEMBERED_CELLS - 1):
        kernel.cell = {"header": {"msg_id": f"later cell {number}"}}
        relay.finish(relay.follow(waiting.append), reply())
    relay.forward(stream(first, "forgotten"))
    relay.forward(stream(second, "known"))
    assert [content["text"] for _, content, _ in kernel.sent] == ["known"]


def test_a_cell_that_runs_is_not_forgotten_for_what_came_since(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    for number in range(2 * REMEMBERED_CELLS):
        slider = relay.follow_directly({"header": {"msg_id": f"a slider's {number}"}})
        relay.finish_directly(slider)
    relay.forward(stream(msg_id, "still there"))
    relay.forward(result(msg_id, "5"))
    assert kernel.kinds() == ["stream"]
    assert repr(relay.finish(msg_id, reply())) == "5"
    relay.forward(stream("a slider's 3", "forgotten"))
    relay.forward(stream(slider, "late"))
    assert [content["text"] for kind, content, _ in kernel.sent if kind == "stream"] == ["still there", "late"]


@pytest.mark.parametrize("kind", ["error", "execute_result"])
def test_what_was_held_back_for_the_reply_is_shown_where_none_comes(
    kind: str, kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    error = message("error", msg_id, ename="Odd", evalue="", traceback=[])
    relay.forward(error if kind == "error" else result(msg_id, "5"))
    assert not kernel.sent
    relay.abandon(msg_id)
    relay.forward(stream(msg_id, "late"))
    relay.abandon(msg_id)
    assert kernel.kinds() == [kind, "stream"]


def test_output_that_no_cell_owns_is_not_shown_but_widgets_messages_are(kernel: Kernel, open_relay: OpenRelay) -> None:
    relay = open_relay()
    relay.forward(stream("", "start-up noise"))
    relay.forward(stream("a save", "from __reduce__"))
    comm = message("comm_msg", "unknown", comm_id="c", data={})
    comm["buffers"] = [b"binary"]
    relay.forward(comm)
    assert kernel.sent == [("comm_msg", {"comm_id": "c", "data": {}}, {})]
    assert kernel.buffers == [[b"binary"]]


def test_the_result_is_returned_for_the_kernels_own_display(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(stream(msg_id, "a"))
    relay.forward(result(msg_id, "42"))
    value = relay.finish(msg_id, reply())
    assert isinstance(value, CellResult)
    assert repr(value) == "42"
    assert value._repr_mimebundle_() == ({"text/plain": "42"}, {})
    assert kernel.kinds() == ["stream"]


def test_a_result_that_something_follows_is_displayed_in_its_place(
    kernel: Kernel,
    waiting: Waiting,
    monkeypatch: pytest.MonkeyPatch,
    open_relay: OpenRelay,
) -> None:
    displayed: list[str] = []
    monkeypatch.setattr(sys, "displayhook", lambda value: displayed.append(f"{value!r} after {kernel.kinds()}"))
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(result(msg_id, "figure"))
    relay.forward(message("display_data", msg_id, data={"image/png": ""}, metadata={}))
    kernel.shell.display_pub.publish = lambda *_, **__: kernel.sent.append(("display_data", {}, {}))
    run_all(waiting)
    assert relay.finish(msg_id, reply()) is None
    assert displayed == ["figure after []"]
    assert kernel.kinds() == ["display_data"]


def test_of_several_results_each_is_shown_and_the_last_returned(
    kernel: Kernel,
    waiting: Waiting,
    monkeypatch: pytest.MonkeyPatch,
    open_relay: OpenRelay,
) -> None:
    displayed: list[str] = []
    monkeypatch.setattr(sys, "displayhook", lambda value: displayed.append(repr(value)))
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    for text in "123":
        relay.forward(result(msg_id, text))
    run_all(waiting)
    assert repr(relay.finish(msg_id, reply())) == "3"
    assert displayed == ["1", "2"]


def test_captured_output_is_written_by_the_calling_thread(
    kernel: Kernel,
    waiting: Waiting,
    monkeypatch: pytest.MonkeyPatch,
    open_relay: OpenRelay,
) -> None:
    captured = io.StringIO()
    publisher: Any = CapturingDisplayPublisher()  # type: ignore[no-untyped-call]
    kernel.shell.display_pub = publisher
    relay = open_relay()
    monkeypatch.setattr(sys, "stdout", captured)
    msg_id = relay.follow(waiting.append)
    relay.forward(stream(msg_id, "a"))
    relay.forward(message("display_data", msg_id, data={"text/plain": "d"}, metadata={}, transient={}))
    relay.forward(message("stream", msg_id, name="stderr", text="not captured"))
    assert captured.getvalue() == ""
    run_all(waiting)
    assert captured.getvalue() == "a"
    assert [output["data"] for output in publisher.outputs] == [{"text/plain": "d"}]
    assert kernel.kinds() == ["stream"]
    relay.finish(msg_id, reply())
    relay.forward(stream(msg_id, "late"))
    assert kernel.kinds() == ["stream", "stream"]


def test_where_there_is_no_stream_nothing_is_printed(
    kernel: Kernel, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    monkeypatch.setattr(sys, "stdout", None)
    msg_id = relay.follow(waiting.append)
    relay.forward(stream(msg_id, "a"))
    run_all(waiting)
    assert relay.finish(msg_id, reply()) is None
    assert kernel.sent == []


def test_an_error_is_raised_and_not_also_shown(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    content = {"ename": "Odd", "evalue": "so odd", "traceback": ["line 1", "line 2"]}
    relay.forward(message("error", msg_id, **content))
    with pytest.raises(RemoteError, match="so odd") as raised:
        relay.finish(msg_id, reply("error", **content))
    assert type(raised.value).__name__ == "Odd"
    assert raised.value._render_traceback_() == ["line 1", "line 2"]
    assert kernel.sent == []


def test_an_error_that_did_not_fail_the_cell_is_shown(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(message("error", msg_id, ename="Odd", evalue="", traceback=[]))
    relay.finish(msg_id, reply())
    assert kernel.kinds() == ["error"]


def test_an_error_that_something_follows_keeps_its_place_and_is_not_shown_again(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    content = {"ename": "Odd", "evalue": "so odd", "traceback": ["line"]}
    relay.forward(message("error", msg_id, **content))
    relay.forward(message("display_data", msg_id, data={"image/png": ""}, metadata={}))
    with pytest.raises(RemoteError, match="so odd") as raised:
        relay.finish(msg_id, reply("error", **content))
    assert kernel.kinds() == ["error", "display_data"]
    kernel.shell._showtraceback(raised.type, raised.value, raised.value._render_traceback_())
    assert kernel.tracebacks == []
    assert kernel.shell._last_traceback == ["line"]


def test_a_failure_that_the_gpu_process_showed_in_its_own_way_is_not_shown_again(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(message("stream", msg_id, name="stderr", text="  + Exception Group Traceback"))
    with pytest.raises(RemoteError) as raised:
        relay.finish(msg_id, reply("error", ename="ExceptionGroup", evalue="two", traceback=[]))
    assert raised.value.shown
    ordinary = remote_error({"ename": "Odd", "evalue": ""})
    for error in (raised.value, ordinary):
        kernel.shell._showtraceback(type(error), error, [])
    assert kernel.tracebacks == [(type(ordinary), ordinary, [])]


@pytest.mark.parametrize("data", [{"state": {"msg_id": ""}}, {"state": {"value": 1}}, {"state": [1]}, {}, [1], None])
def test_an_error_goes_where_outputs_went_before_a_widget_moved_them(
    data: Any, kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(message("error", msg_id, ename="Odd", evalue="", traceback=[]))
    relay.forward(message("comm_msg", msg_id, comm_id="c", data=data))
    relay.finish(msg_id, reply())
    moved = data == {"state": {"msg_id": ""}}
    assert kernel.kinds() == (["error", "comm_msg"] if moved else ["comm_msg", "error"])


def test_a_result_before_an_error_is_shown(
    kernel: Kernel, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, open_relay: OpenRelay
) -> None:
    displayed: list[str] = []
    monkeypatch.setattr(sys, "displayhook", lambda value: displayed.append(repr(value)))
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    content = {"ename": "Odd", "evalue": "", "traceback": []}
    relay.forward(result(msg_id, "1"))
    relay.forward(message("error", msg_id, **content))
    run_all(waiting)
    with pytest.raises(RemoteError):
        relay.finish(msg_id, reply("error", **content))
    assert displayed == ["1"]


def test_a_result_with_a_form_that_failed_is_shown_behind_the_error(
    kernel: Kernel, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, open_relay: OpenRelay
) -> None:
    displayed: list[str] = []
    monkeypatch.setattr(sys, "displayhook", lambda value: displayed.append(f"{value!r} after {kernel.kinds()}"))
    relay = open_relay()
    msg_id = relay.follow(waiting.append)
    relay.forward(message("error", msg_id, ename="ValueError", evalue="no html", traceback=[]))
    relay.forward(result(msg_id, "Bad()"))
    with pytest.raises(RemoteError):
        relay.finish(msg_id, reply("error", ename="NoneType", evalue="None", traceback=[]))
    assert displayed == ["Bad() after ['error']"]


def test_outputs_belong_to_the_id_that_the_frontend_knows(waiting: Waiting, open_relay: OpenRelay) -> None:
    assert open_relay().follow(waiting.append) == "first cell"


def test_of_two_calls_that_one_cell_makes_at_once_each_has_its_own_result(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    calls = [relay.follow(waiting.append) for _ in range(2)]
    for msg_id, text in zip(calls, "ab", strict=True):
        relay.forward(stream(msg_id, text))
        relay.forward(result(msg_id, text))
        assert repr(relay.finish(msg_id, reply())) == text
    assert [(kind, parent) for kind, _, parent in kernel.sent] == [("stream", kernel.cell)] * 2
    assert relay.follow(waiting.append) == "first cell"


def test_payloads_are_passed_on_but_the_kernel_does_not_exit(
    kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    page = {"source": "page", "data": {"text/plain": "help"}, "start": 0}
    relay.finish(relay.follow(waiting.append), reply(payload=[{"source": "ask_exit", "keepkernel": False}, page]))
    assert kernel.payloads == [page]


@pytest.mark.parametrize("name", [n for n in dir(builtins) if isinstance(getattr(builtins, n), type) and "Err" in n])
def test_each_native_error_has_an_imitation_with_its_message(name: str) -> None:
    error = remote_error({"ename": name, "evalue": "the message", "traceback": ["tb"]})
    assert type(error).__name__ == name
    assert type(error).__module__ == "builtins"
    assert str(error) == "the message"
    assert isinstance(error, RemoteError)
    assert error._render_traceback_() == ["tb"]


def test_a_native_error_can_be_caught_by_its_native_name() -> None:
    with pytest.raises(ZeroDivisionError):
        raise remote_error({"ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": []})
    # IPython would render these from source that the kernel does not have.
    assert not issubclass(error_class("SyntaxError"), SyntaxError)
    assert error_class("Odd") is error_class("Odd")


def test_an_interrupt_in_the_gpu_process_is_an_interrupt_here() -> None:
    error = remote_error({"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["tb"]})
    assert isinstance(error, KeyboardInterrupt)
    assert not isinstance(error, Exception)
    assert error._render_traceback_() == ["tb"]


def test_a_call_has_the_id_that_the_frontend_knows(kernel: Kernel, waiting: Waiting, open_relay: OpenRelay) -> None:
    relay = open_relay()
    assert relay.follow(waiting.append) == "first cell"
    assert relay.follow_directly({"header": {"msg_id": "a slider's"}}) == "a slider's"
    kernel.cell = {}
    assert relay.follow(waiting.append)


def test_what_is_followed_directly_is_published_as_it_came(kernel: Kernel, open_relay: OpenRelay) -> None:
    relay = open_relay()
    parent = {"header": {"msg_id": "cell"}}
    msg_id = relay.follow_directly(parent)
    relay.forward(result(msg_id, "1"))
    relay.forward(stream(msg_id, "a"))
    relay.forward(result(msg_id, "2"))
    relay.forward(message("error", msg_id, ename="Odd", evalue="", traceback=[]))
    assert kernel.kinds() == ["execute_result", "stream", "execute_result", "error"]
    assert [content["execution_count"] for kind, content, _ in kernel.sent if kind == "execute_result"] == [1, 1]
    assert all(sent_under == parent for _, _, sent_under in kernel.sent)
    shown = relay.finish_directly(msg_id)
    assert shown is not None
    assert shown.anything
    assert shown.result == result(msg_id, "2")
    assert shown.error is not None


class Large(dict[str, Any]):
    """A message that can be asked whether it is still there."""


@pytest.mark.parametrize("ends", ["direct", "finished", "failed", "abandoned"])
def test_a_remembered_cell_holds_neither_its_code_nor_what_it_showed(
    ends: str, kernel: Kernel, waiting: Waiting, open_relay: OpenRelay
) -> None:
    relay = open_relay()
    kernel.cell = parent = Large({"header": {"msg_id": "cell"}, "content": {"code": "long"}})
    msg_id = relay.follow_directly(parent) if ends == "direct" else relay.follow(waiting.append)
    left = [weakref.ref(parent)]
    for text in ("1", "late"):
        error = message("error", msg_id, ename="Odd", evalue=text, traceback=[])
        shown = Large(error if ends == "failed" else result(msg_id, text))
        left.append(weakref.ref(shown))
        relay.forward(shown)
        if ends == "finished":
            relay.finish(msg_id, reply())
        elif ends == "direct":
            relay.finish_directly(msg_id)
        elif ends == "failed":
            with pytest.raises(RemoteError):
                relay.finish(msg_id, reply("error", ename="Odd", evalue="", traceback=[]))
        else:
            relay.abandon(msg_id)
    kernel.cell = {}
    kernel.sent.clear()
    waiting.clear()
    del parent, shown, error
    gc.collect()
    assert [found() for found in left] == [None, None, None]
    relay.forward(stream(msg_id, "later"))
    assert kernel.sent == [("stream", {"name": "stdout", "text": "later"}, {"header": {"msg_id": "cell"}})]


def test_the_debuggers_events_belong_to_no_cell_and_are_shown(kernel: Kernel, open_relay: OpenRelay) -> None:
    open_relay().forward(message("debug_event", "", event="stopped"))
    assert kernel.sent == [("debug_event", {"event": "stopped"}, {})]
