from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.events import PlacedUse
from nls_scheduler.core.model.ids import GpuUuid, ProcessId, WorkloadId
from nls_scheduler.daemon.attribution import Attribution, Known
from nls_scheduler.daemon.ports import GpuSample
from nls_scheduler.processes import cgroups, guardian, proc
from nls_scheduler.processes.guardian import name_while_held
from nls_scheduler.processes.proc import (
    alive,
    ancestors,
    command_line,
    end_all,
    left_of,
    look_up,
    some_left_of,
    workload_of,
    workloads_on,
)
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = GpuUuid("GPU-of-attribution"), GpuUuid("GPU-beside-it")
W = WorkloadId("w-attribution")
ME = os.getuid()


class Family:
    """A process, its child in a session of its own, and a stray that only names the workload."""

    def __init__(self) -> None:
        code = (
            "import os, subprocess, sys\n"
            "child = subprocess.Popen(['sleep', '600'], start_new_session=True, env={})\n"
            "print(child.pid, flush=True)\n"
            "sys.stdin.read()\n"
        )
        self.parent = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.parent.stdout is not None
        self.child = int(self.parent.stdout.readline())
        self.stray = subprocess.Popen(["sleep", "600"], env={"NLS_WORKLOAD": W})
        self.stranger = subprocess.Popen(["sleep", "600"], env={"NLS_WORKLOAD": "another"})
        # A process that has just been started has no environment yet.
        for process in (self.stray, self.stranger):
            wait_until(lambda pid=process.pid: Path(f"/proc/{pid}/environ").read_bytes())

    def id(self, pid: int) -> ProcessId:
        record = look_up(pid)
        assert record is not None
        return record.id

    def close(self) -> None:
        end_all(W, ME, [], 5)
        for process in (self.parent, self.stray, self.stranger):
            process.kill()
            process.communicate()


@pytest.fixture
def family() -> Iterator[Family]:
    family = Family()
    child = family.id(family.child)
    yield family
    end_all(WorkloadId("none"), ME, [child], 5)
    family.close()


def readings(attribution: Attribution, known: Known, *pids: ProcessId) -> tuple[set[ProcessId], set[ProcessId]]:
    reading = attribution.readings({A: GpuSample(10, dict.fromkeys(pids, 5))}, known)[A]
    assert all(use == PlacedUse(W, use.process, 5) for use in reading.placed)
    return {use.process for use in reading.placed}, set(reading.unplaced or {})


def test_descendants_and_namesakes_belong_to_the_workload_and_strangers_do_not(family: Family) -> None:
    parent, child = family.id(family.parent.pid), family.id(family.child)
    stray, stranger = family.id(family.stray.pid), family.id(family.stranger.pid)
    known = Known({parent: W}, {W: ME})
    placed, unplaced = readings(Attribution(), known, parent, child, stray, stranger)
    assert placed == {parent, child, stray}
    assert unplaced == {stranger}


def test_what_a_workload_s_processes_use_beside_the_gpus_that_it_has_was_placed_by_nobody(
    family: Family, caplog: pytest.LogCaptureFixture
) -> None:
    parent, child = family.id(family.parent.pid), family.id(family.child)
    attribution, there = Attribution(), GpuSample(10, {parent: 5, child: 5})
    known = Known({parent: W}, {W: ME}, places={parent: (B,)})
    for _ in range(2):
        read = attribution.readings({A: there, B: there}, known)
        assert (read[A].placed, read[A].unplaced) == ((), {parent: 5, child: 5})
        assert ([use.process for use in read[B].placed], read[B].unplaced) == ([parent, child], {})
    assert caplog.text.count(f"process {child.pid} of {W} uses {A}, which it was not given") == 1
    ended = Known({parent: W}, {W: ME})  # what it leaves behind is not a stranger's
    assert [use.process for use in attribution.readings({A: there}, ended)[A].placed] == [parent, child]


def test_a_name_counts_only_for_the_workloads_own_user_and_only_while_there_is_such_a_workload(family: Family) -> None:
    stray = family.id(family.stray.pid)
    assert readings(Attribution(), Known({}, {W: ME + 1}), stray) == (set(), {stray})
    assert readings(Attribution(), Known({}, {}), stray) == (set(), {stray})


