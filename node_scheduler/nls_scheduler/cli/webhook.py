"""`nls webhook`: adds to pods what they need, where a cluster asks it to."""

from __future__ import annotations

import argparse
import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell
from nls_scheduler.cli.wait_for_gpus import TIMEOUT_S, seconds

if TYPE_CHECKING:
    from nls_scheduler.cli.types import Subparsers

_EPILOG = """Pods are sent here by a MutatingWebhookConfiguration (docs/kubernetes_install.md). Of those with the label
nls-jupyter/inject a notebook gets the daemon's socket, and an owner an init container that waits for its GPU.
"""
log = logging.getLogger(__name__)


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "webhook",
        help="add to pods what they need, for a cluster's API server",
        description="Serves a mutating admission webhook for pods over TLS, until it is ended.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.add_argument("--image", required=True, help="in which nls is, for the init container")
    parser.add_argument("--address", default="[::]:9443", metavar="HOST:PORT", help="(default: %(default)s, IPv4 too)")
    parser.add_argument(
        "--certificate",
        type=Path,
        default=Path("/etc/nls/tls"),
        metavar="FOLDER",
        help="with tls.crt and tls.key (%(default)s)",
    )
    parser.add_argument(
        "--socket-directory", default="/run/nls", metavar="PATH", help="of the daemon on each node (%(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="hold a start no longer than (%(default)g)",
    )
    parser.add_argument(
        "--any-user",
        action="store_true",
        help="init containers run as whom the cluster chooses, as OpenShift does (else: 65532)",
    )
    parser.add_argument(
        "--no-all-gpus",
        action="store_true",
        help="notebooks see the node's GPUs by other means than a volume mount of /dev/null",
    )
    parser.add_argument("--runtime-class", metavar="NAME", help="for notebooks that name none")
    parser.add_argument(
        "--tolerate",
        action="append",
        default=[],
        metavar="KEY",
        help="a taint that notebooks tolerate; may be repeated",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from nls_scheduler.daemon.http.addresses import parse_address
    from nls_scheduler.kubernetes_driver import webhook
    from nls_scheduler.kubernetes_driver.certificate import Certificate
    from nls_scheduler.kubernetes_driver.injecting import UNPRIVILEGED, Injection

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    injection = Injection(
        image=options.image,
        socket_directory=options.socket_directory.rstrip("/"),
        timeout_s=options.timeout,
        user=None if options.any_user else UNPRIVILEGED,
        all_gpus=not options.no_all_gpus,
        runtime_class=options.runtime_class,
        tolerations=tuple(options.tolerate),
    )
    try:
        address = parse_address(options.address)
    except ValueError as error:
        tell(str(error))
        return exit_codes.USAGE
    try:
        asyncio.run(webhook.serve(injection, Certificate(options.certificate), address, _ready))
    except OSError as error:
        tell(f"The webhook cannot be served at {options.address}: {error}.")
        return exit_codes.NO_DAEMON
    return 0


def _ready(port: int) -> None:
    log.info("the webhook answers at port %d", port)
