"""The system daemon as its unit runs it: a user of its own that may end processes and read environments, no more."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon_process import ROOT, DaemonProcess
from integration.test_who_asks import user
from nls_scheduler.processes.proc import look_up, workload_of
from waiting import wait_until

SYSTEMD = ROOT / "node_scheduler" / "deploy" / "systemd"
SERVICE = 65532
ALICE = 65531
CAPABILITIES = {"CAP_KILL": 5, "CAP_SYS_PTRACE": 19}
# Python itself may lie where only root may read.
READS_PYTHON = {"CAP_DAC_READ_SEARCH": 2}
AS_THE_SERVICE = """
import ctypes, json, os, sys
uid, mask, arguments = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
KEEP_CAPABILITIES, DUMPABLE = 8, 4
libc.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
if libc.capset(header, (ctypes.c_uint32 * 6)(mask, mask, 0, 0, 0, 0)):
    sys.exit("capset: " + os.strerror(ctypes.get_errno()))
libc.prctl(DUMPABLE, 1, 0, 0, 0)
sys.argv = ["nls", *arguments]
"""
SERVES = """
from nls_scheduler.cli import main
sys.exit(main())
"""
TELLS = """
from nls_scheduler.processes.proc import workload_of
unit, pid = arguments
if libc.capset(header, (ctypes.c_uint32 * 6)(int(unit), int(unit), 0, 0, 0, 0)):
    sys.exit("capset: " + os.strerror(ctypes.get_errno()))
print(workload_of(int(pid)))
"""
GRANDCHILD = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True).wait()"


def mask_of(capabilities: dict[str, int]) -> int:
    return sum(1 << number for number in capabilities.values())


def as_the_service(code: str, *words: str) -> list[str]:
    mask = mask_of(CAPABILITIES | READS_PYTHON)
    return [sys.executable, "-c", AS_THE_SERVICE + code, json.dumps([SERVICE, mask, words])]


class ServiceDaemon(DaemonProcess):
    """A daemon with the capabilities of the unit and without a right to anybody's files."""

    def __init__(self, directory: Path, *settings: str) -> None:
        served = directory / "run"
        served.mkdir()
        (served / "state").mkdir(mode=0o700)
        for owned in (served, served / "state"):
            os.chown(owned, SERVICE, SERVICE)
        for parent in served.parents:
            if not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
        arguments = [word for setting in settings for word in ("--set", setting)]
        super().__init__(served, "2x16GiB", *arguments)
        self.environment["NLS_DAEMON_UID"] = str(SERVICE)
        self._command = as_the_service(SERVES, *self._command[self._command.index("--state-dir") :])


@pytest.mark.long("processes of others whose supervisors do nothing")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_ends_the_processes_of_others_whose_supervisors_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NLS_DAEMON_UID", str(SERVICE))
    with ServiceDaemon(tmp_path, "stop_timeout_s=0.1", "stop_grace_s=0.1") as daemon:
        assert daemon.process is not None
        assert f"\nUid:\t{SERVICE}\t{SERVICE}\t{SERVICE}\t{SERVICE}\n" in status_of(daemon.process.pid)
        running = daemon.start_nls("run", "--name", "deaf", "--", sys.executable, "-c", GRANDCHILD)
        entry = daemon.wait_for("deaf", phase="running")
        family = of_workload(entry["id"])
        assert len(family) >= 2
        frozen = [running.pid, *(pid for pid in guardians(running.pid) if pid not in family)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            assert daemon.request("DELETE", f"/v1/workloads/{entry['id']}")[0] == 202
            wait_until(lambda: not of_workload(entry["id"]))
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)
        daemon.socket.chmod(0o666)
        with user(daemon, ALICE) as alice:
            assert alice.ask("GET", "/v1/status")[1]["administrator"] is False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("whose", [0, ALICE])
def test_it_knows_of_which_workload_anybodys_process_is_with_the_capabilities_of_the_unit_alone(whose: int) -> None:
    environment = {**os.environ, "NLS_WORKLOAD": "0123456789ab"}
    with subprocess.Popen(["sleep", "600"], env=environment, user=whose) as process:
        command = as_the_service(TELLS, str(mask_of(CAPABILITIES)), str(process.pid))
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        process.kill()
    assert told.stdout == "0123456789ab\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_them_it_knows_nothing_of_others_and_goes_on() -> None:
    with subprocess.Popen(["sleep", "600"], env={**os.environ, "NLS_WORKLOAD": "0123456789ab"}) as process:
        told = subprocess.run(
            as_the_service(TELLS, "0", str(process.pid)), capture_output=True, text=True, check=True
        )  # fmt: skip
        process.kill()
    assert told.stdout == "None\n"


def status_of(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def guardians(parent: int) -> list[int]:
    return [pid for pid in pids() if (record := look_up(pid)) is not None and record.parent_pid == parent]


def of_workload(workload: str) -> set[int]:
    """Processes that name it and run something: a zombie does not."""
    return {pid for pid in pids() if workload_of(pid) == workload}


def pids() -> list[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def test_the_unit_grants_just_what_was_tried_here() -> None:
    unit = (SYSTEMD / "nls.service").read_text(encoding="utf-8")
    granted = re.findall(r"^(?:AmbientCapabilities|CapabilityBoundingSet)=(.*)$", unit, re.MULTILINE)
    assert [set(line.split()) for line in granted] == [set(CAPABILITIES)] * 2
    name = re.search(r"^User=(\w+)$", unit, re.MULTILINE)
    assert name is not None
    assert f"\nu {name[1]} - " in (SYSTEMD / "nls.sysusers.conf").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on the PATH")
def test_the_unit_exposes_little(tmp_path: Path) -> None:
    unit = tmp_path / "nls.service"
    unit.write_text((SYSTEMD / "nls.service").read_text(encoding="utf-8"), encoding="utf-8")
    told = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"exposure level for nls.service: ([\d.]+)", told.stdout)
    if found is None:
        pytest.skip(f"systemd-analyze rates no file here: {told.stderr.strip()}")
    assert float(found[1]) < 2.5
