"""Everybody placed anew: what fits, who may go where, and who stays where it is best."""

from __future__ import annotations

from mutants import mutants_of

MUTANTS = mutants_of(
    "core/planning/making_room/packing.py",
    (
        "where somebody else is too much, others go",
        "Below zero nothing helps, as somebody has to go who is none of them.",
        "if min(free.values(), default=0) < 0 or sum",
        "if sum",
    ),
    (
        "everybody may have any Gpu",
        "Nobody is placed on a Gpu that it may not have.",
        "if uuid in self.sizes[n][1] and self.sizes[n][0] <= gap]",
        "if self.sizes[n][0] <= gap]",
    ),
    (
        "a Gpu takes as many as there are",
        "Where the number on a Gpu is bounded, no more are placed there.",
        "place = bisect_left(below, -gap, begin) if slots > 0 else len(sizes)",
        "place = bisect_left(below, -gap, begin)",
    ),
    (
        "a Gpu that takes nobody takes the first",
        "Where the number on a Gpu is bounded, no more are placed there.",
        "if self.free[uuid] < size or self.slots.get(uuid, 1) <= 0 or",
        "if self.free[uuid] < size or",
    ),
    (
        "Gpus with the same room are alike whoever may have them",
        "What fits is found.",
        "(room, self.slots.get(u), *(u in gpus for gpus in sets))",
        "(room, self.slots.get(u))",
    ),
    (
        "the fullest ways are the only ones",
        "What fits is found.",
        "        packing.thorough = True\n",
        "",
    ),
    (
        "sizes are alike whoever may have which Gpu",
        "What fits is found.",
        "return (-size, sorted(gpus)) if self.thorough else (-size,)",
        "return (-size,)",
    ),
    (
        "of several alike none is skipped",
        "A search that leads nowhere ends early.",
        "place = others[place]",
        "place += 1",
    ),
    (
        "who is on a Gpu moves to one that is alike",
        "Of ways that are alike the one where most stay where they are is taken.",
        "key=lambda pair: (-at_best[pair], pair[0] != pair[1], pair)",
        "key=lambda pair: (pair[0] != pair[1], pair)",
    ),
    (
        "a search has no end",
        "A packing is looked for within a bound.",
        "            self.budget -= 1\n",
        "            pass\n",
    ),
)
