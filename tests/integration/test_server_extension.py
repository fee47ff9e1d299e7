"""The server extension on a real Jupyter Server beside a real daemon: what pages see and order."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_magics_without_gpu import has_gpus

from daemon_process import NLS
from lab_bench import LabBench, lab_bench
from nls_scheduler.processes.proc import look_up
from pages import enable_extension, named
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = pytest.mark.long("what a page sees in rare cases: the common ones are seen here")

BASE_URL = 'c.ServerApp.base_url = "/user/some%40one/"\n'
ANY = "nothing-of-that-name"


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: the kernels' sockets are below it."""
    return tmp_path_factory.mktemp("b")


@pytest.fixture
def bench(directory: Path) -> Iterator[LabBench]:
    with lab_bench(directory, settings=BASE_URL) as bench:
        yield bench


def test_a_page_sees_a_notebooks_gpu_as_it_comes_and_goes(bench: LabBench) -> None:
    page, other = bench.page(), bench.page()
    bench.until(page, lambda s: s["daemon"]["reachable"] and len(s["gpus"]) == 2)
    book = bench.open()
    book.gpu("import nls_jupyter.xp as xp; a = xp.zeros(1024)")
    seen = bench.until(page, lambda s: (w := named(s, book.name)) and w["phase"] == "running" and w)
    assert (seen["own"], seen["kernel_id"], seen["path"]) == (True, book.notebook.kernel_id, book.name)
    bench.until(other, lambda s: named(s, book.name))
    assert bench.ask("POST", f"workloads/{seen['id']}/suspend", {}).code == 202
    suspended = bench.until(page, lambda s: (w := named(s, book.name)) and w["phase"] == "suspended" and w)
    assert suspended["kernel_id"] == book.notebook.kernel_id
    bench.until(page, lambda s: any(e["event"] == "suspended" for e in s["history"]))
    assert book.gpu("a.size").result == "1024"
    bench.until(page, lambda s: named(s, book.name)["phase"] == "running")
    assert bench.ask("DELETE", f"workloads/{seen['id']}").code == 202
    bench.until(page, lambda s: named(s, book.name) is None)
    assert other.messages[-1]["version"] <= page.messages[-1]["version"]


@pytest.mark.long("what pages are told in rare cases")
def test_a_notebook_that_is_renamed_is_shown_by_its_new_name(bench: LabBench) -> None:
    page, book = bench.page(), bench.open()
    book.gpu("1")
    bench.until(page, lambda s: (w := named(s, book.name)) and w["kernel_id"])
    authorized = {"Authorization": f"token {bench.token}"}
    (session,) = json.loads(bench.raw(path="/api/sessions", headers=authorized).body)
    renamed = {"path": "a folder/Ergebnisse 2.ipynb"}
    path = f"/api/sessions/{session['id']}"
    assert bench.raw(path=path, method="PATCH", headers=authorized, body=json.dumps(renamed)).code == 200
    seen = bench.until(page, lambda s: named(s, "Ergebnisse 2.ipynb"))
    assert (seen["path"], seen["kernel_id"]) == (renamed["path"], book.notebook.kernel_id)


@pytest.mark.long("what pages are told in rare cases")
def test_of_notebooks_that_share_a_kernel_the_one_that_was_there_first_gives_the_name(bench: LabBench) -> None:
    page, book = bench.page(), bench.open()
    book.gpu("1")
    authorized = {"Authorization": f"token {bench.token}"}
    kernel = {"id": book.notebook.kernel_id}

    def attach(path: str, kind: str) -> None:
        session = {"path": path, "type": kind, "name": path, "kernel": kernel}
        assert bench.raw(path="/api/sessions", method="POST", headers=authorized, body=json.dumps(session)).code == 201

    attach("console-1", "console")
    attach("second.ipynb", "notebook")
    seen = bench.until(page, lambda s: (w := named(s, book.name)) and w["kernel_id"] and w)
    assert seen["path"] == book.name
    sessions = json.loads(bench.raw(path="/api/sessions", headers=authorized).body)
    (first,) = (session["id"] for session in sessions if session["path"] == book.name)
    renamed = json.dumps({"path": "thesis.ipynb"})
    assert bench.raw(path=f"/api/sessions/{first}", method="PATCH", headers=authorized, body=renamed).code == 200
    seen = bench.until(page, lambda s: named(s, "thesis.ipynb"))
    assert (seen["path"], seen["kernel_id"]) == ("thesis.ipynb", kernel["id"])


