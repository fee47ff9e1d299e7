"""A save after a cell leaves what the cell cannot have touched, in a GPU process as notebooks have it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from test_gpu_process import Notebook, directory, notebook, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nls_jupyter.saved_state import Manifest

__all__ = ["directory"]

# On a busy machine, what a save after a cell may cost is too little for any.
FOR_AS_LONG_AS_IT_TAKES = "import nls_jupyter.gpu_process.state_requests as own; own._BUDGET_S = 60.0; del own"
SETUP = "many = [{'n': n} for n in range(1500)]\nother = [[n] for n in range(1500)]\ndef f(): many.append(1)"
LEAVE_BOTH = (
    "x = 1",
    "x",
    "_",
    "class C: pass",
    "import json",
    "x = [n for n in range(9)]",
    "1 / 0",
    "y = x",
    "[1, [2]]",
    "y",
)
LEAVE_ONE = ("f()", "f", "many.append(2)", "g = f; g()", "len(many)", "sorted(many, key=str)", "h = [f]; h[0]()")
LEAVE_NONE = ("eval('1')", "%pwd", "!true", "globals()", "import gc as g; g.collect()", "e = eval", "e('1')")


async def left(nb: Notebook, cell: str) -> int:
    """How many of the two large names."""
    await nb.run(cell)
    manifest = await save(nb, within_budget=True)
    await save(nb, within_budget=False)
    return manifest.left


async def save(nb: Notebook, *, within_budget: bool) -> Manifest:
    descriptors, manifest = await nb.process.save(cell="1", within_budget=within_budget)
    for descriptor in descriptors:
        os.close(descriptor)
    return manifest


@pytest.mark.parametrize(("cells", "expected"), [(LEAVE_BOTH, 2), (LEAVE_ONE, 1), (LEAVE_NONE, 0)])
def test_large_names_that_a_cell_cannot_reach_are_left(directory: Path, cells: Sequence[str], expected: int) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run(FOR_AS_LONG_AS_IT_TAKES)
            await nb.run(SETUP)
            await save(nb, within_budget=False)
            found = {cell: await left(nb, cell) for cell in cells}
        assert found == dict.fromkeys(cells, expected)

    run(story())


def test_completions_touch_what_they_name_and_other_requests_anything(directory: Path) -> None:
    async def story() -> None:
        async with notebook(directory) as nb:
            await nb.run(FOR_AS_LONG_AS_IT_TAKES)
            await nb.run(SETUP)
            await save(nb, within_budget=False)
            await nb.process.request("complete_request", {"code": "x.", "cursor_pos": 2}, timeout_s=60.0)
            assert await left(nb, "x = 1") == 2
            await nb.process.request("complete_request", {"code": "many[0].", "cursor_pos": 8}, timeout_s=60.0)
            assert await left(nb, "x = 2") == 1
            await nb.process.request("nls_recipe_request", {"name": "x", "expression": "1"}, timeout_s=60.0)
            assert await left(nb, "x = 3") == 0

    run(story())
