"""A notebook gets everything but the object that ends its GPU process, or fails, while it is brought back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from auto_kernel import AutoKernel
from daemon_process import DaemonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kernel

DEADLY = """
import os
from pathlib import Path
class Deadly:
    def __reduce__(self): return make, ()
def make():
    if Path({flag!r}).exists(): os._exit(3)
    return Deadly()
deadly, kept = Deadly(), [1, 2]
"""
MUTE = """
import weakref
class Thing: pass
def make(): return [weakref.proxy(Thing())]
class Mute:
    def __reduce__(self): return make, ()
class Bad:
    def __reduce__(self): return int, ("no",)
holder = {"mute": Mute(), "bad": Bad()}; kept = [1, 2]
"""


@pytest.fixture(scope="module")
def daemon_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("one"), "1x256MiB", "--context-memory", "16MiB") as daemon:
        yield daemon


@pytest.fixture
def notebook(daemon_of_module: DaemonProcess, tmp_path: Path) -> Iterator[AutoKernel]:
    with AutoKernel(tmp_path, daemon_of_module) as kernel:
        yield kernel


@pytest.mark.long("objects that die while they are brought back")
def test_a_proxy_that_dies_while_it_is_brought_back_costs_only_its_own_name(notebook: AutoKernel) -> None:
    notebook.run(MUTE)
    notebook.run("%gpu suspend")
    ran = notebook.run("kept")
    assert ran.result == "[1, 2]"
    assert "holder (ValueError: invalid literal" in ran.text("stderr")


@pytest.mark.long("objects that end a process which saves them")
def test_what_ends_the_process_is_left_out_until_its_user_asks_for_it(notebook: AutoKernel, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    notebook.run(DEADLY.format(flag=str(flag)))
    notebook.run("%gpu suspend")
    # The first process dies of it, the second has the rest and dies when it tries once more, the third waits.
    assert notebook.run("kept").result == "[1, 2]"
    told = "died twice while it was brought back; %gpu request tries once more"
    assert told in notebook.run("%gpu log").text()
    listed = notebook.run("%gpu vars").text()
    assert told in next(line for line in listed.splitlines() if line.split()[:1] == ["deadly"])
    flag.unlink()
    notebook.run("%gpu suspend")
    assert notebook.run("'deadly' in globals(), kept").result == "(False, [1, 2])"
    notebook.run("%gpu request")
    assert notebook.run("type(deadly).__name__, kept").result == "('Deadly', [1, 2])"