@LONG
def test_a_notebook_that_only_waits_is_known_as_its_kernels(directory: Path) -> None:
    with lab_bench(directory, "1x256MiB") as bench:
        page, first, second = bench.page(), bench.open(), bench.open()
        first.run("%gpu request 1.0 --limit 1.0")
        first.gpu("1")
        cell = second.start("%%gpu\n2")
        waiting = bench.until(page, lambda s: (w := named(s, second.name)) and w["position"] and w)
        assert (waiting["kernel_id"], waiting["phase"]) == (second.notebook.kernel_id, "queued")
        assert waiting["cause"]["name"] == first.name
        first.run("%gpu release")
        assert cell.finish().result == "2"


@pytest.mark.long("what pages are told in rare cases")
def test_request_and_limit_can_be_changed_and_nothing_else(bench: LabBench) -> None:
    book = bench.open()
    book.gpu("1")
    own = book.entry(phase="running")
    path = f"workloads/{own['id']}"
    changed = bench.ask("PATCH", path, {"request": "32MiB", "limit": "64MiB"})
    assert (changed.code, changed.json["request_bytes"]) == (200, 32 * 2**20)
    kept = bench.ask("PATCH", path, {"keep_s": 600})
    assert (kept.code, kept.json["keep_until"] is not None) == (200, True)
    assert bench.ask("PATCH", path, {"keep_s": 0}).json["keep_until"] is None
    for body in ({"priority": 5}, {}, "[1]", "no json", {"request": "-1"}, {"keep_s": "long"}, {"keep_s": -1}):
        refused = bench.ask("PATCH", path, body)
        assert refused.code in (400, 422), body
        assert refused.json["message"] == refused.json["detail"]
    assert book.entry()["priority"] == 0


@LONG
def test_the_feed_comes_back_after_a_daemons_restart(bench: LabBench) -> None:
    page, book = bench.page(), bench.open()
    book.gpu("1")
    bench.until(page, lambda s: named(s, book.name))
    bench.daemon.kill()
    gone = bench.until(page, lambda s: not s["daemon"]["reachable"] and s, 5.0)
    assert (gone["gpus"], gone["workloads"]) == ({}, {})
    assert "nls up" in gone["daemon"]["message"]
    status = bench.ask("GET", "status")
    assert (status.code, status.json["daemon"]["reachable"]) == (200, False)
    refused = bench.ask("POST", f"workloads/{ANY}/suspend", {})
    assert (refused.code, refused.json["fault"]) == (503, "node")
    bench.daemon.start()
    bench.until(page, lambda s: s["daemon"]["reachable"] and named(s, book.name), 5.0)
    bench.until(page, lambda s: sum(e["event"] == "started" for e in s["history"]) == 1, 5.0)


@LONG
def test_a_page_never_starts_a_daemon(directory: Path) -> None:
    with lab_bench(directory) as bench:
        bench.daemon.stop()
        page = bench.page()
        bench.until(page, lambda s: "No daemon" in s["daemon"]["message"])
        for _ in range(3):
            assert bench.ask("GET", "status").json["daemon"]["reachable"] is False
        assert not bench.daemon.socket.exists()
        assert bench.open().run("1 + 1").result == "2"


@LONG
@pytest.mark.skipif(has_gpus(), reason="this machine has GPUs")
def test_a_node_without_gpus_is_said_to_have_none(directory: Path) -> None:
    enable_extension(directory)
    bench = LabBench(directory, "1x1GiB")
    bench.daemon._command = [*NLS, "--state-dir", str(directory / "state"), "up"]
    with bench:
        state = bench.until(bench.page(), lambda s: s["daemon"]["reachable"] and s)
        assert state["gpus"] == {}
        assert "There is no NVIDIA driver on this machine" in state["daemon"]["message"]


