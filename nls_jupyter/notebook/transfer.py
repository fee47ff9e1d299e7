"""`%%gpu -i a,b -o c`: copies variables between the notebook's kernel and its GPU process.

Both ends pickle and unpickle what the user named in that very cell. Beside that the kernel never unpickles what its GPU
process wrote, and saved state least of all. What lives on a GPU becomes a NumPy array before it leaves, so that the
kernel gets no CUDA context. Classes and functions of cells travel by value: their copies are other objects.
"""

from __future__ import annotations

import asyncio
import keyword
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from nls_jupyter.between.errors import GpuTransferFailed, GpuUsageError
from nls_jupyter.between.packed import CannotCopy, pack_named, unpack
from nls_jupyter.supervisor.pending import RequestFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from IPython.core.interactiveshell import InteractiveShell

    from nls_jupyter.supervisor.channel import GpuProcess
    from nls_jupyter.supervisor.pending import Message


def names_in(texts: Sequence[str], option: str) -> list[str]:
    """The variables that `option` was given with, as `a,b` or again and again, each once. Raises GpuUsageError."""
    names = [name.strip() for text in texts for name in text.split(",")]
    for name in names:
        if not name.isidentifier() or keyword.iskeyword(name):
            raise GpuUsageError(f"{option} takes names of variables, as in {option} a,b; {name!r} is none.")
    return list(dict.fromkeys(names))


class Transfer:
    """What one cell takes along and brings back. Use as a context manager; the loop's thread calls `give` and `take`.

    Args:
        shell: the kernel's.
        inputs: names to copy into the GPU process before the cell.
        outputs: names to copy back after it succeeded.

    Raises:
        GpuTransferFailed: an input is not there or cannot be copied; nothing was done yet.
    """

    def __init__(self, shell: InteractiveShell, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._shell: Any = shell
        self._outputs = list(outputs)
        self._failure: str | None = None
        self._closing = threading.Lock()
        self._over = False
        self._taken: int | None = None
        self._packed = _packed_inputs(shell.user_ns, inputs) if inputs else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._closing:
            self._over = True
            for descriptor in (self._packed, self._taken):
                if descriptor is not None:
                    os.close(descriptor)
            self._packed = self._taken = None

    async def give(self, process: GpuProcess) -> None:
        """Copy the inputs into the process, all or none.

        Raises:
            GpuTransferFailed: they cannot be rebuilt there; the cell is not to be run.
            CancelledError: the user interrupted it.
            GpuProcessDied: the process ended first.
        """
        if self._packed is None:
            return
        try:
            await process.give(self._packed)
        except RequestFailed as failed:
            if failed.ename == "KeyboardInterrupt":
                raise asyncio.CancelledError from None
            raise GpuTransferFailed(f"{_sentence(failed)} The cell did not run.") from None
        except OSError as error:
            raise GpuTransferFailed(f"the variables cannot be copied: {error}. The cell did not run.") from None

    async def take(self, process: GpuProcess, reply: Message) -> None:
        """Have the outputs packed after a cell that succeeded; `finish` tells of failures. Raises GpuProcessDied."""
        if not self._outputs or reply["content"]["status"] != "ok":
            return
        try:
            # PyTorch is heavy: its tensors stay tensors only where the kernel uses it already.
            taken = await process.take(self._outputs, tensors="torch" in sys.modules)
        except RequestFailed as failed:
            self._failure = "interrupted." if failed.ename == "KeyboardInterrupt" else _sentence(failed)
        except OSError as error:
            self._failure = f"the variables cannot be copied: {error}."
        else:
            with self._closing:
                if self._over:
                    os.close(taken)  # nobody waits for this cell any more
                else:
                    self._taken = taken

    def finish(self, result: object) -> None:
        """In the cell's thread, after it succeeded: put the outputs into the kernel's namespace, all or none.

        Args:
            result: what the cell's last expression gave; shown before an error, which would swallow it.

        Raises:
            GpuTransferFailed: they cannot be copied.
        """
        if not self._outputs:
            return
        if self._taken is not None:
            try:
                self._shell.push(unpack(self._taken))
            except CannotCopy as error:
                self._failure = str(error)
        if self._failure is not None:
            if result is not None:
                sys.displayhook(result)
            raise GpuTransferFailed(f"{self._failure} The cell ran, and nothing was copied back.")


def _packed_inputs(namespace: Mapping[str, Any], names: Sequence[str]) -> int:
    try:
        return pack_named(namespace, names, "the notebook's kernel", tensors=True)
    except CannotCopy as error:
        raise GpuTransferFailed(f"{error} The cell did not run.") from None
    except OSError as error:
        raise GpuTransferFailed(f"the variables cannot be copied: {error}. The cell did not run.") from None


def _sentence(failed: RequestFailed) -> str:
    if failed.ename == CannotCopy.__name__:
        return failed.evalue
    return f"the variables cannot be copied: {failed}."
