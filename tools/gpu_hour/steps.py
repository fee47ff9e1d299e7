"""The steps of the GPU hour, in the order of what is worth most, and what each says of itself afterwards."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parent.parent.parent
#: Stands in a command for the file of results that pytest writes.
XML = "{xml}"
#: Of a real GPU's minutes some are to be left for the next step; without one, the machine may be busy with other tests.
SIMULATED_TIMES = 5
Kind = Literal["figures", "lines", "tests"]


@dataclass(frozen=True, slots=True)
class Step:
    """One program.

    Attributes:
        part: one call; each has less than ten minutes.
        limit_s: what it may take at most.
        kind: what it prints: one JSON value, a JSON object per line, or pytest's report.
        fine: exit codes of one that did what it should.
    """

    name: str
    part: int
    limit_s: float
    kind: Kind
    command: Sequence[str]
    fine: tuple[int, ...] = (0,)


def plan(*, simulated: bool) -> list[Step]:
    """All steps: of a real GPU, or those that can be tried out on a simulated one."""
    steps = [*_must_work(simulated), *_figures(simulated), *([] if simulated else _last())]
    return [replace(step, limit_s=SIMULATED_TIMES * step.limit_s) for step in steps] if simulated else steps


def _must_work(simulated: bool) -> list[Step]:  # noqa: FBT001 - reads like an assertion
    doctor = [sys.executable, "-m", "nls_scheduler", "doctor", "--json"]
    alone = _gpu_tests("nvml", "cuda", "saved_state", "allowance", "standby", "edges")
    return [
        Step("machine", 1, 90, "figures", _program("tools/gpu_hour/about.py")),
        # Without a driver that is what it says.
        Step("doctor", 1, 30, "figures", doctor, fine=(0, 1) if simulated else (0,)),
        Step("gpu_tests", 1, 200, "tests", alone),
        Step("story", 1, 150, "lines", [sys.executable, "-m", "nls_scheduler", "demo", "--gpus", "1", "--json"]),
        Step("gpu_notebooks", 1, 200, "tests", _gpu_tests("training", "lost")),
        Step("gpu_limits", 3, 300, "tests", _gpu_tests("limits")),
        *([] if simulated else [Step("stub_tests", 3, 120, "tests", _tests("tests/contract"))]),
    ]


def _figures(simulated: bool) -> list[Step]:  # noqa: FBT001 - reads like an assertion
    if simulated:
        return [
            Step("contexts_none", 2, 30, "figures", _program("benchmarks/gpu_contexts.py", "--library", "none")),
            _memory("numpy", 0.05, 60),
            _memory("torch", 0.05, 60, 2, "--cpu"),
            _first_cell("torch", "--simulate", "1x1GiB"),
        ]
    contexts = [
        Step(f"contexts_{library}", 2, 60, "figures", _program("benchmarks/gpu_contexts.py", "--library", library))
        for library in ("driver", "cupy", "torch")
    ]
    return [
        *contexts,
        *(_memory(library, gib, 60 + 6 * gib) for gib in (1, 10) for library in ("cupy", "torch")),
        *(_first_cell(library) for library in ("cupy", "torch")),
        # On the processor beside the GPU: what the daemon of such a machine takes for a decision.
        Step("step_latency", 3, 60, "figures", _program("benchmarks/step_latency.py", "--gpus", "8")),
        Step("ways", 3, 90, "figures", _program("benchmarks/gpu_ways.py")),
        Step("contexts_jax", 3, 60, "figures", _program("benchmarks/gpu_contexts.py", "--library", "jax")),
        _memory("cupy", 40, 300, 3),
    ]


def _last() -> list[Step]:
    """May leave a process broken."""
    cases = [("cupy", 1, ()), ("cupy", 1, ("--masked",)), ("torch", 1, ("--masked",)), ("cupy", 10, ("--masked",))]
    return [
        Step("gpu_freezing", 4, 180, "tests", _gpu_tests("checkpoints", "standing")),
        *(Step(
            f"checkpoint_{library}_{gib}{'_masked' if masked else ''}", 4, 120, "figures",
            _program("benchmarks/gpu_checkpoint.py", "--library", library, "--gib", str(gib), *masked),
        )
        for library, gib, masked in cases),
    ]  # fmt: skip


def _memory(library: str, gib: float, limit_s: float, part: int = 2, *more: str) -> Step:
    command = _program("benchmarks/gpu_memory.py", "--library", library, "--gib", f"{gib:g}", *more)
    return Step(f"memory_{library}_{gib:g}", part, limit_s, "figures", command)


def _first_cell(library: str, *more: str) -> Step:
    return Step(
        f"first_cell_{library}", 2, 120, "figures", _program("benchmarks/first_cell.py", "--library", library, *more)
    )


def _program(path: str, *arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / path), *arguments]


def _gpu_tests(*names: str) -> list[str]:
    return _tests(*(f"tests/gpu/test_{name}_gpu.py" for name in names))


def _tests(*which: str) -> list[str]:
    pytest = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
    paths = [str(ROOT / path) for path in which]
    return [*pytest, "-c", str(ROOT / "pyproject.toml"), f"--junitxml={XML}", *paths]


def figures(kind: Kind, printed: str, xml: Path) -> Any:
    """What a step found. Raises ValueError, OSError or ET.ParseError where it has not got so far."""
    if kind == "tests":
        return cases(xml)
    if kind == "lines":
        lines = [json.loads(line) for line in printed.splitlines()]
        return [line for line in lines if line["type"] in ("note", "checked", "act", "event")]
    found = json.loads(printed)
    return found["figures"] if isinstance(found, dict) and "figures" in found else found


def cases(xml: Path) -> dict[str, str]:
    """The outcome of each test, with what it says where it did not pass."""
    found = {}
    for case in ET.parse(xml).getroot().iter("testcase"):  # noqa: S314 - pytest's own
        name = f"{(case.get('classname') or '').rpartition('.')[2]}.{case.get('name')}"
        found[name] = "passed"
        for outcome in ("failure", "error", "skipped"):
            if (node := case.find(outcome)) is not None:
                found[name] = f"{outcome}: {(node.get('message') or '')[:500]}"
    return found


def outcome(step: Step, code: int | None, found: Any, *, simulated: bool) -> str:
    """One of `ok`, `failed`, `skipped`, `time was up`: on a real GPU whatever is skipped has not been tried."""
    if code is None:
        return "time was up"
    if code not in step.fine:
        return "failed"
    if simulated:
        return "ok"
    if step.kind == "tests":
        skipped = any(case.startswith("skipped") for case in (found or {}).values())
    else:
        # The demo simulates where no GPU is idle, and says so.
        skipped = step.kind == "lines" and any("SIMULATED" in line.get("text", "") for line in found or ())
    return "skipped" if skipped else "ok"


def told(kind: Kind, found: Any) -> str:
    """A few words for the summary."""
    if kind == "tests" and found:
        counts = Counter(case.partition(":")[0] for case in found.values())
        return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    if kind == "lines" and found:
        return f"{_count(found, 'checked')} sentences checked"
    return ""


def _count(lines: Iterable[dict[str, Any]], kind: str) -> int:
    return sum(line["type"] == kind for line in lines)
