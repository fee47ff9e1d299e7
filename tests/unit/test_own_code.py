"""The copy of its own code that a kernel makes for the processes that it starts later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nls_jupyter.supervisor import own_code
from waiting import wait_until

if TYPE_CHECKING:
    import pytest

WORDS = ("-m", "nls_jupyter.gpu_process")
IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, "/proc/self/fd/{0}")
import nls_jupyter, nls_scheduler
del sys.path[0]
names = [module.name for module in pkgutil.walk_packages(nls_jupyter.__path__, "nls_jupyter.")]
assert len(names) > 100, names
for name in names:
    if not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name.startswith("nls_"):
                raise
print(nls_jupyter.gpu_process.kernel.__file__)
"""


def made() -> own_code.OwnCode:
    code = own_code.OwnCode()
    code.keep()
    wait_until(lambda: code._copying is not None and not code._copying.is_alive())
    return code


def test_as_long_as_its_files_are_there_they_are_run() -> None:
    code = made()
    assert code.module("nls_jupyter.gpu_process") == WORDS
    assert code.descriptors == ()
    assert any(word.endswith("/guardian.py") and Path(word).exists() for word in code.guardian())


def test_a_file_that_was_replaced_has_the_copy_run_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, imported = tmp_path / "module.py", []
    source.write_text("before = True\n")
    monkeypatch.setattr(own_code, "_sources", lambda: iter([("module.py", source)]))
    monkeypatch.setattr(own_code, "_import_from", imported.append)
    code = made()
    source.unlink()
    archive, *words = code.module("nls_jupyter.gpu_process")
    assert tuple(words) == WORDS
    assert archive.endswith(f"/{code.descriptors[0]}")
    source.write_text("before = True\n")
    assert code.module("nls_jupyter.gpu_process") == (archive, *WORDS)
    assert imported == [archive], "what the kernel imports late comes from there too"
    assert code.guardian()[-3].endswith("/guardian.py"), "others know a guardian by that name"


def test_everything_that_a_notebooks_processes_import_is_in_the_copy(tmp_path: Path) -> None:
    code = made()
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL.format(code._archive)],
        cwd=tmp_path, pass_fds=(code._archive,), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("/proc/self/fd/")


def test_a_kernel_without_a_copy_starts_its_processes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        raise OSError("no memory")

    monkeypatch.setattr(os, "memfd_create", refused)
    assert made().module("nls_jupyter.gpu_process") == WORDS
