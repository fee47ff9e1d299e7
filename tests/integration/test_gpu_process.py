from __future__ import annotations

import asyncio
import itertools
import os
import re
import resource
import signal
import stat
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from left_out import thinned
from leftovers import marked_processes
from nls_jupyter.saved_state import empty
from nls_jupyter.supervisor.channel import GpuProcess
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied, LaunchFailed
from nls_jupyter.supervisor.own_code import OWN_CODE
from nls_jupyter.supervisor.pending import RequestFailed
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from nls_jupyter.saved_state import Manifest

pytestmark = pytest.mark.kernel

Message = dict[str, Any]

INTERRUPTED_WITHIN_S = 15.0
GONE_WITHIN_S = 15.0


class Notebook:
    """A GPU process and all that it showed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.messages: list[Message] = []
        self.came = asyncio.Event()
        self.process: GpuProcess

    def forward(self, message: Message) -> None:
        self.messages.append(message)
        self.came.set()

    def kinds(self) -> list[str]:
        return [message["header"]["msg_type"] for message in self.messages]

    def text(self, name: str = "stdout") -> str:
        streams = [m["content"] for m in self.messages if m["header"]["msg_type"] == "stream"]
        return "".join(content["text"] for content in streams if content["name"] == name)

    def last(self, kind: str) -> Message:
        return next(m for m in reversed(self.messages) if m["header"]["msg_type"] == kind)

    async def shows(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.came.clear()
                await self.came.wait()

    async def run(self, code: str, **options: Any) -> Message:
        """The content of the reply; outputs are those of this cell."""
        self.messages.clear()
        content: Message = (await self.process.execute(code, **options))["content"]
        return content


@asynccontextmanager
async def notebook(
    directory: Path,
    environment: Mapping[str, str | None] | None = None,
    arguments: Sequence[str] = (),
    on_save_point: Callable[[int, Manifest], None] | None = None,
) -> AsyncIterator[Notebook]:
    self = Notebook(directory)
    # ipykernel does not capture what C code writes while pytest's variable is there.
    merged = {"PYTEST_CURRENT_TEST": None, **(environment or {})}
    self.process = await GpuProcess.launch(
        environment=merged,
        directory=directory,
        forward=self.forward,
        on_save_point=on_save_point,
        arguments=arguments,
        cwd=directory.parent,
    )
    try:
        await self.process.ready()
        yield self
    finally:
        self.process.kill()
        await asyncio.wait_for(self.process.exited, 10)
        assert not listing(directory)


def listing(directory: Path) -> dict[str, int]:
    """The mode of the directory and of all in it, by relative path; empty when it is gone."""
    found = [path for path in (directory, *directory.rglob("*")) if path.exists()]
    return {str(path.relative_to(directory)): stat.S_IMODE(path.stat().st_mode) for path in found}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "gpu-process"


async def interrupted(nb: Notebook, cell: asyncio.Task[Any]) -> Any:
    """The reply to a cell that gets a Ctrl-C, and another one where that came just before its `time.sleep`.

    CPython looks for signals, and then sleeps: one that comes in between does not end the sleep.
    """
    async with asyncio.timeout(INTERRUPTED_WITHIN_S):
        while not cell.done():
            nb.process.interrupt()
            await asyncio.wait({cell}, timeout=INTERRUPTED_WITHIN_S / 3)
    return await cell


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_jax_and_tensorflow_take_memory_as_they_need_it_unless_the_user_says_otherwise(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)

    async def ask() -> None:
        async with notebook(directory) as nb:
            await nb.run("import os; print(*(os.environ[n] for n in os.environ if n[:4] in ('XLA_', 'TF_F')))")
            assert sorted(nb.text().split()) == ["false", "false"]

    run(ask())


def test_outputs_come_in_order_and_before_the_reply(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            reply = await nb.run(
                "import sys\nfrom IPython.display import display, clear_output\n"
                "print('a'); sys.stderr.write('b\\n'); display('c', display_id='x'); print('d')\n"
                "display('e', display_id='x', update=True); clear_output(); 6 * 7"
            )
            assert reply["status"] == "ok"
            assert nb.kinds() == [
                *("stream", "stream", "display_data", "stream", "update_display_data", "clear_output"),
                "execute_result",
            ]
            assert nb.last("execute_result")["content"]["data"] == {"text/plain": "42"}
            assert nb.last("update_display_data")["content"]["transient"] == {"display_id": "x"}

    run(story())


@pytest.mark.long("messages by the thousand")
def test_many_messages_all_arrive(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("from IPython.display import display\nfor i in range(5000): display(i)")
            shown = [m["content"]["data"]["text/plain"] for m in nb.messages]
            assert shown == [str(i) for i in range(5000)]

    run(story())


def test_output_of_c_code_and_of_subprocesses_is_captured(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("import os\nos.write(1, b'from C\\n')\nos.system('echo from a child')\n!echo from a magic")
            await nb.shows(lambda: all(f"from {who}" in nb.text() for who in ("C", "a child", "a magic")))

    run(story())


def test_a_late_output_of_a_thread_belongs_to_its_cell(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run(
                "import os, threading, time\n"
                "def wait():\n    while not os.path.exists('go'): time.sleep(0.005)\n    print('late')\n"
                "threading.Thread(target=wait).start()",
                msg_id="the cell",
            )
            (fd,), _ = await nb.process.save(cell="1")
            os.close(fd)
            await nb.process.request("inspect_request", {"code": "wait", "cursor_pos": 2}, timeout_s=10)
            await nb.process.request("complete_request", {"code": "wa", "cursor_pos": 2}, timeout_s=10)
            os.close(os.open(directory.parent / "go", os.O_CREAT))
            await nb.shows(lambda: nb.text() == "late\n")
            assert nb.last("stream")["parent_header"]["msg_id"] == "the cell"

    run(story())


def test_an_exception_comes_back_with_its_name_and_traceback(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            reply = await nb.run("class Odd(Exception): pass\nraise Odd('so odd')")
            assert (reply["status"], reply["ename"], reply["evalue"]) == ("error", "Odd", "so odd")
            assert any("Odd" in line and "so odd" in line for line in reply["traceback"])
            assert nb.last("error")["content"]["traceback"] == reply["traceback"]
            assert (await nb.run("1"))["status"] == "ok"

    run(story())


def test_history_lives_in_the_process_only(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("40 + 2")
            await nb.run("(_, Out[1], In[1])")
            assert nb.last("execute_result")["content"]["data"]["text/plain"] == "(42, 42, '40 + 2')"
            await nb.run("%history -n 1")
            assert "40 + 2" in nb.text()
            assert not [name for name in listing(Path(os.environ["IPYTHONDIR"])) if "history.sqlite" in name]

    run(story())


def test_the_users_ipython_configuration_is_read_and_the_working_directory_shadows_nothing(directory: Path) -> None:
    profile = Path(os.environ["IPYTHONDIR"]) / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text("c.InteractiveShellApp.exec_lines = ['configured = 7']\n")
    for name in ("random", "logging", "typing"):
        (directory.parent / f"{name}.py").write_text("raise RuntimeError('shadows the standard library')\n")
    (directory.parent / "mine.py").write_text("x = 5\n")

    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("import mine, random, os\n(configured, mine.x, os.environ['NLS_GPU_PROCESS'])")
            assert nb.last("execute_result")["content"]["data"]["text/plain"] == "(7, 5, '1')"

    run(story())


def test_input_is_asked_for_and_answered(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            asked: list[Message] = []

            async def answer(message: Message) -> None:
                asked.append(message["content"])
                nb.process.answer_stdin(f"answer {len(asked)}")

            await nb.run("import getpass\nprint(input('name? '), getpass.getpass('secret? '))", on_stdin=answer)
            assert asked == [{"prompt": "name? ", "password": False}, {"prompt": "secret? ", "password": True}]
            assert nb.text() == "answer 1 answer 2\n"
            assert (await nb.run("input()"))["ename"] == "StdinNotImplementedError"

    run(story())


def test_a_dead_process_is_known_for_dead_before_its_end_is_told(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            assert nb.process.alive
            os.kill(nb.process.pid, signal.SIGKILL)
            wait_until(lambda: not nb.process.alive)  # without a turn of this loop
            assert not nb.process.exited.done()
            await asyncio.wait_for(nb.process.exited, GONE_WITHIN_S)
            assert not nb.process.alive

    run(story())


def test_cells_and_replies_of_any_size_get_through(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            reply = await nb.run(f"large = {'a' * 3_000_000!r}", user_expressions={"large": "large * 2"})
            assert len(reply["user_expressions"]["large"]["data"]["text/plain"]) > 1000
            assert reply["status"] == "ok"
            await nb.run("print(len(large))")
            assert nb.text() == "3000000\n"

    run(story())


def test_what_a_cell_puts_out_in_place_of_its_streams_comes_before_the_reply(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("import io, sys\nsys.stdout, sys.stderr = io.StringIO(), io.StringIO()")
            for _ in range(20):
                await nb.run("for number in range(50): display(number)")
                assert nb.kinds() == ["display_data"] * 50

    run(story())


# It lets no other loop run until a request is there, as those of GUI toolkits do.
GUI_LOOP = """
import time
from ipykernel import eventloops
stream_of = getattr(eventloops, "get_shell_stream", lambda kernel: kernel.shell_stream)
@eventloops.register_integration("patient")
def turn(kernel):
    print("turns", flush=True)
    while not stream_of(kernel).flush(limit=1):
        time.sleep(0.005)
