"""Puts what the calls of the GPU hour found into benchmarks/results/<gpu>.json, and prints the README's table of it.

python tools/gpu_hour/results.py FOLDER...        # folders with a results.json, the latest last
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RESULTS = ROOT / "benchmarks" / "results"

# What a row is called, and the steps that it rests on, by how their names begin.
ROWS = {
    "NVML, saved state and allowances of CuPy and PyTorch, standby, allocators": "gpu_tests",
    "the story on one GPU (`nls demo`)": "story",
    "a training that is suspended twice; GPUs that errors or others have taken": "gpu_notebooks",
    "limits: who fills what is allowed stays, a neighbour gets its request": "gpu_limits",
    "what contexts and libraries take": "contexts",
    "saved state's speed": "memory",
    "from the first cell and from a suspend to a result": "first_cell",
    "the driver's own suspend of a process": "checkpoint",
    "cells that stand still while a command has their GPU": "gpu_freezing",
}


def _ratio(name: str, least: float) -> Callable[[Mapping[str, Any]], tuple[float, bool]]:
    return lambda figures: (figures[name], figures[name] >= least)


def _unchanged(figures: Mapping[str, Any]) -> tuple[float, bool]:
    """At most 5 ms and a fiftieth of a copy of as much."""
    copy_s = figures["bytes"] / 2**30 / figures["down_gib_s"]
    return figures["unchanged_s"], figures["unchanged_s"] <= 0.005 + 0.02 * copy_s


def _move(figures: Mapping[str, Any]) -> tuple[float, bool]:
    """Saved and brought back within a second."""
    seconds = round(figures["save_changed_s"] + figures["restore_s"], 3)
    return seconds, seconds <= 1.0


# By the step, what is asked of it.
BARS: dict[str, dict[str, Callable[[Mapping[str, Any]], tuple[float, bool]]]] = {
    "memory_cupy_1": {"unchanged 1 GiB, s (5 ms + 2 % of a copy)": _unchanged},
    "memory_torch_1": {"unchanged 1 GiB, s (5 ms + 2 % of a copy)": _unchanged},
    "memory_cupy_10": {
        "save over a page-locked copy (0.8)": _ratio("save_changed_speed_over_copy", 0.8),
        "restore over a page-locked copy (0.8)": _ratio("restore_speed_over_copy", 0.8),
        "move of 10 GiB, s (1)": _move,
    },
    "memory_torch_10": {
        "save over a page-locked copy (0.8)": _ratio("save_changed_speed_over_copy", 0.8),
        "restore over a page-locked copy (0.8)": _ratio("restore_speed_over_copy", 0.8),
    },
}


def write(path: Path, steps: Mapping[str, Any], *, simulated: bool) -> None:
    """What is known so far, so that a call that is cut off has it. Steps of earlier calls in the same file stay.

    But not where these were of simulated GPUs and this one is not, or the other way round. Raises OSError.
    """
    try:
        known = json.loads(path.read_text())
        before = known["steps"] if known["simulated"] == simulated else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        before = {}
    commit = ROOT / "COMMIT"
    whole = {
        "simulated": simulated,
        "commit": commit.read_text().strip() if commit.exists() else None,
        "steps": {**before, **steps},
    }
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(whole, indent=2) + "\n")
    draft.replace(path)


def merged(folders: list[Path]) -> dict[str, Any]:
    """One result of several calls. Raises ValueError where some were on simulated GPUs and others not."""
    found = [json.loads((folder / "results.json").read_text()) for folder in folders]
    if len({result["simulated"] for result in found}) != 1:
        raise ValueError("some of these are of simulated GPUs and others are not")
    steps = {name: step for result in found for name, step in result["steps"].items()}
    return {**found[-1], "steps": steps}


def name_of(result: Mapping[str, Any]) -> str:
    """Of the file: the GPU's, in small letters."""
    about = (result["steps"].get("machine") or {}).get("figures") or {}
    gpu = "simulated" if result["simulated"] else (about.get("gpus") or {}).get("name", "unknown GPU")
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def table(result: Mapping[str, Any]) -> str:
    """Markdown: for each part whether all of its steps did what they should; then what is asked of the figures."""
    lines = [f"| part | on {name_of(result)} |", "| --- | --- |"]
    for row, begins in ROWS.items():
        found = {name: step for name, step in result["steps"].items() if name.startswith(begins)}
        lines.append(f"| {row} | {_row(found)} |")
    for step, bars in BARS.items():
        figures = (result["steps"].get(step) or {}).get("figures")
        for bar, look in bars.items():
            if figures:
                value, holds = look(figures)
                lines.append(f"| {step}: {bar} | {value:g}{'' if holds else ', which is not enough'} |")
    return "\n".join(lines)


def _row(steps: Mapping[str, Any]) -> str:
    if not steps:
        return "has not run"
    parts = []
    for name, step in steps.items():
        words = f"{step['outcome']}, {step['told']}" if step["told"] else step["outcome"]
        parts.append(words if len(steps) == 1 else f"{name}: {words}")
    return "; ".join(parts)


def main() -> None:
    """Called with the folders of the calls."""
    result = merged([Path(folder) for folder in sys.argv[1:]])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name_of(result)}.json").write_text(json.dumps(result, indent=2) + "\n")
    sys.stdout.write(table(result) + "\n")


if __name__ == "__main__":
    main()
