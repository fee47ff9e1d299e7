"""What the cells of the chaos suite do to a notebook's variables, and what these have to be: the judge's own account.

A state is known by the numbers of the cells that made it: each cell folds its number into a hash, and the hash says
what it writes through which of several names for the same memory. So a value of another moment, or of two moments at
once, or behind a name that is no alias any more, has another checksum.
"""

from __future__ import annotations

import zlib
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Steps = tuple[int, ...]

BASE, DEV, BIG = 4096, 2048, 3 << 20
NAMES = frozenset(
    "base big book dev dev_view n pair ring rows shared step steps tally Tally text thing view".split()  # noqa: SIM905
)
IDENTITIES = ("again", "book", "pair", "ring", "shared", "tally")

SETUP = f"""
import numpy as np
from nls_jupyter import xp
import chaos_module
class Tally:
    def __init__(self, steps): self.steps, self.total = steps, 0
    def add(self, cell): self.total += cell
steps, n, text = [], 0, ""
book = {{"steps": steps, "n": 0, "inner": {{"again": steps}}}}
base = np.zeros({BASE}, dtype=np.int64)
view, rows = base[16:272], base.reshape(64, 64)
shared = [base, {{"view": view}}]
dev = xp.zeros({DEV}, dtype=xp.float32)
dev_view = dev[128:256]
pair = (dev, dev_view)
big = np.zeros({BIG}, dtype=np.uint8)
ring = [None]; ring[0] = ring
tally, thing = Tally(steps), chaos_module.Thing([])
def step(cell):
    global n, text
    book["begun"] = cell
    h = 1
    steps.append(cell)
    for number in steps:
        h = (h * 6364136223846793005 + number * 1442695040888963407 + 1) % 2**63
    n = n + 1
    book["n"], text = n, f"after cell {{cell}}"
    base[h % {BASE}] = h % 1000003
    view[(h >> 8) % 256] += cell
    rows[(h >> 16) % 64, 5] = cell
    dev[(h >> 4) % {DEV}] = h % 1000
    dev_view[(h >> 12) % 128] += 1
    big[h % 7 :: 997] = cell % 251
    tally.add(cell)
    thing.seen.append(cell)
    book["begun"] = None
"""

#: More than a save after a cell may look at.
BALLAST = "ballast = [[number] for number in range(150_000)]"

LOOK = """
import json, os, zlib
import numpy as np
def crc(value):
    return zlib.crc32(np.ascontiguousarray(value.get() if hasattr(value, "get") else value).tobytes())
def look():
    found = {"names": [name for name in %(names)r if name in ns], "pid": os.getpid(), "parent": os.getppid()}
    reads = {
        "cells": lambda: list(ns["steps"]), "n": lambda: ns["n"], "book_n": lambda: ns["book"]["n"],
        "begun": lambda: ns["book"].get("begun"), "text": lambda: ns["text"], "total": lambda: ns["tally"].total,
        "thing": lambda: list(ns["thing"].seen),
        **{name: (lambda name=name: crc(ns[name])) for name in ("base", "view", "rows", "dev", "dev_view", "big")},
        "aliases": lambda: [
            ns["book"]["inner"]["again"] is ns["steps"], ns["book"]["steps"] is ns["steps"],
            ns["pair"][0] is ns["dev"] and ns["pair"][1] is ns["dev_view"], ns["ring"][0] is ns["ring"],
            ns["shared"][0] is ns["base"] and ns["shared"][1]["view"] is ns["view"],
            ns["tally"].steps is ns["steps"],
        ],
    }
    for name, read in reads.items():
        try:
            found[name] = read()
        except KeyError as error:
            found.setdefault("unread", []).append(f"{name}: {error}")
    return found
print("%(word)s " + json.dumps(look()), flush=True)
"""

LOOKED, APPLIED = "chaos-look", "chaos-applied"


def stepping(number: int, *then: str) -> str:
    """Lines that make all changes, or none while some name is not there."""
    lines = [f"step({number})", f"print({APPLIED!r}, flush=True)", *then]
    return "\n    ".join([f"if not (set({sorted(NAMES)!r}) - globals().keys()):", *lines])


def looking() -> str:
    """A line that prints what is there, with no name of its own and relying on none of the user's."""
    return f"exec({LOOK % {'names': sorted(NAMES), 'word': LOOKED}!r}, {{'ns': globals()}})"


@dataclass(slots=True)
class _State:
    base: list[int]
    dev: list[int]
    big: bytearray


@lru_cache(maxsize=4096)
def expected(steps: Steps) -> dict[str, Any]:
    """What `LOOK` prints after these cells."""
    state = _State([0] * BASE, [0] * DEV, bytearray(BIG))
    h = 1
    for cell in steps:
        h = (h * 6364136223846793005 + cell * 1442695040888963407 + 1) % 2**63
        state.base[h % BASE] = h % 1000003
        state.base[16 + (h >> 8) % 256] += cell
        state.base[(h >> 16) % 64 * 64 + 5] = cell
        state.dev[(h >> 4) % DEV] = h % 1000
        state.dev[128 + (h >> 12) % 128] += 1
        state.big[h % 7 :: 997] = bytes([cell % 251]) * len(range(h % 7, BIG, 997))
    base, dev = array("q", state.base), array("f", state.dev)
    return {
        "cells": list(steps),
        "n": len(steps),
        "book_n": len(steps),
        "text": f"after cell {steps[-1]}" if steps else "",
        "total": sum(steps),
        "thing": list(steps),
        "base": zlib.crc32(base.tobytes()),
        "view": zlib.crc32(base[16:272].tobytes()),
        "rows": zlib.crc32(base.tobytes()),
        "dev": zlib.crc32(dev.tobytes()),
        "dev_view": zlib.crc32(dev[128:256].tobytes()),
        "big": zlib.crc32(state.big),
        "aliases": [True] * len(IDENTITIES),
    }
