"""`nls top`."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls top
  ssh -t gpu-server nls top
  NO_COLOR=1 nls top
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "top",
        help="the node live in this terminal: GPUs, workloads, who waits and why, what happened",
        description="Shows the node live: a bar for each GPU's memory, the workloads, who waits and why, and what "
        "happened. Keys suspend, resume, keep and explain the chosen workload; ? lists them. It goes on through a "
        "restart of the daemon. Needs the package rich: pip install 'nls-jupyter[top]'.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("rich") is None:
        tell(
            "`nls top` needs the package rich: pip install 'nls-jupyter[top]'; `nls status --watch` needs nothing more."
        )
        return exit_codes.USAGE
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout)):
        tell("`nls top` needs a terminal (ssh gives one with -t); `nls status --watch` writes into pipes and files.")
        return exit_codes.USAGE
    return asyncio.run(_shown(options))


async def _shown(options: argparse.Namespace) -> int:
    from nls_scheduler.cli.live.app import Top
    from nls_scheduler.cli.live.terminal import Terminal

    return await Top(options.socket, Terminal()).run()
