from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from nls_scheduler import __version__, doctor
from nls_scheduler.cli.doctor import render
from nls_scheduler.doctor import Finding
from nls_scheduler.drivers import checkpoint_trial, cuda_checkpoints, nvml_survey, pids
from nls_scheduler.drivers.nvml_survey import Surveyed
from nls_scheduler.wire import locate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPUS = [{"uuid": "a", "index": 0, "links": {"b": "nvlink"}}, {"uuid": "b", "index": 1, "links": {"a": "nvlink"}}]
GOOD: dict[str, Any] = {"protocol": 1, "version": __version__, "message": None, "gpus": GPUS, "simulated": True}


@contextmanager
def answering(path: Path, body: bytes) -> Iterator[Path]:
    """Somebody at a socket who answers everything with `body`."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    listening.settimeout(20)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(20)
                if connection.recv(65536):
                    connection.sendall(body)

    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def http(status: dict[str, Any]) -> bytes:
    body = json.dumps(status).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body


def about(findings: list[Finding], check: str) -> Finding:
    return next(finding for finding in findings if finding.check == check)


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({}, "ok", "2 simulated GPUs"),
        ({"protocol": 2}, "error", "protocol 2"),
        ({"version": "0.0.1"}, "warning", "nls 0.0.1"),
        ({"message": "The journal is full."}, "warning", "The journal is full."),
    ],
)
def test_a_daemon_that_answers_is_judged(tmp_path: Path, changes: dict[str, Any], level: str, says: str) -> None:
    with answering(tmp_path / "s", http(GOOD | changes)) as path:
        found = about(doctor.examine(path, {}), "daemon")
    assert (found.level, says in found.text) == (level, True)
    assert (found.advice is None) == (level == "ok")


def test_nothing_more_is_read_in_the_status_of_another_protocol(tmp_path: Path) -> None:
    with answering(tmp_path / "s", http({"protocol": 2, "version": "9.0", "gpus": {"a": "?"}})) as path:
        found = about(doctor.examine(path, {}), "daemon")
    assert (found.level, "protocol 2 (nls 9.0)" in found.text) == ("error", True)


def test_a_single_gpu_is_counted_as_one(tmp_path: Path) -> None:
    with answering(tmp_path / "s", http(GOOD | {"gpus": GPUS[:1]})) as path:
        assert about(doctor.examine(path, {}), "daemon").text.endswith(", 1 simulated GPU")


@pytest.mark.parametrize("body", [b"", b"nonsense\r\n\r\n", http({"version": "1"}), b"HTTP/1.1 200 OK\r\n\r\n[]"])
def test_whatever_else_answers_is_no_daemon_of_ours(tmp_path: Path, body: bytes) -> None:
    with answering(tmp_path / "s", body) as path:
        assert about(doctor.examine(path, {}), "daemon").level == "error"


def test_no_daemon_is_an_error_only_where_one_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "SYSTEM_SOCKET", tmp_path / "system.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert about(doctor.examine(None, {}), "socket").level == "warning"
    named = about(doctor.examine(None, {"NLS_SOCKET": str(tmp_path / "named.sock")}), "socket")
    assert (named.level, named.advice) == ("error", f"nls up --socket {tmp_path}/named.sock")
    long = about(doctor.examine(tmp_path / ("x" * 108), {}), "socket")
    assert (long.level, "Linux allows 107" in long.text) == ("error", True)


def test_where_the_nodes_daemon_was_killed_nobody_is_told_that_one_starts_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locate, "SYSTEM_SOCKET", tmp_path / "system.sock")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(locate.SYSTEM_SOCKET))
    found = about(doctor.examine(None, {}), "socket")
    assert (found.level, found.advice) == ("error", "clients wait for it, and start none of their own")
    assert "its daemon was killed or is being started" in found.text


def test_a_socket_that_others_could_replace_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.touch()
    tmp_path.chmod(0o755)
    assert doctor.permissions(path)[0].level == "ok"
    tmp_path.chmod(0o777)
    assert doctor.permissions(path)[0].level == "error"
    tmp_path.chmod(0o1777)
    assert doctor.permissions(path)[0].level == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_daemon_of_somebody_else_is_an_error_unless_it_is_roots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    path.touch()
    os.chown(path, 65534, 65534)
    assert "user 65534" in doctor.permissions(path)[0].text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_daemon_of_whom_the_administrator_names_is_as_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    path.touch()
    for made in (tmp_path, path):
        os.chown(made, 1234, 1234)
    assert doctor.permissions(path)[0].level == "error"
    monkeypatch.setenv("NLS_DAEMON_UID", "1234")
    assert doctor.permissions(path)[0].level == "ok"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize(("account", "level"), [(997, "ok"), (1000, "error")])
def test_a_service_may_own_the_directory_that_root_gave_it_and_a_person_may_not(
    tmp_path: Path, account: int, level: str
) -> None:
    """As systemd's RuntimeDirectory= does for the account of nls.service."""
    run = tmp_path / "nls"
    run.mkdir(mode=0o755)
    path = run / "nls.sock"
    path.touch()
    for made in (run, path):
        os.chown(made, account, account)
    assert doctor.permissions(path)[0].level == level
    os.chown(tmp_path, 1000, 1000)
    assert doctor.permissions(path)[0].level == "error"


