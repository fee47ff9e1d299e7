from __future__ import annotations

import pytest

from nls_jupyter.notebook.auto_cells import asks_in_kernel, is_gpu_cell, stays_in_kernel, without_local


@pytest.mark.parametrize(
    "code",
    [
        "%%local",
        "\n  %%local\nx = 1",
        "%gpu",
        "%gpu status",
        "# first\n%gpu request 0.5  # a half\n\n%gpu",
        "%gpu?",
        "%config GpuMagics.save_within = 10",
        "?%gpu",
        "",
        " \n\t\n",
        "# nothing but a comment",
        "%%gpu?",
    ],
)
def test_these_cells_need_no_gpu(code: str) -> None:
    assert stays_in_kernel(code)


@pytest.mark.parametrize(
    "code",
    [
        "1 + 1",
        "%config GpuMagicsToo.x",
        "%config InlineBackend",
        "%gpu\n1",
        "x = %gpu",
        "%%gpu\n1",
        "\n%%gpu \n1",
        "%gpus",
        "%%gpus -i a\n1",
        "%%locally\n1",
        "x\n%%local",
        "%time 1",
        "'''\n%gpu\n'''",
    ],
)
def test_every_other_cell_goes_to_the_gpu_process(code: str) -> None:
    assert not stays_in_kernel(code)


@pytest.mark.parametrize("code", ["%%gpu -i a\n1", "\n  %%gpu --no-wait\n1", "%%gpu --unknown\n1"])
def test_the_options_of_a_gpu_cell_are_read_by_the_kernel(code: str) -> None:
    assert stays_in_kernel(code)


def test_only_the_first_line_makes_a_gpu_cell() -> None:
    assert is_gpu_cell("\n%%gpu --no-wait\nx")
    assert not is_gpu_cell("x\n%%gpu")
    assert not is_gpu_cell("%%gpus")


def test_a_question_is_for_the_kernel_on_its_own_lines_only() -> None:
    code = "x = 1\n%gpu su\nx.re"
    assert asks_in_kernel(code, code.index("su") + 2)
    assert not asks_in_kernel(code, len(code))
    assert not asks_in_kernel(code, 3)
    gpu_cell = "%%gpu --no\nx.re"
    assert asks_in_kernel(gpu_cell, len("%%gpu --no"))
    assert not asks_in_kernel(gpu_cell, len(gpu_cell))
    assert asks_in_kernel("%%local\nx.re", len("%%local\nx.re"))


def test_local_is_taken_off_the_top_and_nowhere_else() -> None:
    assert without_local(["%%local\n", "x\n"]) == ["x\n"]
    assert without_local(["x\n", "%%local\n"]) == ["x\n", "%%local\n"]
    assert without_local(["%%local x\n", "y\n"]) == ["%%local x\n", "y\n"]
    assert without_local([]) == []
