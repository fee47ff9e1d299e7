"""Whole notebooks give the same outputs in a plain ipykernel and in the GPU process, run by nbclient."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
from nbclient import NotebookClient

from bench import Bench
from kernels import AUTO, GPU, PLAIN, Mode
from normalise import Normaliser, readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOTEBOOKS = sorted((Path(__file__).parent / "notebooks").glob("*.ipynb"))

MODES = (GPU, AUTO)
QUICK = {"numpy_least_squares"}
"""What `make test` runs, too."""
LONG = pytest.mark.long("whole notebooks beside a plain kernel: one of ten is run here")
# What %time tells.
TIMES = ((r"(?m)(?<=times: ).*|(?<=time: ).*", "TIME"),)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("n")) as running:
        yield running


def outputs_of(bench: Bench, path: Path, mode: Mode) -> list[str]:
    """Every cell's outputs, as the document stores them."""
    directory = bench.directory_for(f"{path.stem}-{mode.name}")
    document = nbformat.read(path, as_version=4)
    code = [cell for cell in document.cells if cell.cell_type == "code"]
    for cell in code:
        cell.source = mode.prefix + cell.source
    for source in reversed(mode.prepare):
        document.cells.insert(0, nbformat.v4.new_code_cell(source))
    # nbclient now and then misses the reply of a plain kernel, too, and finds it when its patience ends.
    client = NotebookClient(
        document,
        kernel_name="python3",
        timeout=100,
        allow_errors=True,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute(env=bench.environment())
    hide = Normaliser(str(directory), TIMES)
    events = [event for cell in code for event in ({"output_type": "cell"}, *_merged(cell.outputs))]
    return readable([(hide.clean(event),) for event in events])


def _merged(outputs: Sequence[Any]) -> list[dict[str, Any]]:
    """Consecutive texts of one stream as one: where they are cut depends on timers."""
    merged: list[dict[str, Any]] = []
    for event in map(_event, outputs):
        if merged and event["output_type"] == "stream" and merged[-1].get("name") == event["name"]:
            merged[-1]["text"] += event["text"]
        else:
            merged.append(event)
    return merged


def _event(output: Any) -> dict[str, Any]:
    event = {key: value for key, value in output.items() if key != "execution_count"}
    if "traceback" in event:
        event["traceback"] = "\n".join(event["traceback"])
    return event


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=() if mode is MODES[0] else (LONG,), id=mode.name) for mode in MODES]
)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=() if path.stem in QUICK else (LONG,), id=path.stem) for path in NOTEBOOKS],
)
def test_a_notebook_gives_the_same_outputs(bench: Bench, path: Path, mode: Mode) -> None:
    plain = bench.once(path.stem, lambda: outputs_of(bench, path, PLAIN))
    seen = outputs_of(bench, path, mode)
    assert len(plain) > 8
    assert [event for event in plain[:-1] if "ename" in event] == []  # only a last cell may be there to fail
    assert seen == plain


def test_there_are_ten_notebooks() -> None:
    assert len(NOTEBOOKS) == 10
