"""What JupyterLab's page costs, and how soon it shows what the daemon did.

A real daemon with two simulated Gpus, a real Jupyter Server, a real browser. Prints milliseconds from the daemon's own
time of an event to the page that shows it, bytes per minute that an idle page is sent, percent of one core that the
server takes with 0 and with 50 pages (while nothing happens, and while a notebook goes and comes all the time), and the
size of what a browser loads, as ratios to two peers where they can be had.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "ui")]

from browsers import BUILT, LabPage, browser, install, why_not  # noqa: E402 - found by the line above
from elsewhere import Elsewhere  # noqa: E402 - found by the line above

from lab_bench import lab_bench  # noqa: E402 - found by the line above

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

TICKS = os.sysconf("SC_CLK_TCK")
PEERS = ("jupyter-resource-usage", "jupyterlab-nvdashboard")
PAGES = 50
# Notes when each entry of the history was first seen in the page, after the browser has drawn it.
WATCH = """() => {
    window.seen = {};
    const note = () => requestAnimationFrame(() => {
        for (const time of document.querySelectorAll('.nls-Entry time'))
            window.seen[time.dateTime] ??= Date.now();
    });
    new MutationObserver(note).observe(document.querySelector('#nls-jupyter-panel'), {childList: true, subtree: true});
}"""


def event_to_page_ms(bench: Any, book: Any, lab: LabPage, rounds: int) -> list[float]:
    """Milliseconds between the time that the daemon gave an event and the moment when the page showed it."""
    lab.page.wait_for_timeout(2000)
    lab.page.evaluate(WATCH)
    began = time.time()
    for _ in range(rounds):
        go_and_come(bench, book)
    lab.page.wait_for_timeout(2000)
    seen: dict[str, float] = lab.page.evaluate("window.seen")
    happened = {at: datetime.fromisoformat(at).timestamp() for at in seen}
    return [shown - 1000 * happened[at] for at, shown in seen.items() if happened[at] >= began]


def go_and_come(bench: Any, book: Any) -> None:
    """Two events and four changes of phase."""
    own = book.entry(phase="running")["id"]
    for action, phase in (("suspend", "suspended"), ("resume", "running")):
        bench.daemon.request("POST", f"/v1/workloads/{own}/{action}", b"{}")
        book.entry(phase=phase)


def bytes_per_minute(page: Page, seconds: float) -> float:
    """What the stream sends to a page on which nothing happens."""
    received: list[int] = []

    def watch(socket: Any) -> None:
        if "/nls/api/stream" in socket.url:
            socket.on("framereceived", lambda frame: received.append(len(frame)))

    page.on("websocket", watch)
    page.reload()
    page.locator(".nls-Bar").first.wait_for()
    page.wait_for_timeout(5000)
    received.clear()
    page.wait_for_timeout(seconds * 1000)
    return sum(received) * 60 / seconds


def cpu_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def percent_of_a_core(pid: int, seconds: float, meanwhile: Callable[[], object]) -> float:
    """What a process takes while this one does something again and again."""
    before, began = cpu_s(pid), time.monotonic()
    while time.monotonic() < began + seconds:
        meanwhile()
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - began)


def server_pid(directory: Path) -> int:
    """Of the Jupyter Server below `directory`, by the file that it writes."""
    (written,) = (directory / "runtime").glob("jpserver-*.json")
    return int(written.stem.partition("-")[2])


def bundle_bytes(directory: Path) -> int:
    """JavaScript and styles that a browser may load."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.suffix in (".js", ".css"))


def peers_bundle_bytes(directory: Path) -> dict[str, int]:
    """The same of the peers' wheels; those that cannot be fetched are left out and named."""
    sizes = {}
    for peer in PEERS:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        if subprocess.run([*fetch, "--dest", str(directory / peer), peer], check=False).returncode != 0:
            sys.stderr.write(f"{peer} cannot be fetched: no ratio to it.\n")
            continue
        (wheel,) = (directory / peer).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            inside = [i for i in archive.infolist() if "/labextensions/" in i.filename and "/static/" in i.filename]
            sizes[peer] = sum(i.file_size for i in inside if i.filename.endswith((".js", ".css")))
    return sizes


def measure(directory: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """All figures."""
    install(directory)
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack, browser() as chromium:
        expose = "c.LabApp.expose_app_in_browser = True\n"
        bench = Elsewhere(pool.submit(stack.enter_context, lab_bench(directory, "2x1GiB", expose)).result(), pool)
        try:
            lab = LabPage(chromium.new_page(), bench.url, bench.token)
            lab.open()
            lab.show_panel()
            book = bench.open("alice.ipynb")
            book.gpu("1")
            latencies = event_to_page_ms(bench, book, lab, rounds)
            idle_bytes = bytes_per_minute(lab.page, seconds)
            lab.page.close()
            pid = server_pid(directory)
            time.sleep(3)
            idle, busy = lambda: time.sleep(0.5), lambda: go_and_come(bench, book)
            cpu = {"idle_0": percent_of_a_core(pid, seconds, idle), "busy_0": percent_of_a_core(pid, seconds, busy)}
            pages = [bench.page() for _ in range(PAGES)]
            time.sleep(3)
            cpu[f"idle_{PAGES}"] = percent_of_a_core(pid, seconds, idle)
            cpu[f"busy_{PAGES}"] = percent_of_a_core(pid, seconds, busy)
            assert len(pages) == PAGES
        finally:
            pool.submit(stack.close).result()
    own = bundle_bytes(BUILT / "static")
    peers = peers_bundle_bytes(directory)
    return {
        "event_to_page_ms": {
            "events": len(latencies),
            "median": round(statistics.median(latencies), 1),
            "p95": round(sorted(latencies)[int(0.95 * len(latencies))], 1),
        },
        "idle_page_bytes_per_minute": round(idle_bytes),
        "server_cpu_percent_by_pages": {name: round(value, 2) for name, value in cpu.items()},
        "bundle_bytes": own,
        "bundle_ratio_to": {peer: round(own / size, 2) for peer, size in peers.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="suspends and resumes whose news is timed")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each idle measurement")
    arguments = parser.parse_args()
    if (reason := why_not()) is not None:
        sys.exit(f"This needs a browser and the built extension: {reason}.")
    with tempfile.TemporaryDirectory(prefix="nb-") as directory:
        report("browser", measure(Path(directory), arguments.rounds, arguments.seconds), machine())


if __name__ == "__main__":
    main()
