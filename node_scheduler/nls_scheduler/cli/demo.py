"""`nls demo`."""

from __future__ import annotations

import asyncio
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nls_scheduler.cli import exit_codes
from nls_scheduler.cli.output import tell
from nls_scheduler.units.arguments import whole

if TYPE_CHECKING:
    import argparse

    from nls_scheduler.cli.types import Subparsers


def add_parser(subparsers: Subparsers, common: argparse.ArgumentParser) -> None:
    """Called by `main`."""
    parser = subparsers.add_parser(
        "demo",
        help="see two notebooks share one GPU or two, and give way",
        description=(
            "Plays the story of this project in real notebooks on a Jupyter Server and a daemon of its own: on two "
            "idle GPUs of this machine, on one if there is only one, or on simulated ones, which it says first. "
            "Leaves nothing behind."
        ),
        parents=[common],
    )
    parser.add_argument(
        "--gpus",
        type=whole("number of GPUs", most=2),
        metavar="1|2",
        help="play the story for so many (default: what is idle)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="put the played notebooks there")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    missing = [name for name in ("jupyter_server", "nls_jupyter", "numpy") if find_spec(name) is None]
    if missing:
        tell(f"The demo needs {' and '.join(missing)}: pip install 'nls-jupyter[lab]'")
        return exit_codes.USAGE
    try:
        if options.keep is not None:
            _make_folder(options.keep)
    except OSError as error:
        tell(f"The notebooks cannot be kept in {options.keep}: {error.strerror}.")
        return exit_codes.CANNOT_WRITE
    from nls_scheduler.demo.screen import Screen
    from nls_scheduler.demo.stage import perform

    return asyncio.run(perform(Screen(as_json=options.json), options.keep, options.gpus))


def _make_folder(path: Path) -> None:
    """Raises OSError where nothing can be put into it: better before the story than after it."""
    path.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=path).close()
