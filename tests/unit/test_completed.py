"""What a restore goes back behind is said in words that do not contradict each other."""

from __future__ import annotations

import pytest

from nls_jupyter.supervisor.completed import gone


@pytest.mark.parametrize(
    ("cells", "cell", "sentence"),
    [
        (["[5]"], "[5]", "It is back as of cell [5], without the last %%gpu in it."),
        (
            ["[5]", "[5]", "[6]"],
            "[5]",
            "It is back as of cell [5], without the last %%gpu in it: cell [6] ran after it and is not in it.",
        ),
        (["[6]", "[6]"], "[5]", "It is back as of cell [5]: cell [6] ran after it and is not in it."),
        (["[5]", "[5]"], None, "Nothing was saved: cell [5] ran and is lost."),
        (
            ["[5]"],
            "[5], save point 2",
            "It is back as of cell [5], save point 2: cell [5] ran after it and is not in it.",
        ),
        ([], "[5]", ""),
    ],
)
def test_several_gpu_cells_within_one_cell_are_told_apart(cells: list[str], cell: str | None, sentence: str) -> None:
    assert gone(cells, cell) == sentence
