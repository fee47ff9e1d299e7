"""The GPU hour on simulated GPUs: so that the kit itself is known to work when there is a real one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent

# Of each kind of step some; the story, a training and limits are played by tests of their own.
STEPS = ("machine", "doctor", "gpu_tests", "contexts_none", "memory_torch_0.05", "first_cell_torch")


@pytest.mark.long("the GPU hour's short form, on simulated GPUs")
@pytest.mark.timeout(1000)
def test_steps_of_the_gpu_hour_do_what_they_should_without_a_gpu(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools/gpu_hour/hour.py"), *STEPS, "--simulate", "--minutes", "16"]
    command += ["--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as hour:
        try:
            said, _ = hour.communicate(timeout=990)
        finally:
            hour.terminate()  # which ends its step, too
    steps = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert {name: step["outcome"] for name, step in steps.items()} == dict.fromkeys(STEPS, "ok"), said
    assert hour.returncode == 0, said
    assert steps["memory_torch_0.05"]["figures"]["save_new_s"] > 0
    told = {case.partition(":")[0] for case in steps["gpu_tests"]["figures"].values()}
    assert told == {"skipped"}, "only a real GPU can do that"