def test_what_was_found_out_is_kept_when_the_process_can_no_longer_be_asked(family: Family) -> None:
    attribution, stray = Attribution(), family.id(family.stray.pid)
    known = Known({}, {W: ME})
    assert readings(attribution, known, stray)[0] == {stray}
    family.stray.kill()
    family.stray.wait()
    assert readings(attribution, known, stray)[0] == {stray}
    assert readings(attribution, known) == (set(), set())
    assert readings(attribution, known, stray)[1] == {stray}


def test_a_reused_pid_is_another_process(family: Family) -> None:
    stray = family.id(family.stray.pid)
    before = ProcessId(stray.pid, stray.start_time - 1)
    assert readings(Attribution(), Known({}, {W: ME}), before) == (set(), {before})
    assert not alive(before)
    assert alive(stray)


@pytest.mark.skipif(ME != 0, reason="only root can have started what another user may not end")
def test_a_process_that_is_not_its_owners_is_not_ended_and_not_said_to_have_ended() -> None:
    with subprocess.Popen(["sleep", "600"]) as sudo:
        try:
            record = look_up(sudo.pid)
            assert record is not None
            assert not end_all(W, 65534, [record.id], 1.0)
            assert alive(record.id)
        finally:
            sudo.kill()
    assert end_all(W, 65534, [record.id], 1.0)


def test_what_is_left_of_a_workload_is_its_family_and_its_namesakes_of_its_user(family: Family) -> None:
    parent = family.id(family.parent.pid)
    assert set(left_of(W, ME, [parent])) == {family.parent.pid, family.child, family.stray.pid}
    assert left_of(W, ME + 1, [parent]) == {}
    assert left_of(WorkloadId("nobody"), ME, [ProcessId(parent.pid, parent.start_time - 1)]) == {}


