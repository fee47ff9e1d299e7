from __future__ import annotations

import os
from pathlib import Path

import pytest

from nls_scheduler.drivers.pids import HostPids, in_first_namespace

ME = os.getpid()


def host_proc(directory: Path, here: list[int], processes: dict[int, list[int]], start_time: str | None = None) -> Path:
    """A node's /proc that shows this process and others under the node's numbers."""
    stat = Path("/proc/self/stat").read_text()
    for name, pids in {"self": here, **{str(pid): pids for pid, pids in processes.items()}}.items():
        (directory / name).mkdir()
        (directory / name / "status").write_text("Name:\tx\nNSpid:\t" + "\t".join(map(str, pids)) + "\n")
        fields = stat.rpartition(") ")[2].split()
        fields[19] = start_time or fields[19]
        (directory / name / "stat").write_text("1 (x) " + " ".join(fields))
    return directory


def test_without_the_nodes_proc_a_pid_is_what_the_driver_says() -> None:
    assert HostPids.from_environment({}).local(4711) == 4711


def test_a_pid_of_the_node_becomes_the_one_of_our_namespace(tmp_path: Path) -> None:
    proc = host_proc(tmp_path, [9000, ME], {9000: [9000, ME], 9001: [9001, ME, 1], 9002: [9002]})
    pids = HostPids.from_environment({"NLS_HOST_PROC": str(proc)})
    assert pids.local(9000) == ME
    assert pids.local(9001) == ME
    assert pids.local(9002) is None
    assert pids.local(9999) is None


@pytest.mark.parametrize("named", ["/tmp", "/dev/null", "not/absolute", "\udcff\udcfe", "x" * 100_000])
def test_what_is_no_proc_is_one_sentence_and_not_a_node_of_strangers(named: str) -> None:
    with pytest.raises(ValueError, match="is not the node's /proc"):
        HostPids.from_environment({"NLS_HOST_PROC": named})


def test_a_process_of_a_neighbouring_namespace_with_the_same_number_is_not_ours(tmp_path: Path) -> None:
    proc = host_proc(tmp_path, [9000, ME], {9001: [9001, ME]}, start_time="1")
    assert HostPids(proc).local(9001) is None


@pytest.mark.parametrize("name", ["\x0bNSpid: 1 7", "\rNSpid: x", "\u2028NSpid:\t"])
def test_what_a_process_calls_itself_is_no_number_of_it(name: str, tmp_path: Path) -> None:
    proc = host_proc(tmp_path, [9000, ME], {9001: [9001, ME]})
    status = proc / "9001" / "status"
    status.write_bytes(status.read_bytes().replace(b"x", name.encode(), 1))
    assert HostPids(proc).local(9001) == ME


def test_the_namespace_is_known() -> None:
    assert in_first_namespace() == (str(Path("/proc/self/ns/pid").readlink()) == "pid:[4026531836]")
