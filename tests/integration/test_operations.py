"""What an administrator does with a running daemon: reload, look, act on workloads and Gpus, put it under systemd."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from daemon_process import NLS, ROOT, DaemonProcess
from nls_scheduler.client.daemon_client import DaemonClient
from nls_scheduler.wire.protocol import CommandMessage, ViewMessage
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNIT = ROOT / "node_scheduler" / "deploy" / "systemd" / "nls.service"
SOCKET_UNIT = UNIT.with_suffix(".socket")


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[tuple[DaemonProcess, Path]]:
    """A daemon with a configuration file of its own."""
    directory = tmp_path / "config"
    directory.mkdir()
    daemon = DaemonProcess(tmp_path)
    daemon.environment["JUPYTER_CONFIG_DIR"] = str(directory)
    with daemon:
        yield daemon, directory / "nls_config.py"


def reload(daemon: DaemonProcess) -> None:
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)


def submitted_request(daemon: DaemonProcess) -> int:
    """What a notebook that asks for nothing gets, in bytes."""
    code, view = daemon.request("POST", "/v1/workloads", b'{"kind": "notebook"}')
    assert code == 201
    daemon.request("DELETE", f"/v1/workloads/{view['id']}")
    return int(view["request_bytes"])


def test_a_new_configuration_is_read_at_sighup(configured: tuple[DaemonProcess, Path]) -> None:
    daemon, file = configured
    assert submitted_request(daemon) == 8 * 2**30
    file.write_text("c.NlsScheduler.default_request = '0.25'\n")
    reload(daemon)
    wait_until(lambda: submitted_request(daemon) == 4 * 2**30)
    wait_until(lambda: "has been read again" in daemon.log)
    assert "read at the start only" not in daemon.log
    assert daemon.status()["message"] is None


def test_a_new_configuration_is_read_at_a_sighup_that_comes_while_the_daemon_starts(
    configured: tuple[DaemonProcess, Path],
) -> None:
    daemon, file = configured
    daemon.stop()
    new = "c.NlsScheduler.default_request = '0.25'\n"
    changes = f"import os, pathlib, signal\npathlib.Path({str(file)!r}).write_text({new!r})\n"
    file.write_text(f"{changes}os.kill(os.getpid(), signal.SIGHUP)\n")
    daemon.start()
    wait_until(lambda: submitted_request(daemon) == 4 * 2**30)


def test_what_is_read_at_the_start_only_is_named_at_sighup(configured: tuple[DaemonProcess, Path]) -> None:
    daemon, file = configured
    file.write_text("c.NlsScheduler.max_connections = 3\nc.NlsScheduler.observe_address = '127.0.0.1:1'\n")
    reload(daemon)
    wait_until(lambda: "max_connections, observe_address: read at the start only" in daemon.log)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("c.NlsScheduler.default_request = '0.25'\nc.NlsScheduler.stop_grace_s = 99", "contradicts reclaim_deadline_s"),
        ("c.NlsScheduler.colour = 'red'", "no setting 'colour'"),
        ("syntax error here", "cannot be read"),
    ],
)
def test_a_contradictory_configuration_is_refused_and_the_old_one_stays_until_a_good_one_comes(
    configured: tuple[DaemonProcess, Path], text: str, says: str
) -> None:
    daemon, file = configured
    file.write_text(text)
    reload(daemon)
    message = wait_until(lambda: daemon.status()["message"])
    assert "refused and the old one stays" in message
    assert says in message
    wait_until(lambda: says in daemon.log)
    assert submitted_request(daemon) == 8 * 2**30
    file.write_text("c.NlsScheduler.default_request = '0.25'\n")
    reload(daemon)
    wait_until(lambda: daemon.status()["message"] is None)
    assert submitted_request(daemon) == 4 * 2**30


def test_a_gpu_that_breaks_is_vacated_and_told_and_returns_at_an_administrators_word(daemon: DaemonProcess) -> None:
    first = daemon.status()["gpus"][0]["uuid"]
    fault = daemon.directory / "state" / "simulated" / f"unhealthy-{first}"
    fault.write_text("a simulated Xid 79")
    gpu = wait_until(lambda: next((g for g in daemon.status()["gpus"] if not g["healthy"]), None))
    assert (gpu["uuid"], gpu["unhealthy_reason"]) == (first, "a simulated Xid 79")
    fault.unlink()
    # That it no longer shows an error proves nothing: somebody has to say so.
    running = daemon.start_nls("run", "--name", "elsewhere", "--", "sleep", "600")
    assert daemon.wait_for("elsewhere", phase="running")["current"] != [first]
    assert not daemon.status()["gpus"][0]["healthy"]
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=20)
    done = daemon.nls("gpu", "return", "0")
    assert (done.returncode, done.stdout) == (0, f"GPU 0 ({first}) is in service.\n")
    assert daemon.status()["gpus"][0]["healthy"]
    told = [(e["event"], e["reason"]) for e in json.loads(daemon.nls("history", "--json").stdout) if e["kind"] == "gpu"]
    assert told == [
        ("gpu_unhealthy", "a simulated Xid 79"),
        ("gpu_healthy", "in service again after: a simulated Xid 79"),
    ]
    assert " GPU 0 gpu_healthy: in service again after: a simulated Xid 79\n" in daemon.log
    assert json.loads(daemon.nls("gpu", "return", first, "--json").stdout)["uuid"] == first
    unknown = daemon.nls("gpu", "return", "7")
    assert (unknown.returncode, "There is no GPU '7'" in unknown.stderr) == (3, True)


def test_a_user_suspends_resumes_and_releases_by_name_or_id(daemon: DaemonProcess) -> None:
    async def story() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook", name="analysis")
        async with client.supervise(view["id"]):
            # Whose supervisor does not end it, as here, is ended after some seconds, and can start.
            for words, says in (
                (("suspend", "analysis"), ("is being suspended",)),
                (("resume", view["id"][:6]), ("comes back as soon as there is room", "starts on GPU 0")),
                (("release", view["id"]), ("is being released",)),
            ):
                done = await asyncio.to_thread(daemon.nls, *words)
                assert (done.returncode, done.stderr) == (0, "")
                assert any(f"analysis ({view['id']}) {said}" in done.stdout for said in says), done.stdout

    asyncio.run(story())
    missing = daemon.nls("suspend", "nobody")
    assert (missing.returncode, missing.stdout) == (3, "")
    assert "There is no workload 'nobody'" in missing.stderr


@pytest.mark.long("what administrators do in rare cases")
def test_what_cannot_be_suspended_is_said_with_the_reason_and_programs_get_json(daemon: DaemonProcess) -> None:
    running = daemon.start_nls("run", "--name", "training", "--", "sleep", "600")
    daemon.wait_for("training", phase="running")
    refused = daemon.nls("suspend", "training")
    assert (refused.returncode, "only notebooks can be suspended" in refused.stderr) == (3, True)
    assert "training" in (resumed := daemon.nls("resume", "training").stdout)
    assert resumed.endswith(" runs on GPU 0.\n")
    released = daemon.nls("release", "training", "--json")
    assert set(json.loads(released.stdout)) == {"released"}
    running.communicate(timeout=20)
    wait_until(lambda: daemon.status()["workloads"] == [])


def test_who_has_failed_is_not_suspended_and_reads_what_helps(daemon: DaemonProcess) -> None:
    async def story() -> None:
        client = await DaemonClient.connect(daemon.socket)
        view = await client.submit(kind="notebook", name="broken")
        async with client.supervise(view["id"]) as link:
            async for message in link:
                if isinstance(message, CommandMessage):
                    await link.send("start_failed", command_id=message.command_id, reason="it is broken")
                elif isinstance(message, ViewMessage) and message.view["phase"] == "failed":
                    break
            refused = await asyncio.to_thread(daemon.nls, "suspend", "broken")
        assert (refused.returncode, refused.stdout) == (3, "")
        assert "It has failed, and is on no GPU: `nls resume` gives it another try." in refused.stderr
        await client.release(view["id"])

    asyncio.run(story())


@pytest.mark.long("what administrators do in rare cases")
def test_the_doctor_knows_the_daemon_and_its_exit_code_says_whether_something_stands_in_the_way(
    daemon: DaemonProcess,
) -> None:
    done = daemon.nls("doctor", "--json")
    found = {finding["check"]: finding for finding in json.loads(done.stdout)}
    assert found["socket"]["level"] == found["daemon"]["level"] == found["permissions"]["level"] == "ok"
    assert "2 simulated GPUs" in found["daemon"]["text"]
    assert done.returncode == int(any(finding["level"] == "error" for finding in found.values()))
    assert "ok       daemon: nls " in daemon.nls("doctor").stdout
    wrong = daemon.nls("--socket", "/nowhere/nls.sock", "doctor")
    assert (wrong.returncode, "-> nls up --socket /nowhere/nls.sock" in wrong.stdout) == (1, True)


def test_prometheus_reads_the_node_and_what_has_happened(daemon: DaemonProcess) -> None:
    assert daemon.nls("run", "--name", "secret-name", "--", "true").returncode == 0
    code, text = daemon.request("GET", "/metrics")
    assert code == 200
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    names = {sample.name for sample in samples}
    assert {
        "nls_gpu_memory_total_bytes", "nls_gpu_memory_paper_free_bytes", "nls_gpu_memory_borrowed_bytes",
        "nls_workloads", "nls_longest_wait_seconds", "nls_moves_total", "nls_evictions_total", "nls_suspends_total",
        "nls_reclaim_latency_seconds_bucket", "nls_step_duration_seconds_bucket", "nls_poll_duration_seconds_bucket",
    } <= names  # fmt: skip
    assert next(s.value for s in samples if s.name == "nls_step_duration_seconds_count") > 0
    assert next(s.value for s in samples if s.name == "nls_poll_duration_seconds_count") > 0
    assert "secret-name" not in text
    if shutil.which("promtool"):
        found = subprocess.run(
            ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
        )
        # Names of labels as dcgm-exporter has them, so that both can be joined: that alone is no fault here.
        dcgm = r"nls_gpu_\w+ label names should be written in 'snake_case' not 'camelCase'"
        assert [line for line in found.stderr.splitlines() if not re.fullmatch(dcgm, line)] == []


def test_only_the_named_gpus_are_served(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, "3x16GiB", "--gpus", "1,2,5") as daemon:
        status = daemon.status()
        assert [gpu["index"] for gpu in status["gpus"]] == [1, 2]
        assert "This machine has no GPU 5: it has 0 (GPU-" in status["message"]
    refused = subprocess.run(
        [*NLS, "--socket", str(tmp_path / "s"), "up", "--gpus", "first"], env=daemon.environment,
        capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (refused.returncode, "write UUIDs or indexes" in refused.stderr) == (2, True)


def test_systemd_is_told_when_the_daemon_answers_and_when_it_ends(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(tmp_path / "notify"))
        notify.settimeout(20)
        daemon = DaemonProcess(tmp_path)
        daemon.environment["NOTIFY_SOCKET"] = str(tmp_path / "notify")
        with daemon:
            assert notify.recv(100) == b"READY=1"
        assert notify.recv(100) == b"STOPPING=1"


def test_the_unit_is_what_systemd_understands_and_what_the_design_promises(tmp_path: Path) -> None:
    text = UNIT.read_text()
    for line in ("KillMode=process", "Restart=always", "RuntimeDirectory=nls", "Type=notify"):
        assert line in text.splitlines()
    assert "--socket /run/nls/nls.sock" in text
    assert "ListenStream=/run/nls/nls.sock" in SOCKET_UNIT.read_text().splitlines()
    if shutil.which("systemd-analyze"):
        units = [tmp_path / name for name in ("nls.service", "nls.socket")]
        units[0].write_text(text.replace("/usr/local/bin/nls", shutil.which("true") or "/bin/true"))
        units[1].write_text(SOCKET_UNIT.read_text())
        environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
        command = ["systemd-analyze", "verify", *map(str, units)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert not any(unit.name in done.stderr for unit in units), done.stderr
