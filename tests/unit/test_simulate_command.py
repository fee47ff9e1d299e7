"""`nls simulate` as it is called."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from daemon_process import NLS, nls_environment
from nls_scheduler.cli import main
from nls_scheduler.what_if.generator.notebooks import Recipe
from nls_scheduler.what_if.plays import Crew, Play, _result, play_one
from nls_scheduler.what_if.report.results import Results, percent
from nls_scheduler.what_if.report.sentences import conclusions
from nls_scheduler.what_if.scenario import NO_NODE, Node, Scenario
from nls_scheduler.what_if.search import search
from nls_scheduler.what_if.workload_file.rows import FIRST_LINE, Cell, Session
from nls_scheduler.what_if.workload_file.writing import write_rows
from waiting import has_ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from nls_scheduler.what_if.play.figures import Figures
    from nls_scheduler.what_if.workload_file.rows import Row

SMALL = ["simulate", "--generate", "3x6h", "--node", "2x80GiB"]


def command(*arguments: str, seed: str = "0") -> subprocess.CompletedProcess[str]:
    """In a process of its own, with a seed for the order of sets."""
    return subprocess.run(
        [*NLS, *arguments], env=nls_environment(PYTHONHASHSEED=seed), capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip


@pytest.mark.long("a process for each order of sets: the same within one process is here")
def test_the_same_seed_gives_the_same_bytes_whatever_the_order_of_sets(tmp_path: Path) -> None:
    pages, outputs = [], []
    few = ("--policy", "nls-on-demand,whole,replicas")
    for seed in ("1", "2"):
        page = tmp_path / f"{seed}.html"
        outputs.append(command(*SMALL, *few, "--json", "--search", "1", "--report", str(page), seed=seed).stdout)
        pages.append(page.read_bytes())
    assert outputs[0] == outputs[1]
    assert pages[0] == pages[1]


def test_the_same_seed_gives_the_same_page_and_it_needs_no_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages, outputs = [], []
    for number in (1, 2):
        page = tmp_path / f"{number}.html"
        few = ["--policy", "nls-on-demand,whole,replicas", "--search", "1", "--json", "--report", str(page)]
        assert main([*SMALL, *few]) == 0
        outputs.append(capsys.readouterr().out)
        pages.append(page.read_text())
    assert outputs[0] == outputs[1]
    assert pages[0] == pages[1]
    figures = json.loads(outputs[0])
    assert figures["whole"]
    assert set(figures["policies"]) == set(figures["gpus_needed"]) - {"oracle"}
    _is_a_page_of_its_own(pages[0])


def _is_a_page_of_its_own(page: str) -> None:
    """Whatever it shows stands in it: nothing is fetched, nothing runs."""
    assert not re.search(r"<script|<link|<img|src=|@import|url\(", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == 5
    for picture in pictures:
        ET.fromstring(picture)
    assert "What this does not model" in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--generate", "3x6h", "--node", "0x80GiB"], "A node of 0 GPUs cannot be simulated: choose 1 to 64."),
        (["--generate", "3x6h", "--node", "eight"], "'eight' is no node"),
        (["--generate", "3x6h", "--node", "N-1"], "'N-1' is no node: write GPUSxSIZE, for example 8x80GiB; N is"),
        (["--generate", "3x6h", "--node", "2x8"], "'8' is not a size in bytes"),
        (["--generate", "3x6h"], "On which node?"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--policy", "nls,magic"], "There is no policy 'magic': there are"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "context_s=soon"], "context_s cannot be 'soon'"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "gpu_prt=0.3"], "did you mean gpu_part?"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "stop_timout_s=3"], "did you mean stop_timeout_s?"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "context_s=nan"], "context_s cannot be 'nan'"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "quantum_s=0"], "quantum_s cannot be 0."),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "colour=red"], "colour"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "oversubscribe"], "'oversubscribe' is not NAME=VALUE"),
        (
            ["--generate", "3x6h", "--node", "2x80GiB", "--set", "default_request=0.25"],
            "default_request changes nothing in what is played: leave it out.",
        ),
        (["--generate", "3x6h", "--node", "2x1GiB"], "'notebook-0"),
        (["/nowhere.csv", "--node", "2x80GiB"], "nls: /nowhere.csv: No such file or directory."),
        (["/dev/zero", "--node", "2x80GiB"], "/dev/zero is no file"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "save_bytes_per_s=1e-300"], "save_bytes_per_s cannot be"),
        (["--generate", "3x6h", "--node", "2x80GiB", "--set", "context_s=1e308"], "context_s cannot be 1e+308."),
        (["--generate", f"3x{'9' * 400}d", "--node", "2x80GiB"], "is no recipe"),
        (["--generate", "3x6h", "--node", f"2x{'9' * 400}GiB"], "is not a usable size"),
        (["--from-journal", "/nowhere.db"], "There is no journal /nowhere.db."),
        (["--generate", "3x6h", "--limit", "0.3"], "The limit of the notebooks is below their request."),
        (["--generate", "3x6h", "--node", "2x80GiB", "--limit", "39GiB"], "The limit of 'notebook-0"),
    ],
)
def test_what_cannot_be_played_is_said_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert sentence in told.err
    assert told.err.replace("nls: reading: 0 %\n", "").count("\n") == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_nothing_is_told_behind_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert main(["simulate", "--generate", "3x6h", "--node", "2x1GiB"]) == 2
    assert terminal.getvalue().startswith("\r\x1b[Knls: reading: 0 %\r\x1b[Knls: 'notebook-0")


@pytest.mark.parametrize(
    ("option", "value"), [("--seed", "2"), ("--commands", "5"), ("--request", "0.3"), ("--limit", "0.8")]
)
@pytest.mark.parametrize("from_journal", [False, True])
def test_an_option_that_changes_nothing_of_a_workload_is_refused(
    option: str, value: str, from_journal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "saved.csv"
    assert main(["simulate", "--generate", "3x6h", "--save-workload", str(path)]) == 0
    capsys.readouterr()
    played = ["--from-journal", str(path)] if from_journal else [str(path)]
    assert main(["simulate", *played, "--node", "2x80GiB", "--policy", "whole", option, value]) == 2
    sentence = f"nls: {option} changes nothing in a workload that has its own: leave it out.\n"
    assert capsys.readouterr() == ("", sentence)


def test_what_a_number_is_without_its_option_may_be_written_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--commands", "0", "--more-users", "0"]) == 0
    written = capsys.readouterr().out
    assert main(SMALL) == 0
    assert capsys.readouterr().out == written


@pytest.mark.parametrize("option", ["--commands", "--requests-by"])
@pytest.mark.parametrize("amount", ["many", "-0.1", "-1", "nan", "1e999"])
def test_what_is_no_amount_is_said_to_be_none(option: str, amount: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["simulate", f"{option}={amount}"])
    assert caught.value.code == 2
    assert f"{amount!r} is not a number above zero" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--save-workload", "--report"])
def test_a_pipe_that_nobody_may_read_is_refused(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main([*SMALL, option, str(tmp_path / "pipe")]) == 2
    assert "is a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--save-workload", "--report"])
def test_what_is_played_is_never_overwritten(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.csv"
    assert main(["simulate", "--generate", "3x6h", "--save-workload", str(path)]) == 0
    before = path.read_bytes()
    assert main(["simulate", str(path), "--node", "2x80GiB", option, str(tmp_path / "." / "w.csv")]) == 2
    assert "would be overwritten" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize("option", ["--save-workload", "--report"])
def test_what_cannot_be_written_is_refused_before_anything_is_played(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere" / "w.csv")
    assert main([*SMALL, option, str(tmp_path / "link.csv")]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"nls: {tmp_path}/link.csv: No such file or directory.\n")


def test_what_was_there_is_as_it_was_and_nothing_new_is_left_when_nothing_is_played(tmp_path: Path) -> None:
    old, new = tmp_path / "old.html", tmp_path / "new.csv"
    old.write_text("old")
    wrong = ["--generate", "nonsense"]
    assert main(["simulate", *wrong, "--report", str(old), "--save-workload", str(new)]) == 2
    assert (old.read_text(), new.exists()) == ("old", False)


def test_a_workload_in_which_something_is_wrong_is_written_over_no_other(tmp_path: Path) -> None:
    old, wrong = tmp_path / "old.csv", tmp_path / "wrong.csv"
    write_rows(old, [Session("a", 0.0, 9.0, 0.5, 1.0)])
    wrong.write_text(f"{(before := old.read_text())}nonsense\n")
    assert main(["simulate", str(wrong), "--save-workload", str(old)]) == 2
    assert old.read_text() == before


def test_a_report_that_cannot_be_written_costs_no_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--policy", "whole", "--report", str(tmp_path)]) == 2
    assert "cannot be written" in capsys.readouterr().err  # before anything is played
    assert main([*SMALL, "--policy", "whole", "--report", "/dev/full"]) == 1
    told = capsys.readouterr()
    assert "POLICY" in told.out
    assert "The report could not be written" in told.err


def test_a_workload_whose_name_is_no_text_has_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / os.fsdecode(b"w\xff.csv"), tmp_path / "page.html"
    write_rows(path, [Session("a", 0.0, 9.0, 0.5, 1.0)])
    assert main(["simulate", str(path), "--node", "1x80GiB", "--policy", "whole", "--report", str(page)]) == 0
    assert "The workload w\\udcff.csv: 1 session" in page.read_text()
    assert "POLICY" in capsys.readouterr().out


def test_a_workload_is_saved_and_played_from_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "saved.csv"
    assert main(["simulate", "--generate", "3x6h", "--save-workload", str(path)]) == 0
    assert path.read_text().startswith(FIRST_LINE)
    capsys.readouterr()
    outputs = []
    for arguments in (SMALL[1:], [str(path), "--node", "2x80GiB"]):
        assert main(["simulate", *arguments, "--policy", "whole,replicas", "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out))
    assert outputs[0]["policies"] == outputs[1]["policies"]


def test_one_of_each_is_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert main(["simulate", "--generate", "1x1d", "--node", "1x80GiB", "--search", "2", "--report", str(path)]) == 0
    for text in (capsys.readouterr().out, path.read_text()):
        assert "1 generated notebook over 1 d" in text
        assert not re.search(r"\b1 (GPUs|notebooks|cells|days|times|rows)\b", text)


def test_nothing_is_said_of_cells_where_there_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, page = tmp_path / "commands.csv", tmp_path / "page.html"
    rows = ["row,name,begin_s,end_s", "command,a,0,7200", "command,b,60,7200", "command,c,120,7200"]
    path.write_text("\n".join([FIRST_LINE, *rows, ""]))
    asked = ["--node", "2x80GiB", "--policy", "nls,whole", "--search", "--report", str(page)]
    assert main(["simulate", str(path), *asked]) == 0
    told = capsys.readouterr().out
    assert "There are no cells in it" in told
    assert not re.search(r"of the cells|needs \d|100\.00 %|-0 %", told)
    assert "There are no cells in it" in page.read_text()
    assert "Cells that had their GPU within a second, on" not in page.read_text()


def test_a_seed_in_which_nobody_comes_is_left_out_of_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--policy", "whole", "--search", "2", "--json"]) == 0  # there are none in the second one
    assert len(json.loads(capsys.readouterr().out)["gpus_needed"]["whole"]["by_seed"]) == 1


def test_a_report_is_written_even_if_nobody_reads_the_figures_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with begun("--generate", "3x6h", "--node", "2x80GiB", "--json", "--report", str(path)) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode == 141, told
    assert "Traceback" not in told
    assert "</html>" in path.read_text()


def test_what_if_there_were_more_users_who_asked_for_less() -> None:
    before = Scenario(Recipe(3, 6 * 3600.0), Node(2, 80 * 2**30))
    after = replace(before, requests_by=0.5, more_users=2)
    assert after.extent().most_at_once == before.extent().most_at_once + 2
    assert {row.request for row in after.rows() if isinstance(row, Session)} == {0.25}
    assert after.extent().cells > before.extent().cells


def test_a_limit_is_as_large_as_a_request_that_has_become_larger() -> None:
    session = Session("a", 0.0, 9.0, 0.25, 24 * 2**30)
    scenario = Scenario((session,), Node(1, 80 * 2**30), requests_by=1.1)
    assert [row.limit for row in scenario.rows() if isinstance(row, Session)] == [24 * 2**30]
    assert list(replace(scenario, requests_by=2.0).rows()) == [replace(session, request=0.5, limit=0.5)]


def test_what_a_limit_comes_to_is_not_asked_where_there_is_no_node(tmp_path: Path) -> None:
    path = tmp_path / "saved.csv"
    assert main(["simulate", "--generate", "3x1d", "--limit", "48GiB", "--save-workload", str(path)]) == 0
    assert f",0.5,{48 * 2**30}B," in path.read_text()
    assert main(["simulate", str(path), "--requests-by", "1.1", "--save-workload", str(tmp_path / "more.csv")]) == 0
    assert f",0.55,{48 * 2**30}B," in (tmp_path / "more.csv").read_text()


def test_a_node_is_named_after_the_one_that_runs() -> None:
    running = Node(4, 80 * 2**30)
    assert Node.parse("N", running) == running
    assert Node.parse("N-1", running) == Node(3, 80 * 2**30)
    assert Node.parse("N+2x40GiB", running) == Node(6, 40 * 2**30)
    with pytest.raises(ValueError, match="A node of 0 GPUs"):
        Node.parse("N-4", running)


def test_what_is_stopped_keeps_what_was_played_and_begins_nothing_more() -> None:
    scenario = Scenario(Recipe(6, 86400.0), Node(2, 80 * 2**30))
    with Crew(1) as crew:
        crew.progress = lambda part: os.kill(os.getpid(), signal.SIGINT) if not crew.stopped and part > 0.1 else None
        played = list(crew.all_of([Play(scenario, name) for name in ("whole", "fractions", "replicas")]))
    assert [play.policy for play, _ in played] == ["whole"]
    figures = played[0][1]
    assert not figures.whole
    assert 0 < figures.ended_at < 86400.0


def begun(*arguments: str) -> subprocess.Popen[str]:
    """In a group of its own, as a terminal's command is."""
    return subprocess.Popen(
        [*NLS, "simulate", *arguments], env=nls_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def until(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if line.startswith(beginning):
            return
    raise AssertionError(told)


def interrupted(process: subprocess.Popen[str], moment: Callable[[subprocess.Popen[str]], object]) -> str:
    """Ctrl-C in a terminal, which all processes of the group get, at that moment."""
    with process:
        try:
            moment(process)
            os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, told
    return told


@pytest.mark.long("each begins processes of its own: the moment in which they begin is here")
@pytest.mark.parametrize("beginning", ["nls: reading", "nls: finding the best possible", "nls: playing"])
def test_ctrl_c_at_any_moment_is_no_traceback(beginning: str) -> None:
    process = begun("--generate", "20x100d", "--node", "8x80GiB", "--policy", "nls,whole")
    assert "Traceback" not in interrupted(process, lambda process: until(process, beginning))


def test_ctrl_c_while_processes_begin_is_no_traceback() -> None:
    process = begun("--generate", "10x10d", "--node", "8x80GiB", "--policy", "nls,whole")
    told = interrupted(process, lambda process: wait_until(lambda: len(children_of(process.pid)) >= 2, 20))
    assert "Traceback" not in told
    assert "100 %" not in told


@pytest.mark.long("it begins processes and kills the one that began them")
def test_nobody_plays_on_for_who_was_killed() -> None:
    with begun("--generate", "20x60d", "--node", "8x80GiB", "--policy", "nls,nls-on-demand") as process:
        try:
            until(process, "nls: playing")
            wait_until(lambda: len(children_of(process.pid)) >= 2)
            children = children_of(process.pid)
        finally:
            process.kill()
    wait_until(lambda: all(has_ended(pid) for pid in children))


def test_a_process_that_was_ended_from_outside_is_a_sentence() -> None:
    future: Future[Figures] = Future()
    future.set_exception(BrokenProcessPool())
    with pytest.raises(ChildProcessError, match="A process that played was ended from outside"):
        _result(future)


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def test_what_is_stopped_is_never_told_to_be_done_and_is_compared_with_nothing() -> None:
    scenario = Scenario(Recipe(6, 86400.0), Node(2, 80 * 2**30))
    told: list[float] = []
    with Crew(1) as crew:
        crew.progress = lambda part: (told.append(part), os.kill(os.getpid(), signal.SIGINT) if len(told) == 2 else 0)
        played = dict(crew.all_of([Play(scenario, name) for name in ("nls",)]))
    assert max(told) < 1
    figures = {play.policy: one for play, one in played.items()}
    results = Results("", scenario.node, scenario.extent(), scenario.costs, (), [], figures, whole=False)
    whole = play_one(Play(scenario, "whole"))
    for figures in (results.figures, {**results.figures, "whole": whole}):
        results.figures = figures
        sentences = " ".join(conclusions(results))
        assert "Stopped before the end, and compared with nothing: “nls-jupyter” after " in sentences
        assert "within a second" not in sentences
        assert f"nls (after {100 * results.figures['nls'].played_part:.0f} %)" in results.table()[1][0]


def test_cells_that_never_ran_because_others_made_their_notebook_slow_are_in_the_page_s_first_sentences() -> None:
    rows: list[Row] = [Session(name, 0.0, 1000.0, 0.25, 0.25) for name in "abcd"]
    for number in range(10):
        begin_s = 10.0 + 98 * number
        rows += [Cell(name, begin_s, begin_s + 97, 2**30, 2**20) for name in "abcd"]
    scenario = Scenario(tuple(rows), Node(1, 16 * 2**30))
    extent = scenario.extent()
    with Crew(1) as crew:
        figures = {play.policy: one for play, one in crew.all_of([Play(scenario, "nls"), Play(scenario, "whole")])}
        needed = {one.policy: one for one in search(scenario, ("nls", "whole"), {0: extent}, crew)}
    results = Results("", scenario.node, extent, scenario.costs, (), [], figures, needed=needed)
    sentences = " ".join(conclusions(results))
    assert "30.00 % of the cells had their GPU within a second under “nls-jupyter”" in sentences
    assert "28 cells were late, the longest wait was 12 min; 28 never ran, as their session ended first" in sentences
    assert "their notebook's own cells before took longer" in sentences
    assert "% fewer" not in sentences
    assert [figures.summary()["cells"] for figures in results.figures.values()] == [40, 40]


def test_hundred_percent_are_all() -> None:
    assert [percent(part) for part in (1.0, 0.99999, 0.9956, 2 / 3, 0.0)] == [
        "100.00 %", "99.99 %", "99.56 %", "66.66 %", "0.00 %"
    ]  # fmt: skip


def test_a_thousand_more_users_are_played_in_order() -> None:
    before = Scenario(Recipe(3, 6 * 3600.0), Node(2, 80 * 2**30))
    names = {row.name for row in before.rows()}
    assert len({row.name for row in replace(before, more_users=1000).rows()}) == len(names) + 1000


def test_more_users_are_added_to_a_workload_that_was_saved_with_more(tmp_path: Path) -> None:
    saved, again = tmp_path / "saved.csv", tmp_path / "again.csv"
    assert main(["simulate", "--generate", "3x1d", "--more-users", "2", "--save-workload", str(saved)]) == 0
    assert main(["simulate", str(saved), "--more-users", "2", "--save-workload", str(again)]) == 0
    names = {row.name for row in Scenario(again, NO_NODE).rows()}
    assert sorted(name.split()[-1] for name in names if " again " in name) == ["1", "2", "3", "4"]


@pytest.mark.long("processes that play in earnest are interrupted: one is in this process here")
def test_ctrl_c_leaves_what_has_been_played(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ["simulate", "--generate", "20x20d", "--node", "8x80GiB", "--policy", "nls", "--report", str(page)]
    with subprocess.Popen([*NLS, *arguments], env=nls_environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "reading" in process.stderr.readline()
            assert "playing: " in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, told
    assert "stopped before its end" in told
    assert "Stopped before its end" in page.read_text()
