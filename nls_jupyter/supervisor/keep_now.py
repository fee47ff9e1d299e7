"""Has all notebooks of a machine keep their GPU variables now: `python -m nls_jupyter.supervisor.keep_now`.

For the hook that Kubernetes runs before it ends a pod (`preStop`), and waits for: Jupyter's server gives a kernel five
seconds to end. Each kernel that keeps its variables listens at a socket in its user's runtime directory, and answers
when they are written: `kept` or `lost`, a tab, and a sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_core.paths import jupyter_runtime_dir

from nls_scheduler.processes.whose_files import make_private
from nls_scheduler.units.arguments import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nls_jupyter.supervisor.lasting import Lasting

_KINDS = "keep-*.sock"


class KeepRequests:
    """A kernel's end of it. Everything runs in the loop's thread."""

    def __init__(self, lasting: Lasting, directory: Path, notebook: str) -> None:
        self._lasting = lasting
        self._path = directory / _KINDS.replace("*", str(os.getpid()))
        self._notebook = notebook
        self._server: asyncio.Server | None = None

    async def listen(self) -> None:
        """From now on. Raises OSError."""
        make_private(self._path.parent)
        self._path.unlink(missing_ok=True)  # of a kernel that was killed and had this number
        self._server = await asyncio.start_unix_server(self._answer, self._path)
        self._path.chmod(0o600)

    def close(self) -> None:
        """No longer."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _answer(self, asked: asyncio.StreamReader, answer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError):
            ended = await self._lasting.keep(float(await asked.readline()))
            answer.write(f"{'kept' if ended.all_kept else 'lost'}\t{self._notebook}: {ended.sentence}\n".encode())
            await answer.drain()
        answer.close()


async def keep_all(sockets: Iterable[Path], grace_s: float, show: Callable[[str], object]) -> bool:
    """Until every notebook has kept what it has. Returns whether nothing was lost.

    Args:
        sockets: where their kernels listen.
        grace_s: how long a cell that runs may take to put things in order.
        show: gets the sentence of each.
    """
    answers = await asyncio.gather(*(_asked(socket, grace_s) for socket in sockets))
    for answer in answers:
        if answer is not None:
            show(answer.partition("\t")[2])
    return not any(answer is not None and not answer.startswith("kept\t") for answer in answers)


async def _asked(socket: Path, grace_s: float) -> str | None:
    """`None` where nobody listens: that kernel was killed."""
    try:
        answer, asking = await asyncio.open_unix_connection(socket)
    except OSError:
        return None
    try:
        asking.write(f"{grace_s:g}\n".encode())
        line = (await answer.readline()).decode().strip()
    except OSError as error:
        line = f"lost\t{socket.name}: {error}"
    asking.close()
    return line or f"lost\t{socket.name}: its kernel ended before it answered"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: 1 where something is lost, which Kubernetes notes at the pod as `FailedPreStopHook`."""
    parser = argparse.ArgumentParser(description="Have all notebooks of this user keep their GPU variables now.")
    parser.add_argument("--grace", type=seconds, default=10.0, metavar="S", help="for cells that run (default: 10)")
    asked = parser.parse_args(arguments)
    sockets = sorted((Path(jupyter_runtime_dir()) / "nls").glob(_KINDS))
    return 0 if asyncio.run(keep_all(sockets, asked.grace, lambda line: sys.stdout.write(f"{line}\n"))) else 1


if __name__ == "__main__":
    sys.exit(main())
