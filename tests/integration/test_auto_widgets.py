"""Comms whose Python half lives in the GPU process, driven message by message as a widget manager does."""

from __future__ import annotations

import os
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from auto_kernel import GPU_KERNEL, AutoKernel
from daemon_process import DaemonProcess
from left_out import thinned
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Message = dict[str, Any]

NOTHING_HAPPENED = (
    "A widget was used whose GPU process is gone, so nothing happened; it works again once a cell brought it back."
)

pytestmark = pytest.mark.kernel

OPEN = """
import comm
slider = comm.create_comm(target_name="slider", data={"value": 0})
def moved(message):
    data, buffers = message["content"]["data"], [bytes(b) for b in message["buffers"]]
    print("moved to", data["value"])
    slider.send({"echo": data["value"]}, buffers=[b[::-1] for b in buffers])
slider.on_msg(moved)
slider.comm_id"""


@pytest.fixture(scope="module")
def daemon_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("two"), "2x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture
def notebook(daemon_of_module: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, daemon_of_module) as kernel:
        yield kernel


def opened(notebook: AutoKernel) -> str:
    """A slider in the GPU process: its comm's id."""
    ran = notebook.run(OPEN)
    assert ran.last("comm_open")["data"] == {"value": 0}
    return ran.result.strip("'")


def move(notebook: AutoKernel, comm_id: str, value: int, **more: Any) -> str:
    return notebook.send("comm_msg", {"comm_id": comm_id, "data": {"value": value}}, **more)


def kinds(messages: list[Message]) -> list[str]:
    return [message["msg_type"] for message in messages]


def comms(notebook: AutoKernel, target: str) -> set[str]:
    return set(notebook.ask("comm_info_request", {"target_name": target})["comms"])


@pytest.mark.long("a rare case of widgets")
def test_what_a_frontend_sends_reaches_the_callback_and_its_outputs_come_back_as_its_own(notebook: AutoKernel) -> None:
    comm_id = opened(notebook)
    msg_id = move(notebook, comm_id, 5, buffers=[b"abc"])
    shown = notebook.done(msg_id)  # all of it comes before idle
    by_kind = {message["msg_type"]: message for message in shown}
    assert sorted(kinds(shown)) == ["comm_msg", "stream"]
    assert by_kind["stream"]["content"]["text"] == "moved to 5\n"
    assert by_kind["comm_msg"]["content"]["data"] == {"echo": 5}
    assert [bytes(buffer) for buffer in by_kind["comm_msg"]["buffers"]] == [b"cba"]


@pytest.mark.long("widgets in rare cases")
def test_a_child_that_a_callback_forks_ends_with_the_callback(notebook: AutoKernel) -> None:
    comm_id = opened(notebook)
    waits = "if child: print('ended with', os.waitpid(child, 0)[1])"
    notebook.run(f"import os\ndef fork(message):\n    child = os.fork()\n    {waits}\nslider.on_msg(fork)")
    shown = notebook.done(move(notebook, comm_id, 1))
    assert [m["content"]["text"] for m in shown if m["msg_type"] == "stream"] == ["ended with 0\n"]
    assert notebook.run("6 * 7").result == "42"


@pytest.mark.long("widgets in rare cases")
def test_both_sides_comms_are_listed_and_each_stays_where_it_is(notebook: AutoKernel) -> None:
    there = opened(notebook)
    here = notebook.run(f"%%local{OPEN}").result.strip("'")
    assert comms(notebook, "slider") == {here, there}
    pids = "import os\nslider.on_msg(lambda message: print(os.getpid()))"
    notebook.run(pids)
    notebook.run(f"%%local\n{pids}")
    in_kernel, in_gpu_process = (
        int(notebook.done(move(notebook, comm_id, 1))[0]["content"]["text"]) for comm_id in (here, there)
    )
    assert in_kernel == notebook.pid
    assert in_gpu_process == notebook.entry(phase="running")["pid"]
    assert "comm_close" in kinds(notebook.run("slider.close()").shown)
    assert comms(notebook, "slider") == {here}


@pytest.mark.long("widgets in rare cases")
def test_a_frontend_opens_and_closes_comms_in_the_gpu_process(notebook: AutoKernel) -> None:
    notebook.run(
        "closed = []\n"
        "def open_it(comm, message):\n"
        "    comm.on_close(lambda m: closed.append(1))\n    comm.send({'opened': message['content']['data']})\n"
        "get_ipython().kernel.comm_manager.register_target('ours', open_it)"
    )
    comm_id = uuid.uuid4().hex
    answer = notebook.done(notebook.send("comm_open", {"comm_id": comm_id, "target_name": "ours", "data": 7}))
    assert [m["content"]["data"] for m in answer] == [{"opened": 7}]
    assert comms(notebook, "ours") == {comm_id}
    notebook.done(notebook.send("comm_close", {"comm_id": comm_id, "data": {}}))
    assert notebook.run("closed").result == "[1]"
    assert comms(notebook, "ours") == set()
    unknown = notebook.send("comm_open", {"comm_id": uuid.uuid4().hex, "target_name": "nobodys", "data": {}})
    assert kinds(notebook.done(unknown))[-1] == "comm_close"


