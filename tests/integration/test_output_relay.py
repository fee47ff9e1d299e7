"""The relay in a real kernel, with the shortest magic that can use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from over_ipc import kernel_over_ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jupyter_client.blocking.client import BlockingKernelClient

pytestmark = pytest.mark.kernel

MAGIC = """
import asyncio, atexit, queue, threading
from pathlib import Path
from nls_jupyter.supervisor.channel import GpuProcess
from nls_jupyter.notebook.relay import OutputRelay

loop = asyncio.new_event_loop()
supervisor = threading.Thread(target=loop.run_forever)
supervisor.start()
relay = OutputRelay(get_ipython().kernel)
def call(work):
    return asyncio.run_coroutine_threadsafe(work, loop)
process = call(GpuProcess.launch(environment={{}}, directory=Path({directory!r}), forward=relay.forward)).result()
call(process.ready()).result()

def gpu(line, cell):
    todo = queue.SimpleQueue()
    msg_id = relay.follow(todo.put)
    ask = lambda m: todo.put(
        lambda: loop.call_soon_threadsafe(process.answer_stdin, get_ipython().kernel.raw_input(m["content"]["prompt"]))
    )
    future = call(process.execute(cell, msg_id=msg_id, on_stdin=ask))
    future.add_done_callback(lambda _: todo.put(None))
    while True:
        try:
            if (work := todo.get()) is None:
                break
            work()
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(process.interrupt)
    return relay.finish(msg_id, future.result())
get_ipython().register_magic_function(gpu, "cell")

async def leave():
    process.kill()
    await process.exited
def end():
    call(leave()).result()
    loop.call_soon_threadsafe(loop.stop)
    supervisor.join()
"""


class UsersKernel:
    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client

    def run(self, code: str, **options: Any) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
        """The reply's content, and what the cell showed: kind and the gist."""
        shown: list[tuple[str, Any]] = []

        def show(message: dict[str, Any]) -> None:
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "stream" and shown and shown[-1][0] == content["name"]:
                shown[-1] = (content["name"], shown[-1][1] + content["text"])
            elif kind == "stream":
                shown.append((content["name"], content["text"]))
            elif kind not in ("status", "execute_input"):
                shown.append((kind, content.get("data", {}).get("text/plain", content.get("ename"))))

        reply = self.client.execute_interactive(code, output_hook=show, timeout=30, **options)
        return reply["content"], shown


@pytest.fixture
def users_kernel(tmp_path: Path) -> Iterator[UsersKernel]:
    with kernel_over_ipc(tmp_path, extra_arguments=["--HistoryManager.enabled=False"]) as client:
        kernel = UsersKernel(client)
        reply, _ = kernel.run(MAGIC.format(directory=str(tmp_path / "d")))
        assert reply["status"] == "ok", reply
        yield kernel
        kernel.run("end()")


def test_a_cells_outputs_look_native(users_kernel: UsersKernel) -> None:
    run = users_kernel.run
    magic = "get_ipython().run_cell_magic('gpu', '', {!r})"
    assert run("%%gpu\nprint('a'); display('b'); print('c'); 6 * 7")[1] == [
        ("stdout", "a\n"),
        ("display_data", "'b'"),
        ("stdout", "c\n"),
        ("execute_result", "42"),
    ]
    assert run("_.__class__.__name__, Out[max(Out)]")[1] == [("execute_result", "('CellResult', 42)")]
    assert run("print('before')\n" + magic.format("print('inside')") + "\nprint('after')")[1] == [
        ("stdout", "before\ninside\nafter\n")
    ]
    figure = "get_ipython().events.register('post_execute', lambda: display('figure')); 'result'"
    assert run(f"%%gpu\n{figure}")[1] == [("execute_result", "'result'"), ("display_data", "'figure'")]


def test_errors_and_interrupts_look_native(users_kernel: UsersKernel) -> None:
    reply, shown = users_kernel.run("%%gpu\nprint('x')\n1/0")
    assert (reply["ename"], reply["evalue"]) == ("ZeroDivisionError", "division by zero")
    assert "nls_jupyter" not in "".join(reply["traceback"])
    assert shown == [("stdout", "x\n"), ("error", "ZeroDivisionError")]
    reply, shown = users_kernel.run("%%gpu\nraise KeyboardInterrupt")
    assert reply["ename"] == "KeyboardInterrupt"
    assert shown == [("error", "KeyboardInterrupt")]
    reply, shown = users_kernel.run("%%gpu\n1 +")
    assert reply["ename"] == "SyntaxError"
    assert shown == [("error", "SyntaxError")]


def test_captured_outputs_are_captured(users_kernel: UsersKernel) -> None:
    magic = "get_ipython().run_cell_magic('gpu', '', \"print('a'); display('b'); 'c'\")"
    assert users_kernel.run(f"%%capture captured\n{magic}")[1] == []
    assert users_kernel.run("print(captured.stdout, len(captured.outputs))")[1] == [("stdout", "a\n 2\n")]


def test_input_is_asked_in_the_notebook(users_kernel: UsersKernel) -> None:
    client = users_kernel.client
    _, shown = users_kernel.run("%%gpu\nprint(input('name?'))", stdin_hook=lambda _: client.input("me"))
    assert shown == [("stdout", "me\n")]
