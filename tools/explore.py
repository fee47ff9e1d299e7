"""Draws fresh examples for every property, again and again until the time is over, and says what broke.

    python tools/explore.py --minutes 10
    python tools/explore.py --seed 1234            # one round again, as it was
    python tools/explore.py --minutes 5 tests/properties/test_packing.py -x

`make test` draws the same examples everywhere; here every round has a seed of its own. What is found becomes a fixed
example: `@example(...)`, or a story of the smallest history. Ends with 1 where something was found.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EFFORT = "0.1"
"""Of the examples that `make test` tries, so that a round takes about a minute; more rounds differ more."""
PASSED, FAILED = 0, 1
_FAILED = re.compile(r"^(?:FAILED|ERROR|SUBFAILED\S*) (\S+)", re.MULTILINE)


def properties() -> list[str]:
    """The files in which anything is drawn."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if "hypothesis" in path.read_text(encoding="utf-8")]


def explored(seed: int, arguments: list[str]) -> list[str]:
    """One round: the names of the tests that failed, whose examples are printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--hypothesis-profile=explore", f"--hypothesis-seed={seed}", *arguments]
    if not any((ROOT / argument.partition("::")[0]).exists() for argument in arguments):
        command += properties()
    environment = {"NLS_EFFORT": EFFORT, **os.environ}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    failed = _FAILED.findall(ran.stdout)
    if ran.returncode not in (PASSED, FAILED) or (ran.returncode == FAILED) != bool(failed):
        sys.exit(f"pytest could not run the properties ({ran.returncode}):\n{ran.stdout}{ran.stderr}")
    if failed:
        say(ran.stdout)
    return failed


def say(text: str) -> None:
    """Print `text` at once, also into a file."""
    print(text, flush=True)  # noqa: T201 - a tool for people


def main() -> None:
    """Rounds until the time is over, then what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0, help="no round begins later (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="only the round of this seed")
    options, arguments = parser.parse_known_args()
    end, found = time.monotonic() + 60 * options.minutes, dict[int, list[str]]()
    rounds = 0
    while rounds == 0 or (options.seed is None and time.monotonic() < end):
        seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
        began, rounds = time.monotonic(), rounds + 1
        failed = explored(seed, arguments)
        say(f"round {rounds}, seed {seed}: {len(failed)} failed, {time.monotonic() - began:.0f} s")
        if failed:
            found[seed] = failed
    for seed, names in found.items():
        say("\n".join([f"seed {seed} (make explore SEED={seed}):", *(f"  {name}" for name in names)]))
    say(f"{rounds} rounds, {sum(map(len, found.values()))} failures in {len(found)} of them")
    sys.exit(FAILED if found else PASSED)


if __name__ == "__main__":
    main()
