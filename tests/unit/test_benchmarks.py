"""Whoever wants to check our figures can: each benchmark starts, says what it measures, and works in a short form."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from nls_scheduler.drivers.nvml import NvmlDriver

pytest.importorskip("numpy", reason="what benchmarks save is of NumPy")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

# All in one process: most of their time is what they import.
HELP = """
import ast, contextlib, io, pathlib, runpy, sys
path = list(sys.path)
for script in map(pathlib.Path, sys.argv[1:]):
    said, ended = io.StringIO(), None
    sys.argv, sys.path[:] = [str(script), "--help"], [str(script.parent), *path]
    with contextlib.redirect_stdout(said):
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as error:
            ended = error.code
    told = ast.get_docstring(ast.parse(script.read_text())).split()[:8]
    assert ended == 0 and told == said.getvalue().split("\\n\\n")[1].split()[:8], f"{script} --help: {ended}"
"""


@pytest.mark.long("each benchmark is started")
def test_each_benchmark_says_what_it_measures_when_asked_and_does_nothing_else(tmp_path: Path) -> None:
    scripts = [path for path in sorted(BENCHMARKS.glob("*.py")) if '__name__ == "__main__"' in path.read_text()]
    assert BENCHMARKS / "saved_state.py" in scripts
    before = {path: path.stat().st_mtime_ns for path in (BENCHMARKS / "results").iterdir()}
    environment = {"PYTHONDONTWRITEBYTECODE": "1", "HOME": str(tmp_path), "NLS_KEEP": "1"}
    command = [sys.executable, "-c", HELP, *map(str, scripts)]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not [*tmp_path.iterdir()]
    assert before == {path: path.stat().st_mtime_ns for path in (BENCHMARKS / "results").iterdir()}


@pytest.mark.parametrize("name", ["gpu_checkpoint", "gpu_contexts", "gpu_memory"])
@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_what_measures_a_gpu_says_so_where_there_is_none(name: str, library: str) -> None:
    with closing(NvmlDriver()) as driver:
        if driver.discover():
            pytest.skip("there is a GPU here, and measuring it takes its time")
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--library", library]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("This measures ")
    assert done.stderr.count("\n") == 1


def test_what_saved_state_costs_can_be_measured_in_a_short_form(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "saved_state.py"), "--only", "small_objects", "--dicts", "3000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"]["small_objects"]["dicts"] == 3000
