"""`nls observe`: looks at the Gpus and at Jupyter Servers every few seconds, and manages nothing."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from nls_scheduler.processes.proc import ancestors
from nls_scheduler.units.clock import boottime_s
from nls_scheduler.what_if.observing.servers import kernels_of, servers_of_this_user
from nls_scheduler.what_if.observing.watcher import Seen, Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nls_scheduler.core.model.ids import GpuUuid, ProcessId
    from nls_scheduler.daemon.ports import GpuInfo, GpuSample
    from nls_scheduler.what_if.observing.record import Recorder
    from nls_scheduler.what_if.observing.servers import Kernel, Server

_KERNEL_FILE = re.compile(rb"kernel-([0-9A-Za-z-]{8,})\.json")


class Gpus(Protocol):
    """The part of a driver that is looked through."""

    def discover(self) -> Sequence[GpuInfo]:
        """The node's Gpus."""

    def sample(self) -> Mapping[GpuUuid, GpuSample]:
        """Who holds what."""

    def use_by_process(self) -> Mapping[ProcessId, float]:
        """Who computes."""


def kernel_of(pid: int) -> str | None:
    """The id of the kernel that started a process, or that it is; `None`: none that can be seen from here."""
    for process in ancestors(pid):
        try:
            line = Path(f"/proc/{process.id.pid}/cmdline").read_bytes()
        except OSError:
            return None
        if (match := _KERNEL_FILE.search(line)) is not None:
            return match[1].decode("ascii")
    return None


def seen_of(
    kernels: Sequence[Kernel],
    held: Mapping[ProcessId, int | None],
    use: Mapping[ProcessId, float],
    kernel_of: Callable[[int], str | None] = kernel_of,
    on: Mapping[ProcessId, Sequence[GpuUuid]] = MappingProxyType({}),
) -> dict[str, Seen]:
    """Notebooks that hold something on a Gpu (or all of them, where no Gpu can be seen), and other processes there.

    `on`: where each process is.
    """
    by_kernel: dict[str, list[ProcessId]] = {}
    seen: dict[str, Seen] = {}
    known = {kernel.id for kernel in kernels}
    for process in held:
        kernel = kernel_of(process.pid)
        if kernel in known and kernel is not None:
            by_kernel.setdefault(kernel, []).append(process)
        else:
            name = f"process {process.pid} of {process.start_time}"
            gpus = max(1, len(on.get(process, ())))
            seen[name] = Seen(name, False, None, held[process], use.get(process), gpus)  # noqa: FBT003 - a process
    for one in kernels:
        processes = by_kernel.get(one.id, [])
        memory = sum(held[process] or 0 for process in processes)
        parts = [use[process] for process in processes if process in use]
        gpus = max(1, len({gpu for process in processes for gpu in on.get(process, ())}))
        # Two notebooks of one path are two; a kernel that is started again keeps its id.
        seen[one.id] = Seen(f"{one.name}#{one.id[:8]}", True, one.busy, memory, max(parts, default=None), gpus)  # noqa: FBT003 - a notebook
    return seen


async def observe(
    recorder: Recorder,
    driver: Gpus,
    servers: Sequence[Server] | None,
    every_s: float,
    for_s: float | None,
    told: Callable[[str], None],
) -> None:
    """Until `for_s` has passed, or SIGINT or SIGTERM; what was open is then closed.

    `servers`: `None` finds this user's. `told` hears which does not answer, once each.
    """
    loop, stop, watcher = asyncio.get_running_loop(), asyncio.Event(), Watcher(recorder)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    looking = asyncio.create_task(_look(watcher, driver, servers, every_s, told))
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait((looking, stopping), timeout=for_s, return_when=asyncio.FIRST_COMPLETED)
        if looking in done:
            looking.result()
    finally:
        looking.cancel()
        stopping.cancel()
        await asyncio.gather(looking, stopping, return_exceptions=True)
        watcher.end()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _look(
    watcher: Watcher,
    driver: Gpus,
    servers: Sequence[Server] | None,
    every_s: float,
    told: Callable[[str], None],
) -> None:
    """For ever, every few seconds."""
    silent_before = set[str]()
    # The wall clock of the beginning, and from then on one that nobody sets.
    offset_s = time.time() - boottime_s()
    while True:
        kernels, silent = await kernels_of(servers_of_this_user() if servers is None else servers)
        for sentence in sorted(set(silent) - silent_before):
            told(sentence)
        silent_before |= set(silent)
        samples = await asyncio.to_thread(driver.sample)
        use = await asyncio.to_thread(driver.use_by_process)
        held: dict[ProcessId, int | None] = {}
        on: dict[ProcessId, list[GpuUuid]] = {}
        for uuid, sample in samples.items():
            for process, size_bytes in (sample.processes or {}).items():
                held[process] = (held.get(process) or 0) + (size_bytes or 0)
                on.setdefault(process, []).append(uuid)
        watcher.take(round(offset_s + boottime_s(), 3), seen_of(kernels, held, use, on=on))
        await asyncio.sleep(every_s)