def test_one_look_tells_of_many_workloads_which_may_have_left_something(
    family: Family, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parent = family.id(family.parent.pid)
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    (tmp_path / "user.slice" / "nls-grouped-0a1b2c3d").mkdir(parents=True)
    known, grouped, gone = WorkloadId("known"), WorkloadId("grouped"), WorkloadId("gone")
    left = {W: [], known: [parent], grouped: [], gone: [ProcessId(parent.pid, parent.start_time - 1)]}
    assert some_left_of({workload: (ME, processes) for workload, processes in left.items()}) == {W, known, grouped}
    assert some_left_of({W: (ME + 1, [])}) == set(), "another user's processes are not read"


def test_however_much_a_process_says_of_itself_little_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment is as large as its process says, without any right: gigabytes, by prctl(2)."""
    variables = {f"V{number}": "x" * 100_000 for number in range(15)}
    with subprocess.Popen(["sleep", "600"], env={"NLS_WORKLOAD": W, **variables}) as process:
        try:
            wait_until(lambda: workload_of(process.pid) == W)
            assert len(proc._environment(process.pid)) == 2**20
            monkeypatch.setattr(proc, "environment_of", lambda *_: b"\0" * 2**20)
            assert workload_of(process.pid) is None
        finally:
            process.kill()


def test_a_process_whose_first_thread_has_ended_lives_as_long_as_another_one_and_is_ended() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "NLS_WORKLOAD": W}) as process:
        try:
            state = Path(f"/proc/{process.pid}/stat")
            wait_until(lambda: state.read_bytes().rpartition(b")")[2].split()[0] == b"Z")
            record = look_up(process.pid)
            assert record is not None
            assert set(left_of(W, ME, [record.id])) == {process.pid}
            assert end_all(W, ME, [record.id], 5)
            assert look_up(process.pid) is None
        finally:
            process.kill()


def test_ending_a_workload_ends_all_of_it_and_nobody_else(family: Family) -> None:
    parent, child = family.id(family.parent.pid), family.id(family.child)
    stray = family.id(family.stray.pid)
    assert end_all(W, ME, [parent], 5)
    assert not any(alive(process) for process in (parent, child, stray))
    assert family.stranger.poll() is None
    assert alive(family.id(os.getpid()))


def test_while_a_driver_may_have_one_locked_nothing_of_a_workload_is_ended(family: Family) -> None:
    child, stray = family.id(family.child), family.id(family.stray.pid)
    with ThreadPoolExecutor(1) as executor, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        held.bind("\0" + name_while_held(child.pid, child.start_time))
        ending = executor.submit(end_all, W, ME, [child], 5)
        with pytest.raises(TimeoutError):
            ending.result(timeout=0.3)
        assert alive(child)
        assert alive(stray)
        held.close()
        assert ending.result(timeout=15)
    assert not alive(child)


def test_who_says_for_ever_that_a_driver_holds_it_is_ended_all_the_same(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "HELD_PATIENCE_S", 0.1)
    child = family.id(family.child)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
        held.bind("\0" + name_while_held(child.pid, child.start_time))
        assert end_all(W, ME, [child], 5)
    assert not alive(child)


def test_who_runs_for_a_workload_is_known_by_the_gpu_that_it_was_started_on() -> None:
    here = WorkloadId("w-here")
    places = {here: A, "w-elsewhere": "GPU-b"}
    started = [
        subprocess.Popen(
            ["sleep", "600"], env={"NLS_WORKLOAD_MARK": "5eal", "NLS_WORKLOAD": name, "CUDA_VISIBLE_DEVICES": gpu}
        )
        for name, gpu in places.items()
    ]
    try:
        wait_until(lambda: all(Path(f"/proc/{process.pid}/environ").read_bytes() for process in started))
        assert workloads_on([A]) == {(here, "5eal")}
        assert workloads_on([GpuUuid("GPU-c")]) == set()
        assert command_line(here, started[0].pid) == "sleep 600"
        assert command_line(here, started[1].pid) is None
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_process_is_its_own_first_ancestor_and_a_variable_need_not_be_there() -> None:
    line = [record.id.pid for record in ancestors(os.getpid())]
    assert line[:2] == [os.getpid(), os.getppid()]
    assert workload_of(2**22 + 1) is None
    assert look_up(2**22 + 1) is None


def guarded(script: Path, directory: Path, code: str) -> subprocess.Popen[str]:
    """A command below a guardian, both of which name the workload, after it has printed a line."""
    command = [sys.executable, "-I", "-S", str(script), "--session", "--remove", str(directory), "--"]
    process = subprocess.Popen(
        [*command, sys.executable, "-c", code], env={"NLS_WORKLOAD": W}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_guardian_whose_family_is_ended_removes_what_it_was_to_remove(tmp_path: Path) -> None:
    directory = tmp_path / "sockets"
    directory.mkdir()
    (directory / "one").touch()
    code = "import sys, time; print('up', flush=True); time.sleep(600)"
    with guarded(Path(guardian.__file__), directory, code) as process:
        assert end_all(W, ME, [], 5)
        assert process.wait() == 137
    assert not directory.exists()


def test_a_process_that_only_calls_itself_a_guardian_is_ended_after_its_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc, "GUARDIANS_PATIENCE_S", 0.1)
    pretender = tmp_path / "guardian.py"
    pretender.write_text("print('up', flush=True)\nimport time; time.sleep(600)")
    with guarded(pretender, tmp_path / "none", "") as process:
        assert end_all(W, ME, [], 5)
        assert process.wait() == -signal.SIGKILL


def test_who_is_older_than_who_has_its_parents_number_is_nobodys_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """While /proc is read, parent 500 ends, and a process of the workload gets its number."""

    def record(pid: int, start_time: int, parent_pid: int) -> proc.ProcessRecord:
        return proc.ProcessRecord(ProcessId(pid, start_time), parent_pid, ME)

    orphan, namesake, child = record(400, 10, 500), record(500, 90, 1), record(600, 95, 500)
    records = {each.id.pid: each for each in (orphan, namesake, child)}
    monkeypatch.setattr(proc, "_living", lambda: iter(records.items()))
    monkeypatch.setattr(proc, "look_up", records.get)
    assert set(left_of(W, ME, [namesake.id])) == {500, 600}
    assert [each.id.pid for each in ancestors(400)] == [400]
    assert [each.id.pid for each in ancestors(600)] == [600, 500]
    monkeypatch.setattr(os, "listdir", lambda _: [str(pid) for pid in records])
    monkeypatch.setattr(guardian, "read_stat", lambda pid: (records[pid].parent_pid, records[pid].id.start_time))
    assert guardian.descendants(500) == {600: 95}