def test_whose_the_socket_is_is_told_by_the_name_of_an_account_of_the_system(tmp_path: Path) -> None:
    """People go by their numbers: their names are no part of a report."""
    (path := tmp_path / "s").touch()
    tmp_path.chmod(0o755)
    assert doctor.account(0) == "root (0)"
    assert doctor.account(123456) == "123456"
    assert doctor.account(os.geteuid()) in doctor.permissions(path)[0].text


def test_the_runtime_directory_may_be_missing_but_that_is_said(tmp_path: Path) -> None:
    assert doctor.runtime_directory({})[0].level == "warning"
    assert doctor.runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path / "none")})[0].level == "warning"
    assert doctor.runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})[0].level == "ok"


def test_the_runtime_directory_is_nothing_to_users_of_the_system_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that systemd starts have none, as The Littlest JupyterHub's."""
    monkeypatch.setattr(locate, "SYSTEM_SOCKET", tmp_path / "system.sock")
    assert about(doctor.examine(None, {}), "runtime directory").level == "warning"
    with answering(locate.SYSTEM_SOCKET, http(GOOD)):
        assert "runtime directory" not in {finding.check for finding in doctor.examine(None, {})}


def test_where_the_oom_killer_cannot_be_told_what_to_prefer_that_is_said(tmp_path: Path) -> None:
    assert doctor.out_of_memory(tmp_path / "none")[0].level == "warning"
    (writable := tmp_path / "oom_score_adj").touch()
    assert doctor.out_of_memory(writable)[0].level == "ok"


def test_no_driver_is_an_error_unless_the_gpus_are_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Any:
        raise OSError("There is no NVIDIA driver on this machine.")

    monkeypatch.setattr(nvml_survey, "survey", none)
    assert doctor.driver(simulated=False)[0].level == "error"
    assert doctor.driver(simulated=True) == [Finding("driver", "ok", "none is needed: the GPUs are simulated")]


def test_persistence_mode_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_survey, "survey", lambda: [Surveyed("H200", mode) for mode in (True, False, None)])
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: "550.54.15")
    findings = doctor.driver(simulated=False)
    assert [finding.level for finding in findings] == ["ok", "warning"]
    assert "off on GPU 1:" in about(findings, "persistence mode").text
    monkeypatch.setattr(nvml_survey, "survey", lambda: [Surveyed("H200", True)])
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: "615.71")
    assert [finding.level for finding in doctor.driver(simulated=False)] == ["ok", "ok"]


def test_a_gpu_that_is_lost_is_named_beside_those_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_survey, "survey", lambda: [Surveyed("H200", True), Surveyed(None, None)])
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: "615.71")
    found = [(finding.level, finding.text) for finding in doctor.driver(simulated=False)]
    assert ("error", "GPU 1 does not answer the driver any more") in found
    assert found[-1] == ("ok", "on")


