"""Tries the project out on this machine's GPU, step by step; `hour.sh` starts it with what it needs.

    python tools/gpu_hour/hour.py PART... | STEP... | all

It never stops at the first failure, and a call ends within `--minutes`. Each step has a limit of its own; whatever it
has started is ended after it. `$OUT` (or `--out`) gets results.json after each step, and each step's output.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from results import write
from steps import ROOT, XML, Step, figures, outcome, plan, told

# In the environment of all that a step starts, by which what it leaves behind is found.
MARK = "NLS_GPU_HOUR_STEP"
SIMULATED = "NLS_GPU_TESTS"
LEAST_S = 15.0
TAIL_LINES = 40
_PAUSE_S = 0.1
_GOES_BY_ITSELF_S = 8.0


def main() -> int:
    """Returns 0 where every step did what it should. What ends it ends its step first."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="*", default=["all"], metavar="PART|STEP|all")
    parser.add_argument("--simulate", action="store_true", help="what can be tried out without a GPU")
    parser.add_argument("--minutes", type=float, default=9.3, help="what this call may take (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".gpuhour/out")))
    options = parser.parse_args()
    steps = plan(simulated=options.simulate)
    chosen = [step for step in steps if {"all", str(step.part), step.name} & set(options.wanted)]
    unknown = set(options.wanted) - {"all", *(str(step.part) for step in steps), *(step.name for step in steps)}
    if unknown:
        parser.error(f"no such part or step: {', '.join(sorted(unknown))}")
    # Compiled once for all steps, whose starts are measured: the environment's own place may not take it.
    with tempfile.TemporaryDirectory(prefix="nls-bytecode-", ignore_cleanup_errors=True) as bytecode:
        ends_at = time.monotonic() + 60 * options.minutes
        found = play(chosen, options.out, ends_at, simulated=options.simulate, bytecode=bytecode)
    _say("\nhour: summary")
    for name, result in found.items():
        _say(f"  {result['outcome']:<12} {name:<24} {result['seconds']:6.1f} s  {result['told']}")
    if not keep(found, options.out, simulated=options.simulate):
        _say(json.dumps(found))
    return int(any(result["outcome"] != "ok" for result in found.values()))


def play(
    steps: list[Step], out: Path, ends_at: float, *, simulated: bool, bytecode: str = ""
) -> dict[str, dict[str, Any]]:
    """Run `steps` until `ends_at`, a monotonic time; Python's bytecode is kept below `bytecode`.

    Returns what came of each.
    """
    found: dict[str, dict[str, Any]] = {}
    for step in steps:
        left_s = ends_at - time.monotonic() - _GOES_BY_ITSELF_S
        if left_s < LEAST_S:
            found[step.name] = _without_figures("not run", f"{left_s:.0f} s were left")
        else:
            _say(f"hour: {step.name} (at most {min(step.limit_s, left_s):.0f} s) ...")
            # Short, for the sockets in it; what steps leave there goes with it.
            with tempfile.TemporaryDirectory(prefix="h", dir="/tmp", ignore_cleanup_errors=True) as temporary:
                try:
                    Path(temporary).chmod(0o711)  # a step may be of two users
                    own = {"TMPDIR": temporary, "PYTHONPYCACHEPREFIX": bytecode}
                    found[step.name] = run(step, out, min(step.limit_s, left_s), simulated=simulated, **own)
                except OSError as error:  # a disk is full, or nobody may write there
                    found[step.name] = _without_figures("failed", str(error))
        keep(found, out, simulated=simulated)
    return found


def keep(found: dict[str, dict[str, Any]], out: Path, *, simulated: bool) -> bool:
    """Write what is known so far. False: that is not possible, and said."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write(out / "results.json", found, simulated=simulated)
    except OSError as error:
        _say(f"hour: {out / 'results.json'} cannot be written: {error}")
        return False
    return True


def _without_figures(outcome: str, told: str) -> dict[str, Any]:
    return {"outcome": outcome, "seconds": 0.0, "told": told, "figures": None}


def run(step: Step, out: Path, limit_s: float, *, simulated: bool, **own: str) -> dict[str, Any]:
    """One step, in an environment of its `own`: its outcome, its seconds, what it found, and what it left running."""
    out.mkdir(parents=True, exist_ok=True)
    xml, log, printed = (out / f"{step.name}.{kind}" for kind in ("xml", "txt", "out"))
    mark = f"{step.name}-{os.getpid()}-{time.monotonic_ns()}"
    environment = {**os.environ, MARK: mark, "PYTHONFAULTHANDLER": "1", **own}
    if simulated:
        environment[SIMULATED] = "simulated"
    began = time.monotonic()
    with log.open("wb") as errors, printed.open("wb") as output:
        process = subprocess.Popen(
            [word.replace(XML, str(xml)) for word in step.command],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
        )  # fmt: skip
        try:
            code = _wait(process, limit_s)
        except BaseException:  # somebody ends the whole
            _kill(process)
            end_marked(mark)
            raise
    seconds = time.monotonic() - began
    left = end_marked(mark)
    text = printed.read_text(errors="replace")
    try:
        found = figures(step.kind, text, xml)
    except (ValueError, OSError, ET.ParseError) as error:
        found, code = None, code if code is None else -1
        _say(f"    found nothing: {error}")
    said = outcome(step, code, found, simulated=simulated)
    if said != "ok":
        _say("\n".join(f"    {line}" for line in (text + log.read_text(errors="replace")).splitlines()[-TAIL_LINES:]))
    return {
        "outcome": said,
        "seconds": round(seconds, 1),
        "told": told(step.kind, found),
        "figures": found,
        **({"left_running": left} if left else {}),
    }


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    """Its exit code; `None`: its time was up, and it was interrupted, so that it can say where it is, then killed."""
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GOES_BY_ITSELF_S / 2)
        _kill(process)
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_marked(mark: str) -> list[str]:
    """Kill what a step has left, known by its environment, after some time to go by itself. Returns their commands."""
    ends_at = time.monotonic() + _GOES_BY_ITSELF_S
    while (pids := _marked(mark)) and time.monotonic() < ends_at:
        time.sleep(_PAUSE_S)
    commands = []
    for pid in pids:
        with contextlib.suppress(OSError):
            commands.append(
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            )
            os.kill(pid, signal.SIGKILL)
    return commands


def _marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                if any(variable.startswith(f"{MARK}={mark}".encode()) for variable in variables):
                    found.append(int(entry.name))
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
