"""What a kernel that has `%gpu` and never calls it pays, beside a kernel without us, and what the first use takes.

The kinds start in turns, one at a time, and neighbours are compared. Processor time and memory are those of the
kernel's process when it answers its first cell. The bar is 20 ms and 1 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from machine import machine, report

from kernels import Kernel, compile_ours

_LAUNCH = "import sys; sys.path.remove(''); from ipykernel import kernelapp; kernelapp.launch_new_instance()"
# The extension is named in the environment's own configuration.
KINDS = {
    "without": f"from IPython.core import application; application.ENV_CONFIG_DIRS.clear(); {_LAUNCH}",
    "with": f"from IPython.core import application; {_LAUNCH}",
}
_READ = """
import pathlib, re, time
kib = dict(re.findall(r"^(Rss|Pss): +([0-9]+) kB", pathlib.Path("/proc/self/smaps_rollup").read_text(), re.M))
print(get_ipython().find_line_magic("gpu") is not None, time.process_time(), kib["Rss"], kib["Pss"])
"""
_USE = "began = time.process_time(); get_ipython().run_line_magic('gpu', 'log'); print(time.process_time() - began)"


def environment(directory: Path) -> dict[str, str]:
    """With a kernelspec for each kind, which this process and its kernels find below `directory`."""
    for kind, code in KINDS.items():
        place = directory / "kernels" / kind
        place.mkdir(parents=True)
        argv = [sys.executable, "-c", code, "-f", "{connection_file}"]
        (place / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": kind, "language": "python"}))
    os.environ["JUPYTER_PATH"] = str(directory)
    return {**os.environ, "IPYTHONDIR": f"{directory}/ipython", "NLS_SOCKET": f"{directory}/none.sock"}


async def start(kind: str, variables: dict[str, str]) -> dict[str, float]:
    async with Kernel(variables, kind) as kernel:
        _, printed = await kernel.run(_READ)
        has_magic, cpu_s, rss_kib, pss_kib = printed.split()
        if (has_magic == "True") != (kind == "with"):
            raise RuntimeError(f"a kernel {kind} us, and the magic is there: {has_magic}")
        found = {"cpu_ms": 1000 * float(cpu_s), "rss_mib": int(rss_kib) / 1024, "pss_mib": int(pss_kib) / 1024}
        if kind == "with":
            _, printed = await kernel.run(_USE)
            found["first_use_cpu_ms"] = 1000 * float(printed.split()[-1])
        return found


def figures(taken: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    def median(kind: str, name: str) -> float:
        return round(statistics.median(one[name] for one in taken[kind]), 2)

    found: dict[str, Any] = {kind: {name: median(kind, name) for name in starts[0]} for kind, starts in taken.items()}
    pairs = list(zip(taken["without"], taken["with"], strict=True))
    found["more"] = {
        name: round(statistics.median(ours[name] - plain[name] for plain, ours in pairs), 2) for name in pairs[0][0]
    }
    found["over_without"] = {name: round(value / found["without"][name], 3) for name, value in found["more"].items()}
    return found


async def measure(starts: int) -> dict[str, Any]:
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    compile_ours()
    with tempfile.TemporaryDirectory() as directory:
        variables = environment(Path(directory))
        for number in range(starts + 1):
            for kind in KINDS if number % 2 else reversed(KINDS):
                one = await start(kind, variables)
                if number:  # the first one brings into the page cache what the others find
                    taken[kind].append(one)
    return {**figures(taken), "starts": starts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=21, help="of each kind")
    report("light_start", asyncio.run(measure(parser.parse_args().starts)), machine())


if __name__ == "__main__":
    main()