@LONG
def test_two_hundred_workloads_reach_the_page_and_a_change_of_one_is_a_small_message(directory: Path) -> None:
    with lab_bench(directory, daemon=("--set", "max_submissions_at_once=200")) as bench:
        ids = []
        for number in range(200):
            body = json.dumps({"kind": "notebook", "name": f"<b>{number}</b>" + "x" * 80, "request": 0.02}).encode()
            ids.append(bench.daemon.request("POST", "/v1/workloads", body)[1]["id"])
        page = bench.page()
        bench.until(page, lambda s: len(s["workloads"]) == 200)
        before = page.bytes
        bench.ask("DELETE", f"workloads/{ids[-1]}")
        bench.until(page, lambda s: ids[-1] not in s["workloads"])
        assert page.bytes - before < 20_000


@LONG
def test_ten_pages_cost_the_daemon_no_more_connections_than_one(bench: LabBench) -> None:
    def connections() -> int:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return sum(line.endswith(f" {bench.daemon.socket}") for line in lines)

    bench.until(bench.page(), lambda s: s["daemon"]["reachable"])
    one = connections()
    for _ in range(9):
        bench.until(bench.page(), lambda s: s["daemon"]["reachable"])
    assert one > 1  # the one that listens, and the server's own
    wait_until(lambda: connections() <= one)


@LONG
def test_what_happens_is_on_jupyters_event_bus_without_any_page_or_kernel(directory: Path) -> None:
    with lab_bench(directory) as bench:
        listener = bench.wait(bench.listen())
        for name in ("first", "second", "third"):
            body = {"kind": "command", "name": name, "request": 1.0}
            assert bench.daemon.request("POST", "/v1/workloads", json.dumps(body).encode())[0] == 201
        event = bench.wait(next_gpu_event(listener))
        assert (event["action"], event["name"], event["missing"]) == ("waiting", "third", [])
        listener.close()


@LONG
def test_what_did_not_come_back_is_named_on_the_event_bus(directory: Path) -> None:
    with lab_bench(directory) as bench:
        listener, book = bench.wait(bench.listen()), bench.open()
        book.gpu("kept, handle = 1, open('/dev/null')")
        book.run("%gpu suspend")
        event = bench.wait(next_gpu_event(listener))
        assert (event["action"], event["name"]) == ("suspended", book.name)
        assert event["reason"] == "suspended by its user"
        book.run("%gpu resume")
        event = bench.wait(next_gpu_event(listener))
        assert (event["action"], event["missing"]) == ("resumed", ["handle"])
        listener.close()


async def next_gpu_event(listener: Any) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(await listener.read_message())
        if event["schema_id"] == "https://events.nls-jupyter.org/gpu/v1":
            return event


STRAY = """
import os, subprocess, sys
def stray(workload, *words):
    command = [sys.executable, "-c", "import time; time.sleep(600)", *words]
    return subprocess.Popen(command, env={**os.environ, "NLS_WORKLOAD": workload}, start_new_session=True).pid
stray("stray-1", "-m", "nls_jupyter.gpu_process"), stray("stray-2", "-m", "something.else")
"""


@LONG
def test_what_a_gpu_process_of_a_killed_kernel_left_is_ended_by_the_server_and_nothing_else(bench: LabBench) -> None:
    page, book = bench.page(), bench.open()
    gpu_process, other = eval(book.run(STRAY).result or "")
    bench.daemon.kill()  # what the server does, it does alone
    bench.until(page, lambda s: not s["daemon"]["reachable"])
    wait_until(lambda: "GPU workload stray-1 belongs to kernel" in log(bench))
    os.kill(book.pid(), signal.SIGKILL)
    wait_until(lambda: look_up(gpu_process) is None)
    assert look_up(other) is not None
    os.kill(other, signal.SIGKILL)
    wait_until(lambda: "The kernel of GPU workload stray-1 has ended" in log(bench))
    assert "stray-2" not in log(bench)


def log(bench: LabBench) -> str:
    return (bench.daemon.directory / "jupyter.log").read_text()
