"""What jupyterlab-nvdashboard and jupyter-resource-usage take for what they have in common with us.

Each peer gets a Jupyter Server of its own, as fetched from its wheel, with as many pages as ours that do nothing else:
of nvdashboard a page with its charts of memory and of utilisation (two WebSockets at its default rate), on two stub
GPUs; of resource-usage a page with its default status item (a request each 5 s).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from processor_time import cpu_s, server_pid
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from nls_scheduler.demo.jupyter import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from nls_scheduler.demo.jupyter import JupyterServer

ENABLED = 'c.ServerApp.jpserver_extensions = {{"{module}": True}}\n'
# Their own defaults.
USAGE_EVERY_S = 5.0
DASHBOARD_EVERY_MS = 100
DASHBOARD_CHARTS = ("gpu_utilization", "gpu_usage")
# `gpu UUID TOTAL RESERVED USED UTILISATION`, as the stub reads it.
STUB_GPUS = f"gpu GPU-a {2**37} {2**30} {2**29} 42\ngpu GPU-b {2**37} {2**30} 0 0\n"
# What nvdashboard asks for at its start and our stub does not have: not supported, as on many GPUs.
FURTHER_STUBS = """
int nvmlDeviceGetNvLinkVersion(void *gpu, unsigned link, unsigned *version) { return 3; }
int nvmlDeviceGetMaxPcieLinkGeneration(void *gpu, unsigned *generation) { return 3; }
"""


@dataclass
class Received:
    """Bytes that all pages together were sent."""

    bytes: int = 0


async def usage_page(server: JupyterServer, received: Received) -> None:
    """One page of resource-usage."""
    headers = {"Authorization": f"token {server.token}"}
    while True:
        request = HTTPRequest(f"{server.url}/api/metrics/v1", headers=headers, request_timeout=60.0)
        answer = await AsyncHTTPClient().fetch(request)
        received.bytes += len(answer.body)
        await asyncio.sleep(USAGE_EVERY_S)


async def dashboard_page(server: JupyterServer, received: Received) -> None:
    """One page of nvdashboard."""

    async def chart(name: str) -> None:
        url = f"{server.url}/nvdashboard/{name}".replace("http://", "ws://", 1)
        socket = await websocket_connect(HTTPRequest(url, headers={"Authorization": f"token {server.token}"}))
        await socket.write_message(json.dumps({"updateFrequency": DASHBOARD_EVERY_MS, "isPaused": False}))
        while (text := await socket.read_message()) is not None:
            received.bytes += len(text)

    await asyncio.gather(*map(chart, DASHBOARD_CHARTS))


PEERS: dict[str, tuple[str, Callable[[JupyterServer, Received], Coroutine[Any, Any, None]]]] = {
    "jupyter-resource-usage": ("jupyter_resource_usage", usage_page),
    "jupyterlab-nvdashboard": ("jupyterlab_nvdashboard", dashboard_page),
}


def fetched(directory: Path) -> dict[str, Path]:
    """The peers' wheels, unpacked; those that cannot be fetched are left out and named."""
    found = {}
    for peer in PEERS:
        place = directory / peer
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*fetch, "--dest", str(place), peer], check=False).returncode != 0:
            sys.stderr.write(f"{peer} cannot be fetched: no comparison with it.\n")
            continue
        (wheel,) = place.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        found[peer] = place
    return found


def bundle_bytes(directory: Path) -> int:
    """JavaScript and styles that a browser may load."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.suffix in (".js", ".css"))


def stub_gpus(directory: Path, source: Path) -> dict[str, str]:
    """Two GPUs for whoever loads NVML with these variables: our tests' stub of it."""
    compiler = shutil.which("gcc")
    if compiler is None:
        sys.exit("gcc is needed to build the NVML stub.")
    further, script = directory / "further.c", directory / "nvml.txt"
    further.write_text(FURTHER_STUBS)
    script.write_text(STUB_GPUS)
    library = directory / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-w", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(source), str(further)], check=True)
    return {"LD_LIBRARY_PATH": str(directory), "NLS_NVML_STUB_SCRIPT": str(script)}


async def _answers(server: JupyterServer) -> None:
    """The server tells its address a moment before it accepts connections."""
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(OSError):
                await server.request("GET", "/api")
                return
            await asyncio.sleep(0.1)


async def _measured(
    peer: str, place: Path, directory: Path, variables: dict[str, str], pages: int, seconds: float
) -> Any:
    module, page = PEERS[peer]
    (directory / "config").mkdir()
    (directory / "config" / "jupyter_server_config.py").write_text(ENABLED.format(module=module))
    async with AsyncExitStack() as stack:
        environment = {"PYTHONPATH": str(place), **variables}
        server = await stack.enter_async_context(serve(directory, environment))
        await _answers(server)
        pid = server_pid(directory)
        received = Received()
        tasks = [asyncio.create_task(page(server, received)) for _ in range(pages)]
        await asyncio.sleep(5)
        received.bytes, before, began = 0, cpu_s(pid), time.monotonic()
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        passed = time.monotonic() - began
        cpu = 100 * (cpu_s(pid) - before) / passed
        for task in done:
            task.result()  # a page never ends by itself
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {"server_cpu_percent": round(cpu, 2), "page_bytes_per_minute": round(received.bytes * 60 / passed / pages)}


def measure(peers: dict[str, Path], directory: Path, stub_source: Path, pages: int, seconds: float) -> dict[str, Any]:
    """Percent of one core, and bytes per minute and page, by peer."""
    variables = stub_gpus(directory, stub_source)
    figures = {}
    for peer, place in peers.items():
        own = directory / f"s-{peer[-5:]}"
        own.mkdir()
        figures[peer] = asyncio.run(_measured(peer, place, own, variables, pages, seconds))
    return figures
