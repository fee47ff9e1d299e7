"""`nls simulate`: what sharing would bring, in virtual time."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import say, table, tell, why, write
from nls_scheduler.cli.types import told
from nls_scheduler.units.arguments import whole
from nls_scheduler.units.counts import counted
from nls_scheduler.units.sizes import parse_size

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

_CLEAR: Final = "\r\x1b[K"
_EPILOG = """examples:
  nls simulate --generate 18x2d --node 8x80GiB                a generated workload: 18 notebooks, two days
  nls simulate week.jsonl --node 8x80GiB --report week.html   what `nls observe` has recorded, as a page
  nls simulate week.jsonl --node 4x80GiB --policy nls,whole   half of the GPUs, two policies
  nls simulate week.jsonl --node 8x80GiB --search --json      how many GPUs each policy needs
  nls simulate --from-journal journal.db --node N-1           this daemon's own days, with one GPU less
  nls simulate --from-journal journal.db --node N --requests-by 0.5 --more-users 2
  nls simulate --generate 40x7d --seed 3 --save-workload week.csv
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "simulate",
        help="see what sharing would bring, in virtual time",
        description=(
            "Plays a workload of notebooks under this daemon's own decisions and under other policies, in virtual "
            "time: who waits, what is lost, and how many GPUs each policy needs. Needs no daemon and no GPU. Ctrl-C "
            "ends it with what has been played by then."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    _add_workload(parser)
    parser.add_argument("--node", metavar="GPUSxSIZE", help="for example 8x80GiB; N, N-1, N+1 for a journal's node")
    parser.add_argument("--policy", metavar="NAME,...", help="only these policies (default: all)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="assignments",
        help="a setting of the daemon, or a cost of moves as the report names them",
    )
    parser.add_argument(
        "--search",
        type=whole("number of seeds", most=1000),
        nargs="?",
        const=3,
        metavar="SEEDS",
        help="also find how many GPUs each policy needs, over so many generated workloads (3)",
    )
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page with pictures")
    parser.add_argument("--json", action="store_true", help="all figures as one JSON object")
    parser.set_defaults(run=_run)


def _add_workload(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "workload",
        nargs="?",
        type=Path,
        metavar="WORKLOAD",
        help="a workload file, .csv or .parquet, or what nls observe wrote",
    )
    which.add_argument("--generate", metavar="NOTEBOOKSxTIME", help="make one, as in 18x2d, from published percentiles")
    which.add_argument("--from-journal", type=Path, metavar="JOURNAL", help="what a daemon's journal.db has seen")
    parser.add_argument(
        "--seed", type=whole("seed", 0), default=1, help="of --generate: another one makes another workload (1)"
    )
    parser.add_argument(
        "--request", type=told(parse_size), default=0.5, help="of generated and observed notebooks (0.5)"
    )
    parser.add_argument("--limit", type=told(parse_size), default=1.0, help="their limit (1.0)")
    parser.add_argument(
        "--commands",
        type=_amount_or_none,
        default=0.0,
        metavar="PER_DAY",
        help="of --generate: commands of a whole GPU (0)",
    )
    parser.add_argument(
        "--requests-by",
        type=_amount,
        default=1.0,
        metavar="FACTOR",
        help="what if requests were so many times as large; a limit below rises with them",
    )
    parser.add_argument(
        "--more-users",
        type=whole("number of users", 0, most=1000),
        default=0,
        metavar="COUNT",
        help="what if there were so many more like the first",
    )
    parser.add_argument("--save-workload", type=Path, metavar="FILE", help="write the workload, .csv or .parquet")


def _amount(text: str) -> float:
    with suppress(ValueError):
        if 0 < (value := float(text)) <= 1e6:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above zero and up to a million")


def _amount_or_none(text: str) -> float:
    with suppress(ValueError):
        if float(text) == 0:
            return 0.0
    return _amount(text)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.what_if.asking import Asked, heard, results_of, scenario_of
    from nls_scheduler.what_if.report.page import page
    from nls_scheduler.what_if.workload_file.writing import write_rows

    asked = Asked(
        workload=options.workload,
        generate=options.generate,
        journal=options.from_journal,
        seed=options.seed,
        request=options.request,
        limit=options.limit,
        commands_per_day=options.commands,
        node=options.node,
        policies=options.policy,
        assignments=tuple(options.assignments),
        requests_by=options.requests_by,
        more_users=options.more_users,
        seeds=options.search or 0,
    )
    progress = _Progress()
    try:
        _check_outputs(options)
        scenario = scenario_of(asked, progress)
        if options.save_workload is not None:
            for _ in scenario.rows(told=heard(progress, "reading")):
                pass  # what is wrong with it is said before anything is written over
            rows = write_rows(options.save_workload, scenario.rows(told=heard(progress, "writing")))
            progress.clear()
            tell(f"{counted(rows, 'row')} in {options.save_workload}")
        if options.node is None and options.from_journal is None:
            if options.save_workload is None:
                tell("On which node? Say for example --node 8x80GiB.")
            return exit_codes.USAGE if options.save_workload is None else 0
        results = results_of(asked, scenario, progress)
    except (ValueError, OSError) as error:
        progress.clear()
        tell(why(error))
        return exit_codes.USAGE
    progress.clear()
    # Whoever reads what is printed may go away in the middle of it: the report does not depend on that.
    is_reported = options.report is None or _written(options.report, page(results))
    if options.json:
        say(json.dumps(results.as_json(), indent=2))
    else:
        _show(results)
    if not is_reported:
        return exit_codes.CANNOT_WRITE
    return 0 if results.whole else exit_codes.INTERRUPTED


def _written(path: Path, text: str) -> bool:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")  # a file may be called what is no text
    except OSError as error:
        tell(f"The report could not be written: {why(error)}")
        return False
    tell(f"the report is {path}")
    return True


def _check_outputs(options: argparse.Namespace) -> None:
    """Raises ValueError or OSError where what is played would be overwritten, or what is asked for not be written."""
    played = [path for path in (options.workload, options.from_journal) if path is not None and path.exists()]
    written = [path for path in (options.save_workload, options.report) if path is not None]
    for path in written:
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise ValueError(f"{path} cannot be written: it is a folder, or its folder is not there.")
        if path.is_fifo() and path.resolve().exists():  # a pipe of the shell's has no name
            raise ValueError(f"{path} is a pipe, which may wait for a reader for ever: choose a file.")
        if path.exists() and any(path.samefile(one) for one in played):
            raise ValueError(f"{path} is what is played, and would be overwritten: choose another file.")
    if len(written) == 2 and written[0].absolute() == written[1].absolute():
        raise ValueError(f"{written[0]} cannot be both the workload and the report.")
    for path in written:
        is_new = not path.exists()
        path.open("ab").close()
        if is_new:
            path.unlink()


def _show(results: object) -> None:
    from nls_scheduler.what_if.report.results import Results
    from nls_scheduler.what_if.report.sentences import conclusions

    assert isinstance(results, Results)  # noqa: S101 - imported late, as everything heavy is
    say(f"{results.what}, on {results.node}\n")
    if results.portrait:
        rows = [["", "HERE", "PUBLISHED", ""]]
        rows += [[line.what, f"{line.own:.1f}", line.published, line.unit] for line in results.portrait]
        say(table(rows) + "\n")
    heading, *rows = results.table()
    say(table([[name.upper() for name in heading], *rows]) + "\n")
    for sentence in conclusions(results):
        say(sentence)
    if not results.whole:
        tell("stopped before its end: these are the figures of what had been played")


class _Progress:
    """On stderr: a live line on a terminal, else a line each time that another tenth is done."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._is_there = False
        self._told = ("", 0)

    def __call__(self, doing: str, part: float, left_s: float | None) -> None:
        left = (
            ""
            if left_s is None or part >= 1
            else f", about {left_s / 60:.1f} min left"
            if left_s > 90
            else f", about {left_s:.0f} s left"
        )
        text = f"{doing}: {100 * part:.0f} %{left}"
        if self._live:
            self._is_there = part < 1
            write(sys.stderr, f"{_CLEAR}nls: {text}" + ("" if self._is_there else "\n"))
        elif (doing, int(10 * part)) != self._told:
            self._told = doing, int(10 * part)
            tell(text)

    def clear(self) -> None:
        """Something else is told in the place of the live line."""
        if self._is_there:
            write(sys.stderr, _CLEAR)
            self._is_there = False
