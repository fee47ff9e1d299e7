"""Plays random histories of a node, one after another by their numbers, and says what broke, made small.

    python tools/histories.py --from 0 --to 1000000      # eighteen hours on two cores
    python tools/histories.py --from 1234                # this one alone

`make test-long` plays the first of them; what is found becomes a story. Ends with 1 where something was found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from mixed_histories import Finding, drawn, played, smallest  # noqa: E402

AT_ONCE = 200


def found_in(numbers: range) -> list[tuple[int, Finding]]:
    """Which of these histories break something, and what."""
    return [(number, finding) for number in numbers if (finding := played(drawn(number))) is not None]


def say(text: str) -> None:
    """Print `text` at once, also into a file."""
    print(text, flush=True)  # noqa: T201 - a tool for people


def main() -> None:
    """All histories, the first finding of each kind made small, and how many there are of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="default: %(default)s")
    parser.add_argument("--to", dest="end", type=int, metavar="N", help="the first that is not played any more")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: every core")
    options = parser.parse_args()
    end = options.first + 1 if options.end is None else options.end
    parts = [range(at, min(at + AT_ONCE, end)) for at in range(options.first, end, AT_ONCE)]
    kinds, began, done = dict[str, list[int]](), time.monotonic(), 0
    with ProcessPoolExecutor(options.workers) as pool:
        for part, found in zip(parts, pool.map(found_in, parts), strict=True):
            done += len(part)
            for number, finding in found:
                kinds.setdefault(finding.kind, []).append(number)
                if len(kinds[finding.kind]) == 1:
                    history, least = smallest(drawn(number), finding)
                    say(f"\n{number}, after event {least.after} of these: {least.told}\n{history}\n")
            if done % (25 * AT_ONCE) == 0:
                say(f"{done} histories, {sum(map(len, kinds.values()))} findings, {time.monotonic() - began:.0f} s")
    for kind, numbers in kinds.items():
        say(f"{len(numbers)} times: {kind}: {', '.join(map(str, numbers[:20]))}")
    say(f"{done} histories, {sum(map(len, kinds.values()))} findings, {time.monotonic() - began:.0f} s")
    sys.exit(1 if kinds else 0)


if __name__ == "__main__":
    main()
