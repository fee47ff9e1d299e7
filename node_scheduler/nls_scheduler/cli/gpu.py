"""`nls gpu return`: an administrator's word about a GPU."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from nls_scheduler.cli.asking import ask
from nls_scheduler.cli.output import say

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """examples:
  nls gpu return 1
  nls gpu return GPU-6f1c2a9e-0000-1111-2222-333344445555
"""


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser("gpu", help="act on a GPU of this machine", parents=[common])
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    back = actions.add_parser(
        "return",
        help="put an unhealthy GPU back into service",
        description="Tells the daemon that a GPU which it took out of service is well again. For administrators.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    back.add_argument("gpu", metavar="UUID|INDEX", help="as `nls status` shows it")
    back.add_argument("--json", action="store_true", help="answer for programs")
    back.set_defaults(run=_return)


def _return(options: argparse.Namespace) -> int:
    gpu = ask(options.socket, lambda client: client.return_gpu(options.gpu))
    if options.json:
        say(json.dumps(gpu, indent=2))
    elif gpu["healthy"]:
        say(f"GPU {gpu['index']} ({gpu['uuid']}) is in service.")
    else:
        say(f"GPU {gpu['index']} ({gpu['uuid']}) is out of service still: {gpu['unhealthy_reason']}.")
    return 0 if gpu["healthy"] else 1
