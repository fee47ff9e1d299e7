"""What may follow `%gpu` and `%%gpu`, and what is said where something else does."""

from __future__ import annotations

import argparse
import functools
import shlex
from typing import Any, NoReturn

from nls_jupyter.between.errors import GpuUsageError
from nls_scheduler.core.model.priorities import parse_priority
from nls_scheduler.units.arguments import ArgumentParser, seconds, whole
from nls_scheduler.units.durations import parse_duration
from nls_scheduler.units.nearest import nearest
from nls_scheduler.units.sizes import parse_size
from nls_scheduler.units.texts import printable


class HelpShown(Exception):  # noqa: N818 - ends the parsing after --help
    """The help was printed; there is nothing else to do."""


class _Parser(ArgumentParser):
    """Says what is wrong in one sentence instead of ending the process. `options`: the long ones, for completion."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.options: list[str] = []
        super().__init__(*args, **options)
        self.color = False  # since Python 3.14: escapes of terminals, which stand in errors and pages as well

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        action = super().add_argument(*names, **options)
        self.options += [name for name in action.option_strings if name.startswith("--")]
        return action

    def error(self, message: str) -> NoReturn:
        told = f"{message[0].upper()}{printable(message[1:])}".rstrip(".")
        raise GpuUsageError(f"{told}. {' '.join(self.format_usage().split())}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        del status, message
        raise HelpShown


def _size(text: str) -> str:
    try:
        parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _priority(text: str) -> int:
    try:
        return parse_priority(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def duration(words: list[str]) -> float:
    """Of `%gpu keep`, in seconds. Raises GpuUsageError."""
    try:
        return parse_duration(" ".join(words))
    except ValueError as error:
        how = "%gpu keep takes a duration or off" if not words else str(error).rstrip(".")
        raise GpuUsageError(f"{how}.") from None


def _request_parser() -> _Parser:
    parser = _Parser("%gpu request", description="Ask for a GPU, or for something else than before.", add_help=True)
    parser.add_argument("request", metavar="SIZE", nargs="?", type=_size, help="guaranteed: 0.5 of a GPU, or 8GiB")
    parser.add_argument("--limit", metavar="SIZE", type=_size, help="most that it may use while nobody needs it")
    parser.add_argument(
        "--gpus", metavar="N", type=whole("number of GPUs"), help="number of GPUs, each with this request"
    )
    parser.add_argument("--pool", metavar="NAMES", dest="pools", help="pools of GPUs, the most wanted first: a100,v100")
    parser.add_argument("--priority", metavar="N", type=_priority, help="train, build, inference or a number")
    parser.add_argument("--queue", metavar="NAME", help="whose quota it counts in")
    parser.add_argument("--name", help="how others see this notebook")
    return parser


@functools.cache
def _cell_parser() -> _Parser:
    parser = _Parser("%%gpu", description="Run this cell in the notebook's GPU process.", add_help=True)
    parser.add_argument("-i", "--input", metavar="NAMES", action="append", help="variables to copy there before: a,b")
    parser.add_argument("-o", "--output", metavar="NAMES", action="append", help="variables to copy back afterwards")
    parser.add_argument("--no-wait", action="store_true", help="fail at once when no GPU is free")
    parser.add_argument("--retry", action="store_true", help="run it again when its GPU was taken back")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="wait for a GPU at most so many seconds")
    return parser


# What can follow each sub-command.
_PLAIN = (
    "status",
    "release",
    "restart",
    "suspend",
    "resume",
    "trim",
    "save",
    "vars",
    "forget",
    "recompute",
    "log",
    "doctor",
)
WORDS: dict[str, list[str]] = {
    **{name: [] for name in _PLAIN},
    "request": _request_parser().options,
    "keep": ["off"],
    "auto": ["on", "off"],
    "restore": ["earlier", "list", "drop"],
}
CELL_WORDS = _cell_parser().options


def of_request(words: list[str]) -> dict[str, Any]:
    """What `%gpu request` names, by field of a workload. Raises GpuUsageError, HelpShown."""
    return {key: value for key, value in vars(_request_parser().parse_args(words)).items() if value is not None}


def of_cell(words: list[str]) -> dict[str, Any]:
    """The options of a `%%gpu` line: input, output, no_wait, retry, timeout. Raises GpuUsageError, HelpShown."""
    return vars(_cell_parser().parse_args(words))


def split(line: str) -> list[str]:
    """The words of a line, as a shell has them; the rest of `recompute` is one, as written. Raises GpuUsageError."""
    match line.split(maxsplit=1):
        case ["recompute", _] as words:
            return words
    try:
        return shlex.split(line)
    except ValueError as error:
        raise GpuUsageError(f"the line cannot be read: {error}.") from error


def advice(name: str, commands: list[str]) -> str:
    """What somebody who wrote `%gpu name` may have meant."""
    if close := nearest(name.lower(), commands):
        return f"did you mean %gpu {close}?"
    try:
        parse_size(name)
    except ValueError:
        return f"there are {', '.join(commands)}."
    return f"did you mean %gpu request {name}?"


def no_more(name: str, words: list[str]) -> None:
    """Raises GpuUsageError where words follow that mean nothing."""
    if words:
        raise GpuUsageError(f"%gpu {name} takes nothing more, and got {' '.join(words)!r}.")
