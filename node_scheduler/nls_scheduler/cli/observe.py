"""`nls observe`: what happens on a node today, for `nls simulate`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell, why
from nls_scheduler.cli.types import told
from nls_scheduler.units.durations import parse_duration
from nls_scheduler.units.sizes import parse_bytes

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls observe --to week.jsonl --for 7d                        this user's Jupyter Servers, and the GPUs
  nls observe --to week.jsonl --server http://node:8888/      another one, with the token in JUPYTER_TOKEN
  nls observe --to week.jsonl --hub https://hub.example/      a JupyterHub, with a token in JUPYTERHUB_API_TOKEN
  nls simulate week.jsonl --node 8x80GiB --report week.html   what sharing would have brought
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "observe",
        help="record what happens on this node's GPUs today, without managing anything",
        description=(
            "Every few seconds asks NVML which process holds how much and Jupyter Servers which of their notebooks are "
            "busy, and records sessions and cells. Manages nothing, needs no daemon and no rights. May be stopped at "
            "any time and goes on with the same file."
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--to", type=Path, default=Path("observation.jsonl"), metavar="FILE", help="(%(default)s)")
    parser.add_argument(
        "--for", type=told(parse_duration), dest="for_s", metavar="TIME", help="end after so long, as 7d"
    )
    parser.add_argument(
        "--every", type=told(parse_duration), default=5.0, metavar="TIME", help="between two looks (5s)"
    )
    parser.add_argument(
        "--server", action="append", default=[], metavar="URL", help="a Jupyter Server (default: this user's own)"
    )
    parser.add_argument("--hub", action="append", default=[], metavar="URL", help="a JupyterHub, for all its servers")
    parser.add_argument("--names", action="store_true", help="record names as they are; without, they are hashed")
    parser.add_argument(
        "--most", type=told(_bytes), metavar="SIZE", help="of a larger file the older half is left out (64MiB)"
    )
    parser.set_defaults(run=_run)


def _bytes(text: str) -> int:
    if (size_bytes := parse_bytes(text)) < 2**16:
        raise ValueError(f"{text} is too little: 64KiB at least")
    return size_bytes


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.drivers.nvml import NvmlDriver
    from nls_scheduler.what_if.observing.observer import observe
    from nls_scheduler.what_if.observing.record import MOST_BYTES, Recorder
    from nls_scheduler.what_if.observing.servers import Server

    try:
        servers = [Server.parse(url) for url in options.server]
        servers += [Server.parse(url, is_hub=True) for url in options.hub]
        recorder = Recorder(options.to, names=options.names, most_bytes=options.most or MOST_BYTES)
    except (ValueError, OSError) as error:
        tell(why(error))
        return exit_codes.USAGE
    driver = NvmlDriver()
    if not driver.discover():
        tell(f"{driver.trouble()} Only what Jupyter Servers tell is recorded.")
    hashed = "" if options.names else "; names are hashed"
    tell(f"recording to {options.to}{hashed}; stop with Ctrl-C, go on with the same file")
    try:
        with recorder:
            asyncio.run(observe(recorder, driver, servers or None, options.every, options.for_s, tell))
    except OSError as error:
        tell(f"the observation ends, with what was recorded by then: {why(error)}")
        return exit_codes.CANNOT_WRITE
    finally:
        driver.close()
    return 0
