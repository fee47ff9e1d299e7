"""A kernel that has `%gpu` and does not call it, and its first use, on simulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from left_out import thinned
from notebooks import PATIENCE_S
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

# Which of them are there at all is in tests/unit/test_extension.py.
LOADED = """
import sys
sorted(name for name in sys.modules if name.startswith(("nls_", "cloudpickle", "xxhash", "numpy", "tornado.http")))
"""
COMMANDS = "nls_jupyter.notebook.commands"
SAVED_WITHIN = "get_ipython().magics_manager.registry['GpuMagics'].gpu_of_notebook.supervisor.keeper.saves.within_s"
# Raises once, in the midst of what the first use imports.
INTERRUPTED_IMPORT = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
"""


@pytest.fixture(scope="module")
def two_gpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("two"), "2x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture
def kernel(two_gpus: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, two_gpus, "python3") as kernel:
        yield kernel


def loaded(kernel: AutoKernel) -> list[str]:
    names: list[str] = eval(kernel.run(LOADED).result)
    return names


def test_what_notebooks_do_without_it_imports_nothing_of_it(kernel: AutoKernel) -> None:
    at_start = loaded(kernel)
    assert COMMANDS not in at_start
    assert kernel.run("%time 1 + 1").result == "2"
    assert kernel.run("1 / 0").reply["ename"] == "ZeroDivisionError"
    assert "sys" in kernel.client.complete("import sy", reply=True, timeout=60)["content"]["matches"]
    assert "%gpu" in kernel.client.complete("%gp", reply=True, timeout=60)["content"]["matches"]
    assert kernel.client.inspect("print", reply=True, timeout=60)["content"]["found"]
    assert "%gpu request [SIZE]" in kernel.run("%gpu?").reply["payload"][0]["data"]["text/plain"]
    assert "GpuMagics.save_within" in kernel.run("%config GpuMagics").text()
    assert kernel.run("%%local\n6 * 7").result == "42"
    (comm_id,) = kernel.ask("comm_info_request", {"target_name": "nls_jupyter.mode"})["comms"]
    asked = kernel.done(kernel.send("comm_msg", {"comm_id": comm_id, "data": {}}))
    assert [m["content"]["data"] for m in asked if m["msg_type"] == "comm_msg"] == [{"auto": False}]
    assert loaded(kernel) == at_start


@pytest.mark.parametrize(
    ("first", "shown"),
    thinned(
        [
            ("%gpu auto", "Auto mode is off.\n"),
            ("%gpu log", "Nothing has happened to this notebook's GPU process yet.\n"),
            ("%%gpu\nprint(6 * 7)", "42\n"),
        ],
        3,
        "first uses in a kernel",
    ),
)
def test_whatever_is_used_first_works_at_once(kernel: AutoKernel, first: str, shown: str) -> None:
    assert kernel.run(first).text() == shown
    assert kernel.run("%%gpu\n6 * 7").result == "42"


def test_who_keeps_saved_state_loads_nothing_of_what_makes_it(kernel: AutoKernel) -> None:
    assert "Nothing has happened" in kernel.run("%gpu log").text()
    loaded = kernel.run("import sys\n[m for m in sys.modules if m.startswith('nls_jupyter.saved_state.')]").result
    assert "nls_jupyter.saved_state.manifest" in str(loaded)
    assert "nls_jupyter.saved_state.saver" not in str(loaded)


def test_the_first_use_may_be_a_question_about_its_options(kernel: AutoKernel) -> None:
    assert kernel.client.complete("%gpu su", reply=True, timeout=60)["content"]["matches"] == ["suspend"]
    assert COMMANDS not in loaded(kernel)


def test_what_is_configured_before_the_first_use_holds_in_it_and_what_is_set_later_too(
    two_gpus: DaemonProcess, tmp_path: Path
) -> None:
    arguments = ["--GpuMagics.save_within=5", "--GpuMagics.request=64MiB"]
    with AutoKernel(tmp_path, two_gpus, "python3", arguments=arguments) as kernel:
        kernel.run("%config GpuMagics.limit = '128MiB'")
        assert COMMANDS not in loaded(kernel)
        kernel.run("%%gpu\n1")
        entry = kernel.entry(phase="running")
        assert (entry["request_bytes"], entry["limit_bytes"]) == (64 << 20, 128 << 20)
        assert kernel.run(SAVED_WITHIN).result == "5.0"
        kernel.run("%config GpuMagics.save_within = 7")
        assert kernel.run(SAVED_WITHIN).result == "7.0"


CONFIGURED = """
c = get_config()
c.GpuMagics.request = 0.25
c.GpuMagics.limit = 1
c.GpuMagics.standby_memory = 0
c.GpuMagics.retry = "yes"
c.GpuMagics.save_within = -1
c.GpuMagics.keptfolder = "/data"
c.GpuMagics.colour = "green"
"""