get_ipython().enable_gui("patient")"""


def test_cells_run_beside_a_gui_loop(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb, asyncio.timeout(60):
            await nb.run(GUI_LOOP)
            for number in range(5):
                await nb.shows(lambda: "turns" in nb.text())
                await nb.run(f"print({number})")
                assert nb.text().startswith(f"{number}\n")
            await nb.shows(lambda: "turns" in nb.text())
            await nb.run("get_ipython().enable_gui(None)")
            await nb.run("print('after it')")
            assert nb.text() == "after it\n"

    run(story())


@pytest.mark.parametrize(
    ("code", "ename"),
    thinned(
        [
            ("print('up'); import time; time.sleep(600)", "KeyboardInterrupt"),
            ("print('up')\nwhile True: pass", "KeyboardInterrupt"),
            ("print('up')\nimport asyncio; await asyncio.sleep(600)", "CancelledError"),
            ("print('up'); import subprocess; subprocess.run(['sleep', '600'])", "KeyboardInterrupt"),
            ("print('up'); input()", "KeyboardInterrupt"),
        ],
        3,
        "cells that are interrupted",
    ),
)
def test_a_cell_is_interrupted_within_bounded_time(directory: Path, code: str, ename: str) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            cell = asyncio.create_task(nb.run(code, on_stdin=lambda _: None))
            await nb.shows(lambda: "up" in nb.text())
            assert (await interrupted(nb, cell))["ename"] == ename
            await nb.run("print('and goes on')")
            assert nb.text() == "and goes on\n"

    run(story())


CTRL_C_FROM = """
import os, signal, sys
kernel = get_ipython().kernel
owner, name = {place}
real = getattr(owner, name)

