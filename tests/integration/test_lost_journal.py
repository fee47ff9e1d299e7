"""A daemon that lost its journal takes up again what its supervisors bring back; nobody is disturbed."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from daemon_process import DaemonProcess
from nls_scheduler.processes.proc import look_up
from notebooks import Bench
from open_files import sockets_of
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG = pytest.mark.long("journals that lost something: the whole one is lost here")

NEW_ID = "0123456789ab"


def lose_the_journal(daemon: DaemonProcess) -> None:
    """Killed, its disk damaged, and started again."""
    daemon.kill()
    (daemon.directory / "state" / "journal.db").write_bytes(b"not a database at all" * 1000)
    for extra in ("journal.db-wal", "journal.db-shm"):
        (daemon.directory / "state" / extra).unlink(missing_ok=True)
    daemon.start()


@pytest.fixture
def bench(tmp_path_factory) -> Iterator[Bench]:
    # A short name: the kernels' sockets lie below it.
    with Bench(tmp_path_factory.mktemp("j"), "2x256MiB") as running:
        yield running


def test_notebooks_and_commands_go_on_as_if_nothing_had_happened(bench):
    book = bench.open("notebook.ipynb")
    book.gpu("from nls_jupyter import xp\nx = xp.arange(1000)")
    command = bench.daemon.start_nls("run", "--name", "command", "--", "sleep", "600")
    before = {name: bench.daemon.wait_for(name, phase="running") for name in (book.name, "command")}
    lose_the_journal(bench.daemon)
    for name, entry in before.items():
        after = bench.daemon.wait_for(name, phase="running")
        kept = ("id", "pid", "request_bytes", "limit_bytes", "current", "kind", "priority", "requeue")
        assert {key: after[key] for key in kept} == {key: entry[key] for key in kept}
    assert "damaged" in bench.daemon.status()["message"]
    assert book.gpu("print(int(x.sum()))").stdout == "499500\n"
    entries = bench.daemon.request("GET", "/v1/history")[1]["entries"]
    assert {entry["name"] for entry in entries if entry["event"] == "adopted"} == set(before)
    assert command.poll() is None


@pytest.fixture
def patient(tmp_path) -> Iterator[DaemonProcess]:
    """It waits longer for who runs than any test does."""
    with DaemonProcess(tmp_path, "1x16GiB", "--set", "reconnect_grace_s=600") as daemon:
        yield daemon


def remove_the_journal(daemon: DaemonProcess) -> None:
    daemon.kill()
    for file in (daemon.directory / "state").glob("journal.db*"):
        file.unlink()
    daemon.start()


def test_the_first_user_of_a_new_daemon_waits_for_nobody(patient):
    assert patient.nls("run", "--", "echo", "ran").stdout == "ran\n"
    assert patient.status()["message"] is None


@pytest.mark.parametrize("lost", ["journal.db*", "journal.db-wal"])
def test_a_journal_of_which_files_are_gone_is_told_by_who_runs(patient, lost):
    running = patient.start_nls("run", "--name", "running", "--", "sleep", "600")
    patient.wait_for("running", phase="running")
    patient.kill()
    for file in (patient.directory / "state").glob(lost):
        file.unlink()
    patient.start()
    patient.wait_for("running", phase="running")
    told = "The journal knew nothing of 1 workload of this node: it was lost, or its end was."
    wait_until(lambda: patient.status()["message"] == told)
    assert told in patient.nls("status").stdout
    assert running.poll() is None


@pytest.mark.long("lost journals in rare cases")
def test_variables_that_name_no_workload_make_nobody_wait_and_no_line_of_the_log(patient):
    gpu = patient.status()["gpus"][0]["uuid"]
    with ExitStack() as stack:
        for name in ("0123456789ab\n2026 ERROR forged\x1b[2J", "0123456789abc", "notebook", NEW_ID):
            environment = {"NLS_WORKLOAD": name, "CUDA_VISIBLE_DEVICES": gpu}
            process = stack.enter_context(subprocess.Popen(["sleep", "600"], env=environment))
            stack.callback(process.kill)
        patient.kill()
        patient.start()
        assert patient.nls("run", "--", "echo", "ran").stdout == "ran\n"
    assert "forged" not in patient.log


@pytest.mark.long("lost journals in rare cases")
def test_who_asks_first_when_a_journal_was_removed_does_not_take_the_gpu_of_one_that_runs(patient):
    first = patient.start_nls("run", "--name", "first", "--", "sleep", "600")
    before = patient.wait_for("first", phase="running")
    first.send_signal(signal.SIGSTOP)
    remove_the_journal(patient)
    patient.start_nls("run", "--name", "second", "--", "sleep", "600")
    second = patient.wait_for("second", phase="queued")
    assert second["reason"] == "the daemon has lost its journal, and waits 10 min for who runs to tell of itself"
    first.send_signal(signal.SIGCONT)
    assert patient.wait_for("first", phase="running")["pid"] == before["pid"]
    assert patient.workload("second")["home"] == []
    assert first.poll() is None


def journal_as_it_is(daemon: DaemonProcess) -> dict[str, bytes]:
    """The files of a daemon that was killed, which runs again afterwards."""
    daemon.kill()
    files = {file.name: file.read_bytes() for file in (daemon.directory / "state").glob("journal*")}
    daemon.start()
    return files


def lose_the_end_of_the_journal(daemon: DaemonProcess, older: dict[str, bytes]) -> None:
    """Killed, and started again with these files."""
    daemon.kill()
    state = daemon.directory / "state"
    for file in state.glob("journal*"):
        file.unlink()
    for name, content in older.items():
        (state / name).write_bytes(content)
    daemon.start()


@LONG
def test_a_journal_that_lost_its_end_loses_nothing_and_freezes_nobody(bench):
    book = bench.open("notebook.ipynb")
    book.gpu("from nls_jupyter import xp\nx, n = xp.arange(1000), 0")
    older = journal_as_it_is(bench.daemon)
    for _ in range(3):
        book.gpu("n += 1")
        book.run("%gpu suspend")
    book.gpu("n += 1")
    lose_the_end_of_the_journal(bench.daemon, older)
    for _ in range(2):
        assert book.gpu("print(int(x.sum()), n)").stdout == "499500 4\n"
        book.run("%gpu suspend")


@pytest.mark.long("deaths that nobody hears of, and what is told of them")
def test_a_notebook_that_has_moved_since_the_journal_lost_its_end_is_neither_killed_nor_beside_another(bench):
    book = bench.open("notebook.ipynb")
    book.gpu("from nls_jupyter import xp\nx = xp.arange(1000)")
    older = journal_as_it_is(bench.daemon)
    (before,) = bench.daemon.wait_for(book.name, phase="running")["current"]
    elsewhere = next(gpu for gpu in bench.daemon.status()["gpus"] if gpu["uuid"] != before)
    bench.daemon.nls("migrate", book.name, "--to", str(elsewhere["index"]))
    wait_until(lambda: bench.daemon.workload(book.name)["current"] == [elsewhere["uuid"]])
    bench.daemon.wait_for(book.name, phase="running")
    pid = book.gpu("import os\nprint(os.getpid())").stdout
    lose_the_end_of_the_journal(bench.daemon, older)
    wait_until(lambda: bench.daemon.workload(book.name)["current"] == [elsewhere["uuid"]])
    alone = bench.daemon.nls("run", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout
    assert alone == f"{before}\n"
    assert book.gpu("print(int(x.sum()))\nprint(os.getpid())").stdout == f"499500\n{pid}"


@LONG
def test_who_has_no_gpu_process_asks_anew_with_the_next_cell_and_has_its_variables(bench):
    book = bench.open("notebook.ipynb")
    book.gpu("from nls_jupyter import xp\nx = xp.arange(1000)")
    book.run("%gpu suspend")
    lose_the_journal(bench.daemon)
    assert book.gpu("print(int(x.sum()))").stdout == "499500\n"


@pytest.fixture
def forgetful(tmp_path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path, "2x16GiB", "--set", "show_names='own'") as daemon:
        yield daemon


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def claim(daemon: DaemonProcess, process: subprocess.Popen[bytes], **changed: Any) -> dict[str, Any]:
    record = look_up(process.pid)
    assert record is not None
    said = {
        "kind": "notebook",
        "name": "brought back",
        "request": "8GiB",
        "command_id": 41,
        "pid": record.id.pid,
        "start_time": record.id.start_time,
        "current": [daemon.status()["gpus"][0]["uuid"]],
        "executing": False,
    }
    return {**said, **changed}


def open_simulated_gpu(daemon: DaemonProcess) -> BinaryIO:
    return (daemon.directory / "state" / "simulated" / f"{daemon.status()['gpus'][0]['uuid']}.ledger").open("rb+")


def bring_back(daemon: DaemonProcess, body: dict[str, Any], identity: str = NEW_ID, only: str = "") -> tuple[int, Any]:
    body = {"secret": daemon.secret(identity), **body}
    return daemon.request("PUT", f"/v1/workloads/{identity}{only}", json.dumps(body).encode())


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"pid": 2**40}, 409, "has ended"),
        ({"current": []}, 409, "each once"),
        ({"current": ["GPU-of-another-node"]}, 409, "each once"),
        ({"current": "GPU-0"}, 400, "a list"),
        ({"executing": "yes"}, 400, "true or false"),
        ({"command_id": -1}, 400, "whole number"),
        ({"saved_bytes": "much"}, 400, "whole number"),
        ({"request": "64GiB"}, 422, "16 GiB"),
        ({"mood": "good"}, 400, "mood"),
    ],
)
def test_a_claim_that_cannot_be_is_refused(shared_daemon, sleeper, changed, status, said):
    answered, problem = bring_back(shared_daemon, claim(shared_daemon, sleeper, **changed))
    assert answered == status, problem
    assert said in problem["detail"]
    assert shared_daemon.status()["workloads"] == []


def test_only_ids_that_a_daemon_gives_out_are_taken(shared_daemon, sleeper):
    answered, problem = bring_back(shared_daemon, claim(shared_daemon, sleeper), "../../etc")
    assert answered in (400, 404), problem


def test_a_claim_beyond_what_is_free_on_paper_is_refused(forgetful, sleeper):
    runs = [forgetful.start_nls("run", "--name", f"whole-{n}", "--", "sleep", "600") for n in (0, 1)]
    for number in (0, 1):
        forgetful.wait_for(f"whole-{number}", phase="running")
    answered, problem = bring_back(forgetful, claim(forgetful, sleeper))
    assert (answered, problem["title"]) == (409, "No room")
    assert [run.poll() for run in runs] == [None, None]


@pytest.mark.parametrize("only", ["?only=true", ""])
def test_what_a_journal_that_lost_its_end_still_knows_of_its_process_stands_in_nobodys_way(forgetful, sleeper, only):
    """This test's process has given up two places, of a whole GPU each, before it got the one that it brings back."""
    whole = {"kind": "notebook", "request": "16GiB"}
    for name in ("stale", "stale too"):
        assert forgetful.request("POST", "/v1/workloads", json.dumps({**whole, "name": name}).encode())[0] == 201
    answered, problem = bring_back(forgetful, claim(forgetful, sleeper), only=only)
    assert answered == (201 if only else 409), problem
    left = {workload["name"] for workload in forgetful.status()["workloads"]}
    assert left == ({"brought back"} if only else {"stale", "stale too"})


