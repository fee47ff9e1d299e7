from __future__ import annotations

import builtins
import csv
import os
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from nls_jupyter.gpu_process import priority, warm_imports
from nls_jupyter.gpu_process.warm_imports import Imports, adopt, as_in_a_cell, cuda_touched, import_quietly


def test_modules_that_print_fail_or_exit_are_imported_quietly_or_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    codes = {"nls_says": "import sys; print('hello'); sys.stderr.write('hello')", "nls_fails": "1 / 0"}
    codes |= {"nls_exits": "raise SystemExit", "nls_after": "x = 1"}
    for name, code in codes.items():
        (tmp_path / f"{name}.py").write_text(code)
    try:
        assert import_quietly([*codes, "nls_missing"]) == ["nls_fails", "nls_exits", "nls_missing"]
        assert {"nls_says", "nls_after"} <= sys.modules.keys()
    finally:
        for name in codes:
            sys.modules.pop(name, None)
    assert capsys.readouterr() == ("", "")


def test_an_import_in_advance_sees_what_one_in_a_cell_sees_and_may_keep_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    code = "import sys; shell, hook, out, err = get_ipython(), sys.displayhook, sys.stdout, sys.stderr; print('hello')"
    (tmp_path / "nls_looks.py").write_text(code)
    shell = InteractiveShell(history_length=0)
    try:
        with as_in_a_cell(shell):
            assert import_quietly(["nls_looks"]) == []
        looked: Any = sys.modules["nls_looks"]
        assert (looked.shell, looked.hook, looked.out, looked.err) == (shell, shell.displayhook, sys.stdout, sys.stderr)
        print("heard", file=looked.out)
    finally:
        sys.modules.pop("nls_looks", None)
    assert capsys.readouterr() == ("heard\n", "")
    assert not hasattr(builtins, "get_ipython")


def module(name: str, origin: str | None) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, origin=origin)
    return made


def test_only_installed_modules_are_imported_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = Imports()
    site = str(Path(pytest.__file__).parents[1])
    added = {
        "nls_lib": module("nls_lib", f"{site}/nls_lib/__init__.py"),
        "nls_lib.plots": module("nls_lib.plots", f"{site}/nls_lib/plots.py"),
        "nls_lib.inner": module("nls_lib.inner", f"{site}/nls_lib/inner.py"),
        "nls_mine": module("nls_mine", "/home/me/notebooks/nls_mine.py"),
        "nls_space": module("nls_space", None),
        "_nls_private": module("_nls_private", f"{site}/_nls_private.py"),
    }
    for name, value in added.items():
        monkeypatch.setitem(sys.modules, name, value)
    monkeypatch.setitem(sys.modules, "nls_alias", added["nls_lib"])
    namespace = {"plots": added["nls_lib.plots"], "mine": added["nls_mine"], "csv": csv, "number": 1}
    assert imports.names(namespace) == ["nls_lib", "nls_lib.plots"]


def test_what_a_thread_imports_meanwhile_hinders_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meanwhile(frozenset):
        def __contains__(self, name: object) -> bool:
            monkeypatch.setitem(sys.modules, "nls_meanwhile", types.ModuleType("nls_meanwhile"))
            return super().__contains__(name)

    imports = Imports()
    imports._before = Meanwhile(imports._before)
    assert imports.names({}) == []


def test_an_open_device_counts_as_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda_touched() is None

    class FakePath(type(Path())):
        def iterdir(self):
            link = tmp_path / "3"
            link.symlink_to("/dev/nvidia-uvm")
            yield link

    monkeypatch.setattr(warm_imports, "Path", FakePath)
    assert cuda_touched() == "/dev/nvidia-uvm is open"


def test_it_takes_the_environment_and_the_directory_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path.cwd())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-old")
    monkeypatch.setenv("NLS_ONCE", "1")
    adopt({"CUDA_VISIBLE_DEVICES": "GPU-new", "NLS_ONCE": None}, str(tmp_path))
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("NLS_ONCE")) == ("GPU-new", None)
    assert Path.cwd() == tmp_path


def test_one_that_has_touched_a_gpu_is_not_adopted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(warm_imports, "cuda_touched", lambda: "CUDA is initialized")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-old")
    with pytest.raises(RuntimeError, match="touched in advance: CUDA is initialized"):
        adopt({"CUDA_VISIBLE_DEVICES": "GPU-new"}, str(tmp_path))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-old"


@pytest.mark.parametrize("privileged", [True, False])
def test_the_low_priority_is_taken_back_in_every_thread(privileged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child of its own: the test process keeps its own priority."""
    monkeypatch.setattr(priority, "_can_be_undone", lambda: privileged)
    own = 0 if privileged else os.getpriority(os.PRIO_PROCESS, 0)  # the tests may have been started by `nice`
    child = os.fork()
    if child == 0:
        code = 1
        try:
            priority.lower()
            low = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
            priority.restore()
            back = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0))
            expected = (10, os.SCHED_OTHER) if privileged else (own, os.SCHED_BATCH)
            code = 0 if (low, back) == (expected, (own, os.SCHED_OTHER)) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
