"""Stands in for a user's kernel that dies: launches a GPU process from its supervisor's thread, then does as told.

Arguments: directory, code of the cell to start, how to leave (`wait`, `os._exit`, `return`, `thread`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

from nls_jupyter.supervisor.channel import GpuProcess


async def supervise(directory: Path, code: str, left: threading.Event) -> None:
    process = await GpuProcess.launch(environment={}, directory=directory, forward=lambda _: None, cwd=directory.parent)
    await process.ready()
    cell = asyncio.create_task(process.execute(code))
    await asyncio.to_thread(left.wait)
    cell.cancel()


def main(directory: str, code: str, how: str) -> None:
    left = threading.Event()
    thread = threading.Thread(target=asyncio.run, args=(supervise(Path(directory), code, left),))
    thread.start()
    sys.stdin.readline()
    if how == "os._exit":
        os._exit(3)
    left.set()
    thread.join()
    if how == "thread":
        print("thread ended", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