def test_sizes_can_be_numbers_and_what_cannot_be_is_said_and_costs_nothing_else(
    two_gpus: DaemonProcess, tmp_path: Path
) -> None:
    profile = tmp_path / "ipython" / "profile_default"
    profile.mkdir(parents=True)
    (profile / "ipython_kernel_config.py").write_text(CONFIGURED)
    with AutoKernel(tmp_path, two_gpus, "python3") as kernel:
        told = kernel.run("%%gpu\n1").text("stderr").splitlines()
        entry = kernel.entry(phase="running")
        assert (entry["request_bytes"], entry["limit_bytes"]) == (64 << 20, 256 << 20)
        assert [line.partition(" is left as it was: ")[0] for line in told] == [
            "GPU: c.GpuMagics.retry",
            "GPU: c.GpuMagics.save_within",
            "GPU: c.GpuMagics.keptfolder is no setting: did you mean kept_folder?",
            "GPU: c.GpuMagics.colour is no setting: `%config GpuMagics` shows those that there are.",
        ]
        assert "expected a boolean" in told[0]
        settings = kernel.run(
            "m = get_ipython().magics_manager.registry['GpuMagics']\nm.standby_memory, m.retry"
        ).result
        assert settings == "('0', False)"
        assert "expected a size such as 0.5 or '8GiB'" in kernel.run("m.request = []").reply["evalue"]


NO_MORE_FILES = """
import errno, selectors
DefaultSelector = selectors.DefaultSelector
def fails(): raise OSError(errno.EMFILE, 'Too many open files')
selectors.DefaultSelector = fails
"""


@pytest.mark.long("a kernel's first use of the GPU in rare cases")
def test_a_kernel_that_can_open_no_more_files_says_so_and_can_later(kernel: AutoKernel) -> None:
    kernel.run(NO_MORE_FILES)
    failed = kernel.run("%gpu request 64MiB").reply
    assert failed["ename"] == "GpuUnavailable"
    assert "this process can open no more files: close some, or raise the limit (ulimit -n)." in failed["evalue"]
    kernel.run("selectors.DefaultSelector = DefaultSelector")
    assert kernel.run("%%gpu\n1").result == "1"


def test_auto_mode_can_be_configured_and_switched_before_anything_else(two_gpus: DaemonProcess, tmp_path: Path) -> None:
    where = "import sys; 'nls_jupyter.gpu_process.kernel' in sys.modules"
    with AutoKernel(tmp_path, two_gpus, "python3", arguments=["--GpuMagics.auto=True"]) as kernel:
        assert kernel.run(where).result == "True"
        kernel.run("%config GpuMagics.auto = False")
        assert kernel.run(where).result == "False"
        kernel.run("%config GpuMagics.auto = True")
        assert kernel.run(where).result == "True"


@pytest.mark.parametrize(
    ("first", "module"),
    thinned(
        [
            ("%gpu log", "nls_jupyter.notebook.auto"),
            ("%gpu log", "nls_jupyter.supervisor.keeper"),
            ("%gpu auto on", "nls_jupyter.supervisor.keeper"),
            ("%%gpu\n1", "nls_jupyter.supervisor.keeper"),
            ("%config GpuMagics.auto = True", "nls_jupyter.supervisor.calls"),
        ],
        5,
        "first uses that are interrupted",
    ),
)
def test_a_ctrl_c_in_the_first_use_leaves_the_next_one_whole(kernel: AutoKernel, first: str, module: str) -> None:
    kernel.run(f"MODULE = {module!r}\n{INTERRUPTED_IMPORT}")
    assert kernel.run(first).reply["ename"] == "KeyboardInterrupt"
    told = kernel.run("%gpu auto").text()
    where = kernel.run("import sys; 'nls_jupyter.gpu_process.kernel' in sys.modules").result
    assert (told, where) in (("Auto mode is off.\n", "False"), ("Auto mode is on.\n", "True"))
    assert kernel.run(first).reply["status"] == "ok"
    kernel.run("%gpu auto off")
    kernel.run("%%gpu\nunusual_name = 42")
    # A GPU process that does not answer soon, on a busy machine, has no completions to offer.
    matches = ["unusual_name"]
    wait_until(
        lambda: kernel.client.complete("%%gpu\nunusual_n", reply=True)["content"]["matches"] == matches, PATIENCE_S
    )


MADE_BY_THREADS = """
import threading
places = [None] * 4
def use(number):
    places[number] = get_ipython().magics_manager.registry["GpuMagics"].gpu_of_notebook
threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
len({id(place) for place in places})
"""


def test_threads_that_use_it_first_at_once_use_the_same_gpu(kernel: AutoKernel) -> None:
    assert kernel.run(MADE_BY_THREADS).result == "1"


@pytest.mark.long("a kernel's first use of the GPU in rare cases")
def test_to_load_the_extension_again_leaves_the_notebook_its_gpu(kernel: AutoKernel) -> None:
    assert kernel.run("%%gpu\nheld = 41").reply["status"] == "ok"
    assert kernel.run("%reload_ext nls_jupyter").reply["status"] == "ok"
    assert kernel.run("%%gpu\nprint(held + 1)").text() == "42\n"
    assert kernel.run("%gpu auto on").reply["status"] == "ok"
    assert kernel.run("%%local\n%reload_ext nls_jupyter").reply["status"] == "ok"
    assert kernel.run("%gpu auto off").reply["status"] == "ok"
    assert kernel.run("'held' in globals()").result == "False"


@pytest.mark.long("a kernel's first use of the GPU in rare cases")
def test_a_notebook_whose_working_directory_was_deleted_has_its_gpu_and_comes_back_to_it(kernel: AutoKernel) -> None:
    deleted = "import os, tempfile\nos.chdir(tempfile.mkdtemp())\nos.rmdir(os.getcwd())"
    assert kernel.run(deleted).reply["status"] == "ok"
    assert kernel.run("%%gpu\nheld = 41\nprint(held)").text() == "41\n"
    assert kernel.run("%gpu suspend").reply["status"] == "ok"
    assert "42\n" in kernel.run("%%gpu\nprint(held + 1)").text()