def test_a_gpu_without_memory_of_its_own_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_survey, "survey", lambda: [Surveyed("NVIDIA GB10", True, has_memory=False)])
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: "580.126.09")
    found = [(finding.level, finding.text) for finding in doctor.driver(simulated=False)]
    assert found[1] == ("error", "the driver tells no memory of GPU 0 (NVIDIA GB10): it is not served")


def test_a_gpu_that_takes_one_process_at_a_time_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        nvml_survey, "survey", lambda: [Surveyed("H200", True), Surveyed("H200", True, is_shareable=False)]
    )
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: "580.126.09")
    finding = doctor.driver(simulated=False)[1]
    assert finding.level == "warning"
    assert "the compute mode of GPU 1 keeps a second process out" in finding.text
    assert finding.advice == "`nvidia-smi -i 1 -c DEFAULT` as root"


PASSED, FAILED = checkpoint_trial.Known(None), checkpoint_trial.Known("a trial on this node's driver failed: so")


@pytest.mark.parametrize(
    ("version", "installed", "trial", "freezes", "level", "says"),
    [
        ("580.1", True, PASSED, True, "ok", "can stand still here, by a trial on this driver (freeze_cells is on)"),
        ("580.1", True, PASSED, False, "ok", "(freeze_cells is off)"),
        ("580.1", True, None, True, "ok", "the first notebook tries it on this driver"),
        ("580.1", True, FAILED, True, "warning", "cannot stand still here: a trial on this node's driver failed: so"),
        ("550.54.15", True, None, True, "warning", "driver 550.54.15 is older than 570"),
        ("550.54.15", True, None, False, "ok", "driver 550.54.15 is older than 570"),
        (None, False, None, True, "warning", "cuda-core is not installed in this environment"),
    ],
)
def test_whether_running_cells_can_stand_still_is_told_with_its_reason(
    version: str | None,
    installed: bool,
    trial: checkpoint_trial.Known | None,
    freezes: bool,
    level: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(nvml_survey, "driver_version", lambda: version)
    monkeypatch.setattr(checkpoint_trial, "known", lambda: trial)
    monkeypatch.setattr(cuda_checkpoints, "known", lambda: trial)
    monkeypatch.setattr(cuda_checkpoints, "_there", lambda module: installed)
    gpus = [gpu | {"freezes": freezes} for gpu in GPUS]
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    (found,) = doctor.standing_cells(gpus, environ, simulated=False)
    assert (found.level, found.advice is None) == (level, level == "ok")
    assert says in found.text
    (tmp_path / "control").touch()
    (under_mps,) = doctor.standing_cells(gpus, environ, simulated=False)
    assert "cannot stand still here" in under_mps.text


def test_simulated_gpus_can_always_stand_still_and_a_pool_may_be_set_apart() -> None:
    gpus = [gpu | {"freezes": gpu["index"] == 1} for gpu in GPUS]
    (found,) = doctor.standing_cells(gpus, {}, simulated=True)
    assert "can stand still here, on simulated GPUs (freeze_cells is on for GPU 1)" in found.text


@pytest.mark.parametrize(
    ("there", "levels"),
    [
        ({"nvidia-ml-py": "13", "torch": "2.13"}, ["ok"]),
        ({"nvidia-ml-py": "13", "cupy": "14.2"}, ["ok"]),  # as conda-forge calls it
        ({"nvidia-ml-py": "13"}, ["ok", "warning"]),
        ({"torch": "2.13"}, ["error", "ok"]),
        ({"nvidia-ml-py": "13", "pynvml": "13.0.1", "cupy-cuda13x": "14"}, ["warning", "ok"]),
    ],
)
def test_libraries_that_are_missing_or_in_the_way_are_named(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, str], levels: list[str]
) -> None:
    monkeypatch.setattr(doctor, "_version", there.get)
    assert [finding.level for finding in doctor.libraries()] == levels


def test_small_or_missing_shared_memory_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.shared_memory(tmp_path / "none")[0].level == "warning"
    monkeypatch.setattr(doctor, "SMALL_SHM_BYTES", 2**60)
    assert "--shm-size" in str(doctor.shared_memory(tmp_path)[0].advice)
    monkeypatch.setattr(doctor, "SMALL_SHM_BYTES", 1)
    assert doctor.shared_memory(tmp_path)[0].level == "ok"