def ctrl_c(*arguments, **options):
    if sys._getframe(1).f_code.co_name == "execute_request":
        setattr(owner, name, real)
        os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **options)

setattr(owner, name, ctrl_c)
"""


@pytest.mark.parametrize(
    ("place", "status"),
    thinned(
        [
            ("kernel, '_publish_execute_input'", "error"),
            ("sys.stdout, 'flush'", "ok"),
            ("kernel.session, 'send'", "ok"),
        ],
        3,
        "cells that are interrupted",
    ),
)
def test_a_ctrl_c_just_before_or_after_a_cell_never_takes_its_reply(directory: Path, place: str, status: str) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("done = 0")
            before = await asyncio.wait_for(nb.run(CTRL_C_FROM.format(place=place)), INTERRUPTED_WITHIN_S)
            after = await asyncio.wait_for(nb.run("done += 1"), INTERRUPTED_WITHIN_S)
            replies = [before["status"], after["status"]]
            assert replies == (["ok", "error"] if status == "error" else ["ok", "ok"]), (before, after)
            await nb.run("print(done)")
            assert nb.text() == ("0\n" if status == "error" else "1\n")

    run(story())


def test_an_interrupt_without_a_cell_is_harmless(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            nb.process.interrupt()
            assert (await nb.run("1"))["status"] == "ok"

    run(story())


def test_killing_it_in_mid_cell_fails_what_is_pending(directory: Path, mark: str) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            cell = asyncio.create_task(
                nb.run(
                    "import subprocess, time\nsubprocess.Popen(['setsid', 'sleep', '600'])\n"
                    "print('up'); time.sleep(600)"
                )
            )
            await nb.shows(lambda: "up" in nb.text())
            other = asyncio.create_task(nb.process.request("complete_request", {}, timeout_s=None))
            os.kill(nb.process.pid, signal.SIGKILL)
            for pending in (cell, other):
                with pytest.raises(GpuProcessDied, match="was killed by SIGKILL"):
                    await asyncio.wait_for(pending, GONE_WITHIN_S)
            assert await nb.process.exited == ExitStatus(returncode=None, signal=9)
            assert not marked_processes(mark)
            with pytest.raises(GpuProcessDied):
                await nb.process.execute("1")
            nb.process.interrupt()
            nb.process.kill()
            nb.process.answer_stdin("nobody listens")

    run(story())


def test_whoever_kills_it_says_why_unless_it_has_ended_before(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            cell = asyncio.create_task(nb.run("print('here', flush=True); import time; time.sleep(600)"))
            await nb.shows(lambda: "here" in nb.text())
            nb.process.kill("was ended for somebody's sake")
            with pytest.raises(GpuProcessDied, match="the GPU process was ended for somebody's sake"):
                await cell
            nb.process.kill("was ended once more")
            assert (await nb.process.exited).describe() == "was ended for somebody's sake"

    run(story())


def test_a_process_that_leaves_is_reported_with_its_exit_code(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            with pytest.raises(GpuProcessDied, match="exited with code 3"):
                await nb.run("import os; os._exit(3)")

    run(story())


def test_a_process_that_ends_while_it_starts_is_a_failed_launch_with_its_output(directory: Path) -> None:
    async def story() -> None:
        with pytest.raises(LaunchFailed) as failed:
            async with notebook(directory, arguments=["--IPKernelApp.kernel_class=no.such"]):
                pass
        (line,) = str(failed.value).splitlines()
        assert re.fullmatch(r"the GPU process exited with code 1 while it started: .*'kernel_class'.*", line)
        assert "could not be imported" in failed.value.output

    run(story())


def test_a_process_that_does_not_answer_is_killed_and_a_failed_launch(directory: Path) -> None:
    async def story() -> None:
        process = await GpuProcess.launch(
            environment={}, directory=directory, forward=lambda _: None, connection_timeout_s=0.05
        )
        with pytest.raises(LaunchFailed, match=r"did not answer within 0\.05 s"):
            await process.ready()
        await asyncio.wait_for(process.exited, GONE_WITHIN_S)

    run(story())


def test_a_launch_into_no_directory_fails_and_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(LaunchFailed, match="cannot be started"):
            await GpuProcess.launch(
                environment={}, directory=tmp_path / "d", forward=lambda _: None, cwd=tmp_path / "missing"
            )
        assert not (tmp_path / "d").exists()

    run(story())


def test_a_launch_without_files_enough_fails_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def launched(count: int) -> bool:
        """Whether it could be, where so many more files can be opened."""
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
        try:
            process = await GpuProcess.launch(environment={}, directory=tmp_path / "d", forward=lambda _: None)
        except (LaunchFailed, OSError):
            return False
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        process.kill()
        await process.exited
        return True

    async def story() -> None:
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - those of one moment
        for count in itertools.count():
            enough = await launched(count)
            assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
            assert not (tmp_path / "d").exists()
            if enough:
                return

    OWN_CODE.keep()
    assert OWN_CODE._copying is not None
    OWN_CODE._copying.join()  # it opens files, too
    run(story())


def test_its_directory_is_private_and_a_too_long_path_is_replaced(directory: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with notebook(directory):
            modes = listing(directory)
            assert modes["."] == 0o700
            assert modes["connection.json"] == 0o600
            assert "s-1" in modes
        async with notebook(tmp_path / ("long" * 30)) as nb:
            assert (await nb.run("1"))["status"] == "ok"

    run(story())


def test_saved_names_come_back_in_another_process(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("a = [1, 2]; b = a; unsaved = (i for i in a)\ndef double(x): return 2 * x")
            given_up, _ = await nb.process.save(cell="0")
            os.close(given_up[0])
            (fd,), manifest = await nb.process.save(cell="1")
        assert manifest.cell == "1"
        assert {name.name for name in manifest.saved} >= {"a", "b", "double"}
        assert [missing.name for missing in manifest.missing] == ["unsaved"]
        async with notebook(directory) as nb:
            report = await nb.process.restore([fd])
            os.close(fd)
            assert set(report["restored"]) >= {"a", "b", "double"}
            await nb.run("(a is b, double(a), 'unsaved' in globals())")
            assert nb.last("execute_result")["content"]["data"]["text/plain"] == "(True, [1, 2, 1, 2], False)"

    run(story())


def test_memory_of_saves_that_are_dropped_is_free_while_the_process_lives_and_the_next_save_is_whole(
    directory: Path,
) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run("import numpy as np\na = np.random.default_rng(1).bytes(2**23)\nb = [1]")
            dropped, _ = await nb.process.save(cell="1")
            before = os.fstat(dropped[0])
            assert before.st_blocks * 512 > 2**23
            nb.process.drop_saves(dropped)
            empty(dropped)
            assert os.fstat(dropped[0]).st_blocks == 0
            saved, manifest = await nb.process.save(cell="2")
            os.close(dropped[0])
            assert {name.name for name in manifest.saved} >= {"a", "b"}
            assert os.fstat(saved[0]).st_ino != before.st_ino
            # One that the process did not know of to be dropped, as it had begun before.
            nb.process._arrivals.refuse(saved)
            with pytest.raises(OSError, match="memory became short"):
                await nb.process.save(cell="3")
        async with notebook(directory) as nb:
            await nb.process.restore(saved)
            os.close(saved[0])
            await nb.run("import numpy as np\n(a == np.random.default_rng(1).bytes(2**23), b)")
            assert nb.last("execute_result")["content"]["data"]["text/plain"] == "(True, [1])"

    run(story())


def test_a_state_that_is_none_is_reported_and_the_process_lives(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            fd = os.memfd_create("not a saved state")
            os.write(fd, b"nonsense")
            with pytest.raises(RequestFailed):
                await nb.process.restore([fd])
            os.close(fd)
            assert (await nb.run("1"))["status"] == "ok"

    run(story())


def test_the_allowance_follows_in_mid_cell(directory: Path, tmp_path: Path) -> None:
    driver = SimulatedDriver(tmp_path / "gpus", SimulationSpec(1, 1 << 30), 1 << 20)
    environment = driver.environment([gpu.uuid for gpu in driver.discover()])

    async def story() -> None:
        async with notebook(directory, dict(environment)) as nb:
            cell = asyncio.create_task(
                nb.run(
                    "import os, time\nfrom nls_scheduler.drivers.simulated import SimulatedGpu\n"
                    "gpu = SimulatedGpu.from_environment(os.environ); gpu.attach(); print('up', flush=True)\n"
                    "while gpu.allowance_bytes() is None: time.sleep(0.005)\nprint(gpu.allowance_bytes())"
                )
            )
            await nb.shows(lambda: "up" in nb.text())
            await nb.process.follow_allowance(1 << 25)
            await asyncio.wait_for(cell, 5)
            assert nb.text() == f"up\n{1 << 25}\n"
            await nb.process.follow_allowance(None)
            await nb.run("print(gpu.allowance_bytes())")
            assert nb.text() == "None\n"

    run(story())
    driver.close()