def test_what_is_known_is_not_taken_up_twice(forgetful, sleeper):
    forgetful.start_nls("run", "--name", "known", "--request", "0.5", "--", "sleep", "600")
    known = forgetful.wait_for("known", phase="running")
    answered, problem = bring_back(forgetful, claim(forgetful, sleeper), known["id"])
    assert (answered, problem["title"]) == (409, "Known already")


def test_who_gives_up_while_the_driver_is_asked_is_looked_after_all_the_same(forgetful, sleeper):
    """What the daemon has open for a caller is the next one's by then, whose end is not this test's."""
    body = json.dumps({"secret": forgetful.secret(NEW_ID), **claim(forgetful, sleeper)}).encode()
    head = f"PUT /v1/workloads/{NEW_ID} HTTP/1.1\r\nHost: nls\r\nContent-Length: {len(body)}\r\n\r\n"
    before = sockets_of(forgetful.process.pid)
    with ExitStack() as others:
        with open_simulated_gpu(forgetful) as ledger:
            fcntl.flock(ledger, fcntl.LOCK_EX)  # the driver does not answer
            with forgetful.connection() as gives_up:
                gives_up.sendall(head.encode() + body)
                for _ in range(3):
                    forgetful.status()  # who asks later is answered later
            wait_until(lambda: sockets_of(forgetful.process.pid) == before)
            for _ in range(3):
                others.enter_context(forgetful.connection())
            wait_until(lambda: sockets_of(forgetful.process.pid) == before + 3)
        forgetful.wait_for("brought back", phase="running")
    wait_until(lambda: sockets_of(forgetful.process.pid) == before)
    assert forgetful.workload("brought back")["supervisor_pid"] == os.getpid()
    assert sleeper.poll() is None


def test_orders_go_on_after_the_last_one_that_was_received(forgetful, sleeper):
    answered, entry = bring_back(forgetful, claim(forgetful, sleeper))
    assert (answered, entry["phase"]) == (201, "running")
    # The connection's process is the one that looks after it: this test goes on, so the workload stays.
    forgetful.request("POST", f"/v1/workloads/{NEW_ID}/suspend", b"{}")
    wait_until(lambda: forgetful.workload("brought back")["phase"] == "suspending")
    assert forgetful.nls("replay", str(forgetful.directory / "state" / "journal.db")).returncode == 0