@pytest.mark.long("a rare case of widgets")
def test_a_slider_works_while_a_cell_runs(notebook: AutoKernel) -> None:
    if "kernel subshells" not in notebook.ask("kernel_info_request", {}).get("supported_features", ()):
        pytest.skip("this ipykernel has no subshells")
    comm_id = opened(notebook)
    notebook.run(
        "import time\nslider.on_msg(lambda m: globals().update(value=m['content']['data']['value']))\nvalue = 0"
    )
    running = notebook.client.execute("print('up', flush=True)\nwhile not value: time.sleep(0.01)\nvalue")
    shown = notebook.until(running, lambda ran: "up" in ran.text())
    subshell_id = notebook.ask("create_subshell_request", {}, "control")["subshell_id"]
    move(notebook, comm_id, 9, subshell_id=subshell_id)
    assert notebook.finish(running, shown).result == "9"


@pytest.mark.long("a rare case of widgets")
def test_an_output_widget_finds_the_outputs_of_its_cell(notebook: AutoKernel) -> None:
    msg_id = notebook.client.execute("get_ipython().kernel.get_parent()['header']['msg_id']")
    assert notebook.finish(msg_id).result == repr(msg_id)


@pytest.mark.long("widgets in rare cases")
def test_a_callback_counts_as_a_cell_for_the_scheduler(notebook: AutoKernel, tmp_path: Path) -> None:
    comm_id = opened(notebook)
    notebook.entry(executing=False)
    flag = tmp_path / "flag"
    notebook.run(
        "from pathlib import Path\nimport time\n"
        f"def wait(message):\n    while not Path({str(flag)!r}).exists(): time.sleep(0.01)\n"
        "slider.on_msg(wait)"
    )
    notebook.entry(executing=False)
    msg_id = move(notebook, comm_id, 1)
    notebook.entry(executing=True)
    flag.touch()
    notebook.done(msg_id)
    notebook.entry(executing=False)


@pytest.mark.long("widgets in rare cases")
def test_a_callback_can_be_interrupted(notebook: AutoKernel) -> None:
    comm_id = opened(notebook)
    notebook.run("import time\nslider.on_msg(lambda message: (print('up', flush=True), time.sleep(60)))")
    msg_id = move(notebook, comm_id, 1)
    notebook.event(lambda m: m["msg_type"] == "stream" and "up" in m["content"]["text"])
    notebook.interrupt()
    notebook.done(msg_id)
    assert notebook.run("'alive'").result == "'alive'"


