"""What an idle daemon costs with 50 connected supervisors, and how soon a killed one knows everything again.

The supervisors are real connections of this process, each with a process of its own (`sleep`) on 25 simulated Gpus.
Prints percent of one core, MiB (RSS), seconds from SIGKILL to full knowledge, and milliseconds per poll.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import machine, report, resident_kib

from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.client.link import Report
from nls_scheduler.processes.proc import look_up
from nls_scheduler.wire.errors import DaemonUnreachable
from nls_scheduler.wire.protocol import CommandMessage

TICKS = os.sysconf("SC_CLK_TCK")


class Supervisor:
    """One workload with a `sleep` as its GPU process."""

    def __init__(self, client: DaemonClient) -> None:
        self._client = client
        self._process: subprocess.Popen[bytes] | None = None
        self.ready = asyncio.Event()
        self.connected = asyncio.Event()

    async def live(self) -> None:
        view = await self._client.submit(kind="notebook", request="0.5")
        async with self._client.supervise(view["id"], self._report) as link:
            self.connected.set()
            link.on_connection = lambda up: self.connected.set() if up else self.connected.clear()
            async for message in link:
                if isinstance(message, CommandMessage) and message.command == "start_process":
                    self._process = subprocess.Popen(["sleep", "600"], env={**os.environ, **message.environment})
                    pid, start_time = self._identity()
                    answer = {"command_id": message.command_id}
                    await link.send("process_started", **answer, pid=pid, start_time=start_time)
                    await link.send("process_ready", **answer)
                    self.ready.set()

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _identity(self) -> tuple[int, int]:
        record = look_up(self._process.pid)
        return record.id.pid, record.id.start_time

    def _report(self) -> Report:
        return Report() if self._process is None else Report(process=self._identity(), ready=True)


def start(directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A daemon; `arguments` are more of those of `nls up`."""
    command = [sys.executable, "-P", "-m", "nls_scheduler", "--socket", str(directory / "nls.sock"), "up"]
    with (directory / "log").open("ab") as log:
        return subprocess.Popen([*command, "--simulate", "25x16GiB", *arguments], stdout=log, stderr=log)


async def answers(client: DaemonClient) -> None:
    while True:
        try:
            return await client.ready()
        except DaemonUnreachable:
            await asyncio.sleep(0.01)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    return resident_kib(pid) / 1024


def poll_ms(socket: Path) -> float:
    text = subprocess.run(
        ["curl", "-s", "--unix-socket", str(socket), "http://nls/metrics"], capture_output=True, text=True, check=True
    ).stdout
    total, count = (
        float(re.search(rf"^nls_poll_(?:duration_)?seconds_{part} (\S+)", text, re.M).group(1))
        for part in ("sum", "count")
    )
    return 1000 * total / count


async def measure(supervisors: int, seconds: float, directory: Path) -> dict[str, float]:
    daemon = start(directory)
    client = DaemonClient(directory / "nls.sock")
    everybody = [Supervisor(client) for _ in range(supervisors)]
    try:
        await answers(client)
        lives = [asyncio.ensure_future(one.live()) for one in everybody]
        await asyncio.gather(*(one.ready.wait() for one in everybody))
        await asyncio.sleep(2)
        before = cpu_seconds(daemon.pid)
        await asyncio.sleep(seconds)
        cpu = cpu_seconds(daemon.pid) - before
        figures = {
            "supervisors": supervisors,
            "idle_cpu_percent_of_a_core": round(100 * cpu / seconds, 2),
            "rss_mib": round(resident_mib(daemon.pid), 1),
            "poll_ms": round(poll_ms(directory / "nls.sock"), 2),
        }
        for one in everybody:
            one.connected.clear()
        daemon.send_signal(signal.SIGKILL)
        killed_at = time.monotonic()
        daemon.wait()
        daemon = start(directory)
        await asyncio.gather(*(one.connected.wait() for one in everybody))
        while [w["phase"] for w in (await client.status())["workloads"]] != ["running"] * supervisors:
            await asyncio.sleep(0.01)
        figures["sigkill_to_full_knowledge_s"] = round(time.monotonic() - killed_at, 2)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        return figures
    finally:
        for one in everybody:
            one.end()
        daemon.terminate()
        daemon.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--supervisors", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nls-bench-") as directory:
        figures = asyncio.run(measure(options.supervisors, options.seconds, Path(directory)))
    report("daemon_load", figures, machine())


if __name__ == "__main__":
    main()
