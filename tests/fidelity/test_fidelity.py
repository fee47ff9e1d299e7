"""A cell looks the same in a plain ipykernel and in the GPU process, message by message."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

import cases_errors
import cases_magics
import cases_processes
import cases_rich
import cases_shell
import cases_streams
import cases_widgets
from bench import Bench
from cases import Case, Cell
from kernels import AUTO, GPU, PLAIN, Mode
from normalise import Normaliser, opened_comms, readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernels import Kernel, Transcript


GROUPS = {
    "streams": cases_streams,
    "rich": cases_rich,
    "errors": cases_errors,
    "shell": cases_shell,
    "magics": cases_magics,
    "processes": cases_processes,
    "widgets": cases_widgets,
}

MODES = (GPU, AUTO)
EVERY = 24
"""One in so many cases of each group is run by `make test`, too."""
LONG = pytest.mark.long("cells beside a plain kernel: one case in twenty-four is enough to see that they are compared")
"""Of these each in one mode, the first group's in both: a kernel is opened for each group and mode."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("b")) as running:
        yield running


def parameters() -> list[object]:
    return [
        pytest.param(
            name,
            case,
            mode,
            id=f"{name}-{mode.name}-{case.name}",
            marks=() if number % EVERY == 0 and (not place or mode is MODES[place % len(MODES)]) else (LONG,),
        )
        for place, (name, group) in enumerate(GROUPS.items())
        for number, case in enumerate(group.CASES)
        for mode in MODES
        if mode.name not in case.unlike
    ]


def look(case: Case, kernel: Kernel) -> list[str]:
    """What the user sees of the case in this kernel."""
    hide = Normaliser(str(kernel.directory), case.hide, streams_race=case.streams_race)
    events: list[str] = []
    transcripts: list[Transcript] = []
    for step in case.steps:
        if isinstance(step, Cell):
            transcripts.append(kernel.run(step))
        else:
            transcripts.append(kernel.send(opened_comms(transcripts)[step.comm], step))
        events += readable(hide.events(transcripts[-1], kernel.mode.prefix))
    return events


def looked(case: Case, bench: Bench, mode: Mode, group: str) -> list[str]:
    """`look`, in the kernel for that group and mode; one that breaks is not used again."""
    try:
        return look(case, bench.kernel(mode, group, GROUPS[group].SETUP))
    except BaseException:
        bench.drop(mode.name)
        raise


@pytest.mark.parametrize(("group", "case", "mode"), parameters())
def test_a_cell_looks_as_in_a_plain_kernel(bench: Bench, group: str, case: Case, mode: Mode) -> None:
    # Once for all modes: a second run in the same kernel would find what the first one left.
    plain = bench.once(case.name, lambda: looked(case, bench, PLAIN, group))
    seen = looked(case, bench, mode, group)
    assert seen == plain, "\n".join(difflib.unified_diff(plain, seen, n=0))


def test_the_cells_of_a_mode_run_in_another_process_than_the_kernel(bench: Bench) -> None:
    for mode in (PLAIN, *MODES):
        kernel = bench.kernel(mode, "elsewhere", "import os")
        in_kernel = f"'{kernel.pid}'" in kernel.run(Cell("os.getpid()")).text()
        assert in_kernel == (mode is PLAIN)


def test_exit_ends_neither_the_kernel_nor_the_gpu_process(bench: Bench) -> None:
    kernel = bench.kernel(GPU, "exit", "import os\nkept = os.getpid()")
    transcript = kernel.run(Cell("exit()"))
    assert transcript.reply is not None
    assert (transcript.reply["status"], transcript.reply["payload"]) == ("ok", [])
    assert "%gpu restart" in transcript.text()
    assert "True" in kernel.run(Cell("kept == os.getpid()")).text()
    assert kernel.alive()


@pytest.mark.parametrize("code", ["print('a')", "1/0", "display(1)", "5", "input()"])
def test_the_comparison_sees_what_is_missing(bench: Bench, code: str) -> None:
    kernel = bench.kernel(PLAIN, "comparison", "pass")
    options = {"allow_stdin": False}
    told = [look(Case("", (Cell(text, options=options),)), kernel)[1:] for text in (code, "pass")]
    assert told[0] != told[1]


def test_no_two_cases_have_the_same_name() -> None:
    names = [case.name for group in GROUPS.values() for case in group.CASES]
    assert len(names) == len(set(names))


def test_there_are_enough_cases_and_every_exception_has_its_reason() -> None:
    cells = [step for group in GROUPS.values() for case in group.CASES for step in case.steps if isinstance(step, Cell)]
    assert len(cells) >= 120
    assert all(case.unlike.values() for group in GROUPS.values() for case in group.CASES if case.unlike)