def test_a_kernel_without_peer_pidfds_and_a_namespace_of_its_own_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_peer_pidfd", lambda: False)
    monkeypatch.setattr(pids, "in_first_namespace", lambda: False)
    assert [finding.check for finding in doctor.kernel({})] == ["kernel", "pid namespace"]
    assert [finding.check for finding in doctor.kernel({"NLS_HOST_PROC": "/host/proc"})] == ["kernel"]


def test_the_magic_is_found_where_ipython_would_find_it(tmp_path: Path) -> None:
    system, user = tmp_path / "etc", tmp_path / "home"
    assert doctor.autoload([system], user)[0].level == "warning"
    (user / "profile_default").mkdir(parents=True)
    (user / "profile_default" / "ipython_config.py").write_text("c.X.append('nls_jupyter')")
    assert doctor.autoload([system], user)[0].level == "ok"
    (system / "ipython").mkdir(parents=True)
    for kind in ("py", "json"):
        (file := system / "ipython" / f"ipython_kernel_config.{kind}").write_text("c.X.append('nls_jupyter')")
        assert str(file) in doctor.autoload([system], user)[0].text


@pytest.mark.parametrize("name", ["ipython_config.json", "ipython_kernel_config.json", "ipython_config.py"])
def test_the_magic_is_found_in_whatever_file_ipython_reads(tmp_path: Path, name: str) -> None:
    for folder in (tmp_path / "etc" / "ipython", tmp_path / "home" / "profile_default"):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(b"# caf\xe9: nls_jupyter")
        assert str(folder / name) in doctor.autoload([folder.parent], folder.parent)[0].text


def test_a_configuration_that_cannot_be_read_loads_nothing(tmp_path: Path) -> None:
    (tmp_path / "profile_default").mkdir()
    file = tmp_path / "profile_default" / "ipython_config.py"
    file.symlink_to(file)
    assert doctor.autoload([], tmp_path)[0].level == "warning"
    file.unlink()
    file.write_bytes(b"# caf\xe9")
    assert doctor.autoload([], tmp_path)[0].level == "warning"


@pytest.mark.parametrize(
    ("frontends", "is_built", "levels"),
    [
        ({}, False, []),  # a kernel's environment: JupyterLab runs in another one
        ({"jupyterlab": "4.5"}, True, ["ok"]),
        ({"jupyterlab": "4.5"}, False, ["warning"]),
        ({"notebook": "7.5"}, False, ["warning"]),
    ],
)
def test_where_jupyterlab_runs_its_extension_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frontends: dict[str, str], is_built: bool, levels: list[str]
) -> None:
    """An install from a clone without Node has none, and pip says so only with -v."""
    monkeypatch.setattr(doctor, "_version", frontends.get)
    if is_built:
        (tmp_path / "two" / "nls-jupyter").mkdir(parents=True)
        (tmp_path / "two" / "nls-jupyter" / "package.json").touch()
    findings = doctor.lab_extension([tmp_path / "one", tmp_path / "two"])
    assert [finding.level for finding in findings] == levels
    assert all("Node 20" in str(finding.advice) for finding in findings if finding.level == "warning")


def test_findings_read_as_lines_with_what_to_do_below() -> None:
    text = render([Finding("a", "ok", "fine"), Finding("b", "error", "broken", "mend it")])
    assert text == "ok       a: fine\nERROR    b: broken\n         -> mend it"


def test_how_gpus_are_connected_is_told_once_for_each_pair() -> None:
    third = {"uuid": "c", "index": 2, "links": {"a": "system", "gone": "nvlink"}}
    assert [f.text for f in doctor.topology([*GPUS, third])] == ["NVLink joins 0-1; only the system joins 0-2"]
    assert doctor.topology(GPUS[:1]) == []


def test_gpus_whose_links_are_not_told_are_said_to_be_so() -> None:
    (found,) = doctor.topology([{**gpu, "links": {}} for gpu in GPUS])
    assert (found.level, "nobody says how" in found.text) == ("ok", True)
