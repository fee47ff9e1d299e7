"""From an error that costs a process its Gpu to what the user reads, on a libcuda that says what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contract.cuda_contract import SCRIPT_VARIABLE, built
from notebooks import Bench, Book

if TYPE_CHECKING:
    from collections.abc import Iterator

# As much of CuPy as saved state asks whether the Gpu answers, on the driver below it; in its own words.
CUPY = """
import ctypes, os, types
_driver = ctypes.CDLL("libcuda.so.1")
_context = ctypes.c_void_p()
assert _driver.cuInit(0) == 0
assert _driver.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0) == 0
assert _driver.cuCtxSetCurrent(_context) == 0

class CUDARuntimeError(RuntimeError):
    __module__ = "cupy_backends.cuda.api.runtime"
    def __init__(self, status):
        super().__init__("cudaErrorIllegalAddress: an illegal memory access was encountered")
        self.status = status

class ndarray: pass

def _synchronize():
    if code := _driver.cuCtxSynchronize(): raise CUDARuntimeError(code)

def launch_what_reads_elsewhere():
    with open(os.environ["{variable}"], "w") as script: script.write("sticky 700")
    _synchronize()

cuda = types.SimpleNamespace(
    is_available=lambda: True,
    driver=types.SimpleNamespace(ctxGetCurrent=lambda: 1),
    runtime=types.SimpleNamespace(deviceSynchronize=_synchronize),
)
"""


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the driver, which is found by what the notebooks' processes load."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "cupy.py").write_text(CUPY.replace("{variable}", SCRIPT_VARIABLE))
    path = folder / "cuda.txt"
    path.write_text("")
    return path


@pytest.fixture
def book(script: Path) -> Iterator[Book]:
    """A notebook on that driver, which has saved `x = 41`."""
    folder = script.parent
    variables = {"LD_LIBRARY_PATH": str(built(folder).parent), SCRIPT_VARIABLE: str(script)}
    with Bench(folder, "1x256MiB", **variables) as bench:
        book = bench.open()
        book.gpu(f"import sys; sys.path.insert(0, {str(folder)!r})\nimport cupy\nx = 41")
        book.run("%gpu save")
        yield book


@pytest.mark.long("an error that costs a process its GPU, in a real notebook: its parts are unit tests")
def test_an_illegal_access_is_told_and_the_next_process_has_what_was_saved_before(script: Path, book: Book) -> None:
    pid = book.entry()["pid"]
    failed = book.fails("%%gpu\nx = 42\ncupy.launch_what_reads_elsewhere()")
    assert "an illegal memory access" in failed.evalue
    script.write_text("")
    again = book.gpu("x")
    assert book.entry()["pid"] not in {pid, None}
    assert again.result == "41"
    assert "as its GPU answers it no more since an error (an illegal memory access was encountered)" in again.stderr
    assert "cell [3] ran after it and is not in it" in again.stderr
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.long("errors that cost a process its GPU, in real notebooks: one is above")
def test_who_tries_again_and_again_is_not_given_up(script: Path, book: Book) -> None:
    for _ in range(5):
        script.write_text("")
        failed = book.fails("%%gpu\nx += 1\ncupy.launch_what_reads_elsewhere()")
        assert "an illegal memory access" in failed.evalue
    script.write_text("")
    assert book.gpu("x").result == "41"
