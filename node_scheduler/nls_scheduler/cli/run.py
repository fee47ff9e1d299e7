"""`nls run`: a command on a GPU of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell
from nls_scheduler.cli.types import told
from nls_scheduler.core.model.priorities import parse_priority
from nls_scheduler.processes import guardian
from nls_scheduler.units.arguments import whole
from nls_scheduler.units.durations import parse_duration
from nls_scheduler.wire.protocol import as_name

if TYPE_CHECKING:
    from nls_scheduler.cli.runner import Ending
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls run -- python train.py                   a whole GPU, guaranteed
  nls run --gpus 2 -- torchrun --nproc-per-node 2 train.py
  nls run --gpus 2..8 --on-evict requeue -- ./elastic   as many as there are; starts again when that changes
  nls run --gang g1 --gang-size 2 -- ./worker  starts when the second one of g1 has come, and has room as well
  nls run --request 8GiB -- ./infer            8 GiB of a GPU, guaranteed
  nls run --request 0.25 --limit 1.0 -- ./sweep    a quarter guaranteed, the rest while nobody needs it
  nls run --on-evict requeue -- ./resumable    may be stopped for others and starts again by itself

  nls run --priority train --queue research --max-wait 10m -- ./sweep    gives up after ten minutes without a GPU

the command's environment: CUDA_VISIBLE_DEVICES with its GPUs' UUIDs, NLS_GPU_COUNT with their number, and in a gang
  NLS_GANG, NLS_GANG_SIZE and NLS_GANG_RANK (0, 1 ... in order of arrival). A gang of which a command fails is stopped
  and starts again whole, a few times.

When the command ends, what it has left in the background is ended too: nothing holds a GPU that goes to somebody else.

exit codes: the command's own, or 128+n when signal n ended it (nls run then ends by the same signal);
  2 bad input, 3 no daemon or refused, 75 stopped by the scheduler (the GPU was needed, the limit was passed, or the
  workload was released; the last line on stderr says which), 124 no GPU within --max-wait,
  125 it could not be started, 126 it cannot be executed, 127 not found, 130 interrupted while waiting
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "run",
        help="run a command on a GPU as soon as there is one",
        description="Waits for a GPU, runs COMMAND on it, and gives it back. Only that GPU is visible to COMMAND.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="nls run [options] -- COMMAND [ARGUMENT ...]",
        parents=[common],
    )
    parser.add_argument(
        "--gpus",
        type=_gpus,
        default=(1, None),
        metavar="N|MIN..MAX",
        help="how many GPUs (default: 1); MIN..MAX: MIN guaranteed, and up to MAX while nobody else needs them",
    )
    parser.add_argument(
        "--gang", metavar="ID", help="start together with the other commands of this gang, or not at all"
    )
    parser.add_argument(
        "--gang-size", type=whole("number of commands"), metavar="N", help="how many commands the gang has"
    )
    parser.add_argument(
        "--request",
        metavar="SIZE",
        help="guaranteed on each: 0.5 or 8GiB (default: a whole GPU, or the limit if that is less)",
    )
    parser.add_argument("--limit", metavar="SIZE", help="hard cap on each (default: the request)")
    parser.add_argument("--pool", metavar="NAMES", help="pools of GPUs, the most wanted first: a100,v100")
    parser.add_argument(
        "--priority",
        type=_priority,
        default=0,
        metavar="N",
        help="train (50), build (100), inference (125) or a number: higher goes first, from 100 on it is not "
        "preemptible (default: 0)",
    )
    parser.add_argument("--queue", metavar="NAME", help="whose quota it counts in (default: NLS_QUEUE, or your own)")
    parser.add_argument(
        "--max-wait",
        type=told(parse_duration),
        metavar="TIME",
        help="give up after so long without a GPU: 90s, 10m, 2h; also when it was stopped and waits again",
    )
    parser.add_argument("--name", help="shown to people (default: the command's name)")
    parser.add_argument(
        "--on-evict",
        choices=["requeue"],
        help="requeue: may be stopped for others; it queues, and starts again where there is what it used",
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what to run, after --")
    parser.set_defaults(run=_run)


def _priority(text: str) -> int:
    try:
        return parse_priority(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from None


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.cli.runner import Runner

    if not options.command[0]:
        tell("the command is empty: name one after --")
        return exit_codes.USAGE
    fewest, most = options.gpus
    fields = {"kind": "command", "gpus": fewest, "priority": options.priority}
    fields |= {} if most is None else {"gpus_max": most}
    fields |= {key: given for key in ("gang", "gang_size") if (given := getattr(options, key)) is not None}
    fields |= {"name": options.name or _name_of(options.command[0]), "requeue": bool(options.on_evict)}
    fields |= {} if options.pool is None else {"pools": options.pool}
    queue = options.queue or os.environ.get("NLS_QUEUE")
    fields |= {"queue": queue} if queue else {}
    fields |= {size: getattr(options, size) for size in ("request", "limit") if getattr(options, size) is not None}
    runner = Runner(options.command, fields, options.socket, tell, options.max_wait)
    # Blocked before any thread starts, so that each signal waits for the runner, which knows who sent it.
    mask = {signal.Signals(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, runner.signals)}
    ending = asyncio.run(runner.run(mask))
    if ending.signal is not None:
        _die_from(ending.signal)
    if ending.message:
        tell(ending.message)
    return _exit_code(ending)


def _name_of(program: str) -> str:
    """What the workload is called; a folder has a name, too, and is refused where it is to be executed."""
    last = os.path.basename(program.rstrip("/"))  # noqa: PTH119 - text, not a path
    return as_name(last) or as_name(program) or "command"


def _gpus(text: str) -> tuple[int, int | None]:
    """`2` or `2..8`. Raises ArgumentTypeError with one sentence."""
    fewest, dots, most = text.partition("..")
    try:
        counts = int(fewest), int(most) if dots else None
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of GPUs: write 2, or 2..8 for 2 to 8.") from None
    if counts[0] < 1 or (counts[1] is not None and counts[1] < counts[0]):
        raise argparse.ArgumentTypeError(f"{text!r}: at least 1 GPU, and MIN..MAX with MIN at most MAX.")
    return counts


def _exit_code(ending: Ending) -> int:
    return exit_codes.START_FAILED if ending.code is None else ending.code


def _die_from(number: int) -> None:
    """End by the signal that ended the command, so that shells and `make` see the same as without `nls run`."""
    guardian.set_process_control(guardian.PR_SET_DUMPABLE, 0)  # one core dump, the command's, is enough
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.raise_signal(number)