@pytest.mark.long("widgets in rare cases")
@pytest.mark.parametrize("how", ["suspended", "killed"])
def test_a_widget_of_a_gpu_process_that_has_gone_is_told_once_and_brings_nothing_back(
    notebook: AutoKernel, how: str
) -> None:
    comm_id = opened(notebook)
    notebook.run("%gpu vars")  # waits for the save
    if how == "suspended":
        notebook.run("%gpu suspend")
    else:
        pid = notebook.entry(phase="running")["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: notebook.entry()["pid"] != pid)
    first, second = (notebook.done(move(notebook, comm_id, value)) for value in (1, 2))
    assert [message["content"] for message in first] == [{"name": "stderr", "text": f"GPU: {NOTHING_HAPPENED}\n"}]
    assert second == []
    assert comms(notebook, "slider") == set()
    if how == "suspended":
        assert notebook.entry()["phase"] == "suspended"
    assert notebook.run("%gpu log").text().count(NOTHING_HAPPENED) == 1


@pytest.mark.long("widgets of many GPU processes")
def test_of_gpu_processes_that_have_gone_only_the_last_ones_widgets_are_remembered(notebook: AutoKernel) -> None:
    names = "[type(c).__name__ for c in get_ipython().kernel.comm_manager.comms.values()]"
    for _ in range(3):
        opened(notebook)
        opened(notebook)
        notebook.run("%gpu suspend")
    # The two that it opened, and the one that had come back to it.
    wait_until(lambda: notebook.run(f"%%local\n{names}.count('ProxyComm')").result == "3")


def test_ipywidgets_work_in_both_directions(notebook: AutoKernel) -> None:
    pytest.importorskip("ipywidgets")
    ran = notebook.run(
        "import ipywidgets\ns = ipywidgets.IntSlider(value=3)\n"
        "s.observe(lambda change: print('now', change['new']), 'value')\ns.comm.comm_id"
    )
    comm_id = ran.result.strip("'")
    assert comm_id in comms(notebook, "jupyter.widget")
    shown = notebook.done(
        notebook.send("comm_msg", {"comm_id": comm_id, "data": {"method": "update", "state": {"value": 8}}})
    )
    assert "".join(m["content"]["text"] for m in shown if m["msg_type"] == "stream") == "now 8\n"
    assert notebook.run("s.value").result == "8"
    assert "comm_msg" in kinds(notebook.run("s.value = 2").shown)
    control = {"comm_id": "control", "target_name": "jupyter.widget.control", "data": {}}
    notebook.done(notebook.send("comm_open", control, metadata={"version": "1.0.0"}))
    asked = notebook.send("comm_msg", {"comm_id": "control", "data": {"method": "request_states"}})
    (states,) = (m["content"]["data"] for m in notebook.done(asked) if m["msg_type"] == "comm_msg")
    assert states["states"][comm_id]["state"]["value"] == 2


@pytest.mark.parametrize(("kernel", "here", "there"), [("python3", "", "%%gpu\n"), (GPU_KERNEL, "%%local\n", "")])
def test_a_page_that_asks_for_all_widgets_at_once_is_sent_to_each_where_both_sides_have_some(
    daemon_of_module: DaemonProcess, tmp_path: Path, kernel: str, here: str, there: str
) -> None:
    pytest.importorskip("ipywidgets")
    with AutoKernel(tmp_path, daemon_of_module, kernel) as notebook:
        notebook.run(f"{here}import ipywidgets")
        control = {"comm_id": "control", "target_name": "jupyter.widget.control", "data": {}}
        assert not notebook.done(notebook.send("comm_open", control, metadata={"version": "1.0.0"}))
        code = "import ipywidgets\nipywidgets.IntSlider(value=3).comm.comm_id"
        sliders = {notebook.run(f"{side}{code}").result.strip("'") for side in (here, there)}
        control["comm_id"] = "another control"
        answer = notebook.done(notebook.send("comm_open", control, metadata={"version": "1.0.0"}))
        assert [(m["msg_type"], m["content"]["comm_id"]) for m in answer] == [("comm_close", "another control")]
        assert sliders <= comms(notebook, "jupyter.widget")
        for comm_id in sliders:
            asked = notebook.send("comm_msg", {"comm_id": comm_id, "data": {"method": "request_state"}})
            (state,) = (m["content"]["data"] for m in notebook.done(asked) if m["msg_type"] == "comm_msg")
            assert state["state"]["value"] == 3


@pytest.mark.parametrize("how", thinned(["suspended", "killed"], 2, "ways to lose a widget's process"))
def test_widgets_that_come_back_go_on_with_the_views_that_are_open(notebook: AutoKernel, how: str) -> None:
    pytest.importorskip("ipywidgets")
    ran = notebook.run(
        "import ipywidgets\nseen = []\ns = ipywidgets.IntSlider(value=3)\n"
        "s.observe(lambda change: print('now', change['new']), 'value')\ns.comm.comm_id"
    )
    comm_id = ran.result.strip("'")
    notebook.run("%gpu vars")  # waits for the save
    pid = notebook.entry(phase="running")["pid"]
    if how == "suspended":
        notebook.run("%gpu suspend")
    else:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: notebook.entry()["pid"] != pid)
    assert notebook.run("s.value").result == "3"
    assert notebook.entry(phase="running")["pid"] != pid
    assert comm_id in comms(notebook, "jupyter.widget")
    update = {"comm_id": comm_id, "data": {"method": "update", "state": {"value": 8}}}
    shown = notebook.done(notebook.send("comm_msg", update))
    assert "".join(m["content"]["text"] for m in shown if m["msg_type"] == "stream") == "now 8\n"
    assert {m["content"]["comm_id"] for m in shown if m["msg_type"].startswith("comm_")} == {comm_id}
    assert notebook.run("s.value").result == "8"
    assert "not kept" not in notebook.run("%gpu log").text()
    closed_or_opened = {"comm_open", "comm_close"} & set(kinds(notebook.waiting))
    assert not closed_or_opened


def test_a_frontend_learns_whether_auto_mode_is_on_and_hears_of_each_change(
    daemon_of_module: DaemonProcess, tmp_path: Path
) -> None:
    with AutoKernel(tmp_path, daemon_of_module, "python3") as kernel:
        (comm_id,) = kernel.ask("comm_info_request", {"target_name": "nls_jupyter.mode"})["comms"]
        ask = {"comm_id": comm_id, "data": {}}

        def told() -> list[bool]:
            messages = kernel.done(kernel.send("comm_msg", ask))
            return [m["content"]["data"]["auto"] for m in messages if m["msg_type"] == "comm_msg"]

        assert told() == [False]
        assert kernel.run("%gpu auto on").last("comm_msg") == {"comm_id": comm_id, "data": {"auto": True}}
        kernel.done(kernel.send("comm_close", {"comm_id": comm_id, "data": {}}))
        assert told() == [True]  # one page was closed, not all
        assert kernel.run("%gpu auto off").last("comm_msg")["data"] == {"auto": False}
