"""A Ctrl-C that comes when a cell has ended costs nobody the reply; in a cell it works as ever."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from over_ipc import kernel_over_ipc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel
WITHIN_S = 60
CTRL_C_WITH_THE_LAST_FLUSH = """
import os, signal, sys

class Late:
    flush, armed = sys.stdout.flush, False

def arm(*_):
    Late.armed = True

def flush():
    Late.flush()
    if Late.armed:
        Late.armed = False
        os.kill(os.getpid(), signal.SIGINT)

get_ipython().events.register("post_run_cell", arm)
sys.stdout.flush = flush
"""
CTRL_C_NOW = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(600)"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Any]:
    with kernel_over_ipc(tmp_path) as client:
        yield lambda code: client.execute_interactive(code, timeout=WITHIN_S, output_hook=lambda _: None)["content"]


def test_a_ctrl_c_between_a_cell_and_its_reply_is_too_late(run: Any) -> None:
    assert run("%load_ext nls_jupyter")["status"] == "ok"
    assert run(CTRL_C_WITH_THE_LAST_FLUSH)["status"] == "ok"
    for number in range(3):
        assert run(f"x = {number}")["status"] == "ok"
    assert run("assert x == 2")["status"] == "ok"


def test_a_ctrl_c_in_a_cell_ends_it_also_after_a_cell_in_it(run: Any) -> None:
    assert run("%load_ext nls_jupyter")["status"] == "ok"
    for code in (CTRL_C_NOW, f"get_ipython().run_cell('1')\n{CTRL_C_NOW}", f"%time 1\n{CTRL_C_NOW}"):
        began = time.monotonic()
        assert run(code)["ename"] == "KeyboardInterrupt"
        assert time.monotonic() - began < WITHIN_S
