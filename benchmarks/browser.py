"""What JupyterLab's page costs, and how soon it shows what the daemon did.

A real daemon with two simulated Gpus, a real Jupyter Server, a real browser. Prints milliseconds from the daemon's own
time of an event to the page that shows it, bytes per minute that an idle page is sent, percent of one core that the
server takes with 0 and with 50 pages (while nothing happens, and while a notebook goes and comes all the time), and the
size of what a browser loads; and the same of two peers, where they can be had, for what they have in common with us
(`browser_peers`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import machine, report
from processor_time import percent_of_a_core, server_pid

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "ui")]

import browser_peers  # noqa: E402 - needs the tests' modules too
from browsers import BUILT, LabPage, browser, install, why_not  # noqa: E402 - found by the line above
from elsewhere import Elsewhere  # noqa: E402 - found by the line above

from lab_bench import lab_bench  # noqa: E402 - found by the line above

if TYPE_CHECKING:
    from playwright.sync_api import Page

PAGES = 50
# What an idle page is sent comes each 15 seconds: a shorter look would find nothing, or too much.
IDLE_BYTES_FOR_S = 60.0
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
            idle_bytes = bytes_per_minute(lab.page, max(seconds, IDLE_BYTES_FOR_S))
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
    own = browser_peers.bundle_bytes(BUILT / "static")
    peers = browser_peers.fetched(directory / "peers")
    stub = ROOT / "tests" / "contract" / "nvml_stub.c"
    return {
        "event_to_page_ms": {
            "events": len(latencies),
            "median": round(statistics.median(latencies), 1),
            "p95": round(sorted(latencies)[int(0.95 * len(latencies))], 1),
        },
        "idle_page_bytes_per_minute": round(idle_bytes),
        "server_cpu_percent_by_pages": {name: round(value, 2) for name, value in cpu.items()},
        "bundle_bytes": own,
        "bundle_ratio_to": {peer: round(own / browser_peers.bundle_bytes(at), 2) for peer, at in peers.items()},
        f"peers_with_{PAGES}_idle_pages": browser_peers.measure(peers, directory / "peers", stub, PAGES, seconds),
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
