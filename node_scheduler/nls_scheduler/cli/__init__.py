"""The command `nls`. Each sub-command is a module with `add_parser`; what is heavy is imported when it runs.

Exit codes: 0 done, 1 its output cannot be written, 2 wrong usage or bad input, 3 no daemon or refused by it; `nls run`
has its own, see its help.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nls_scheduler import __version__
from nls_scheduler.cli import (
    demo,
    doctor,
    down,
    exit_codes,
    explain,
    gpu,
    help_topic,
    history,
    migrate,
    observe,
    replay,
    run,
    simulate,
    status,
    top,
    up,
    wait_for_gpus,
    webhook,
    workload,
)
from nls_scheduler.cli.output import tell
from nls_scheduler.units.arguments import ArgumentParser
from nls_scheduler.units.texts import printable
from nls_scheduler.wire.errors import DaemonUnreachable, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

# A new sub-command is one module more here.
SUBCOMMANDS = (
    up,
    down,
    status,
    top,
    run,
    workload,
    migrate,
    explain,
    gpu,
    history,
    replay,
    wait_for_gpus,
    webhook,
    doctor,
    demo,
    observe,
    simulate,
    help_topic,
)

_STANDARD_ERROR = 2
# Why results cannot be told, by the number of the system's error.
_UNWRITABLE = {errno.ENOSPC: "there is no room left for it", errno.EBADF: "there is no standard output"}
_EPILOG = """examples:
  nls up --simulate 2x16GiB          a daemon with two simulated GPUs
  nls down                           end the daemon; GPU processes go on without it
  nls status                         who has which GPU, who waits, and why
  nls top                            the same live, with keys (pip install 'nls-jupyter[top]')
  nls run -- python train.py         run a command on a GPU of its own, as soon as there is one
  nls suspend analysis.ipynb         take a notebook off its GPU until its next cell
  nls explain analysis.ipynb         why it is where it is, and what it waits for
  nls history                        what happened
  nls help reserved                  what a message means, and what helps
  nls doctor                         what stands in the way on this machine
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point. Returns the exit code."""
    _fill_in_closed_descriptors()
    if sys.stderr is None:  # closed by whoever started this
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name in letters that this terminal lacks is no reason to fail
        sys.stdout.reconfigure(errors="backslashreplace")
    options = _parser().parse_args(arguments, argparse.Namespace(socket=None, state_dir=None))
    try:
        code: int = options.run(options)
    except DaemonUnreachable as error:
        tell(str(error) + _more("no-daemon"))
        return exit_codes.NO_DAEMON
    except Problem as problem:
        from nls_scheduler.cli.topics import topic_of_refusal

        tell(str(problem) + _more(topic_of_refusal(problem.title)))
        return exit_codes.USAGE if problem.status in (400, 413, 422) else exit_codes.NO_DAEMON
    except BrokenPipeError:
        # The reader (`| head`) has gone; the interpreter must not complain about it at its end.
        sys.stdout = None
        return exit_codes.BROKEN_PIPE
    except OSError as error:
        if error.errno not in _UNWRITABLE or error.filename is not None:
            raise
        tell(f"the output cannot be written: {_UNWRITABLE[error.errno]}")
        sys.stdout = None
        return exit_codes.CANNOT_WRITE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    return code


def _fill_in_closed_descriptors() -> None:
    """Where standard input or output is closed its number goes to nothing else: what has it is read, or written to."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        continue
    os.close(descriptor)


def _more(topic: str | None) -> str:
    return "" if topic is None else f" (more: nls help {topic})"


class _Parser(ArgumentParser):
    """Each sub-command's as well."""

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def _help_instead(parser: argparse.ArgumentParser) -> int:
    """Whoever names no command may not know which there are."""
    parser.print_help(sys.stderr)
    return exit_codes.USAGE


def _path(text: str) -> Path:
    """Raises ArgumentTypeError where there is none, as of a variable that is not set: the folder here is not meant."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty: name one, or leave this option out")
    return Path(text)


def _parser() -> argparse.ArgumentParser:
    # Options that all have may stand before or after the sub-command; the later one must not undo the former.
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument(
        "--socket", type=_path, metavar="PATH", help="the daemon's socket (default: NLS_SOCKET, or found)"
    )
    common.add_argument(
        "--state-dir", type=_path, metavar="PATH", help="where a daemon keeps its files (default: beside the socket)"
    )
    parser = _Parser(
        prog="nls",
        description="Shares the GPUs of this machine between notebooks and commands.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--version", action="version", version=f"nls {__version__}")
    parser.set_defaults(run=lambda _: _help_instead(parser))
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for module in SUBCOMMANDS:
        module.add_parser(subparsers, common)
    return parser
