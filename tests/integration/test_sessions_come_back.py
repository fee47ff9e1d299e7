"""A notebook's session in a real kernel: what a suspend or a kill of its GPU process leaves as it was."""

from __future__ import annotations

import os
import re
import signal
from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess
from left_out import thinned
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

CELLS = (
    "%matplotlib inline\nimport matplotlib, pandas as pd\nfrom matplotlib import pyplot as plt",
    "%config InlineBackend.figure_format = 'svg'\n%precision 3",
    "from IPython.core.magic import register_line_magic\n@register_line_magic\ndef mine(line): return 'mine ' + line",
    "import logging, sys\nlogging.basicConfig(level=logging.INFO, format='<%(message)s>')",
    "from tqdm import tqdm\nbar = tqdm(total=3, file=sys.stdout)\nflush = sys.stdout.flush",
    "ran = []\nget_ipython().events.register('post_run_cell', lambda result: ran.append(1))",
)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("one"), "1x256MiB", "--context-memory", "16MiB") as running:
        yield running


@pytest.fixture
def notebook(daemon: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, daemon) as kernel:
        yield kernel


def is_as_it_was(notebook: AutoKernel) -> None:
    settings = "pd.get_option('display.max_columns'), 'inline' in matplotlib.get_backend()"
    assert notebook.run(settings).result == "(20, True)"
    assert "image/svg+xml" in notebook.run("plt.plot([1, 2]);").last("display_data")["data"]
    assert notebook.run("3.14159265").result == "3.142"
    assert notebook.run("import asyncio\nawait asyncio.sleep(0, 'slept')").result == "'slept'"
    assert notebook.run("%mine x").result == "'mine x'"
    assert notebook.run("logging.info('told')").text("stderr") == "<told>\n"
    assert notebook.run("flush is sys.stdout.flush").result == "True"
    assert "| 1/3 [" in notebook.run("bar.n = 1; _ = bar.refresh()").text("stdout")
    before = int(notebook.run("len(ran)").result)
    assert notebook.run("len(ran)").result == str(before + 1)


def loses_its_process(notebook: AutoKernel, how: str) -> None:
    if how == "suspend":
        notebook.run("%gpu suspend")
        return
    notebook.run("%gpu save")
    pid = notebook.entry(phase="running")["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: (notebook.entry()["phase"], notebook.entry()["pid"]) != ("running", pid))


@pytest.mark.parametrize("how", thinned(["suspend", "kill"], 2, "ways to lose a session's process"))
def test_settings_pictures_magics_and_hooks_are_in_force_again(notebook: AutoKernel, how: str) -> None:
    for cell in CELLS:
        assert notebook.run(cell).reply["status"] == "ok"
    is_as_it_was(notebook)
    loses_its_process(notebook, how)
    said = notebook.run("1").text("stderr")
    assert "kept" in said
    assert "not kept" not in said
    is_as_it_was(notebook)


@pytest.mark.long("a whole session in processes of its own")
def test_what_runs_on_without_a_name_is_named_when_it_is_gone(notebook: AutoKernel) -> None:
    notebook.run("import asyncio\nasync def tick():\n    await asyncio.sleep(600)\nasyncio.create_task(tick());")
    notebook.run("import os\nos.system('sleep 600 > /dev/null 2>&1 &')")
    notebook.run("%gpu suspend")
    said = notebook.run("1").text("stderr")
    assert "(tick) ends with its process; start it again" in said
    assert re.search(r"sleep \(process \d+\) ends with its process; start it again", said), said


@pytest.mark.parametrize("how", thinned(["suspend", "kill"], 2, "ways to lose a session's process"))
@pytest.mark.long("a whole session in processes of its own")
def test_what_was_made_in_the_order_of_a_set_or_of_a_hash_fits_still(notebook: AutoKernel, how: str) -> None:
    """Rows for a vocabulary, and buckets by hash: as in one process, and what cells start has a seed of its own."""
    notebook.run("words = {f'w{i}' for i in range(300)}\nrows, key = list(words), hash('key')")
    loses_its_process(notebook, how)
    said = notebook.run("1").text("stderr")
    assert notebook.run("hash('key') == key").result == "True"
    # Every kernel has a seed of its own, and of some sets no way to their order is found: that is told.
    assert notebook.run("list(words) == rows").result == "True" or "in another order" in said
    assert notebook.run("import os\n'PYTHONHASHSEED' in os.environ").result == "False"
