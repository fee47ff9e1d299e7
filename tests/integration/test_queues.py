"""Queues, the longest wait and `nls explain` in a real daemon."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from daemon_process import DaemonProcess
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUEUES = "c.NlsScheduler.queues = {'a': {}, 'b': {'quota': 1, 'max_priority': 'train'}}\n"


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[tuple[DaemonProcess, Path]]:
    """One Gpu, two queues, and 2 seconds to reclaim."""
    directory = tmp_path / "config"
    directory.mkdir()
    (directory / "nls_config.py").write_text(QUEUES)
    fast = ("--set", "reclaim_deadline_s=2", "--set", "stop_grace_s=0.5")
    daemon = DaemonProcess(tmp_path, "1x16GiB", *fast)
    daemon.environment["JUPYTER_CONFIG_DIR"] = str(directory)
    with daemon:
        yield daemon, directory / "nls_config.py"


def test_a_queue_gets_its_quota_back_and_who_waits_can_have_that_explained(
    configured: tuple[DaemonProcess, Path],
) -> None:
    daemon, _ = configured
    borrower = daemon.start_nls("run", "--queue", "a", "--name", "borrower", "--", "sleep", "600")
    daemon.wait_for("borrower", phase="running")
    owner = daemon.start_nls("run", "--queue", "b", "--priority", "train", "--name", "owner", "--", "sleep", "600")
    daemon.wait_for("owner", phase="queued")
    told = json.loads(daemon.nls("explain", "owner", "--json").stdout)
    assert told["queue"]["chain"][0]["quota"] == 1
    _, err = borrower.communicate(timeout=20)
    assert borrower.returncode == 75
    assert "owner needs GPU 0" in err
    daemon.wait_for("owner", phase="running")
    text = daemon.nls("explain", "owner").stdout
    assert "priority 50 (train)" in text
    assert "Its request is counted on GPU 0." in text
    status = daemon.status()
    assert [(q["name"], q["pools"][0]["used"]) for q in status["queues"]] == [("a", 0), ("b", 1), ("default", 0)]
    assert "FAIR SHARE" in daemon.nls("status").stdout
    metrics = daemon.request("GET", "/metrics")[1]
    assert 'nls_queue_used_gpus{pool="default",queue="b"} 1.0' in metrics
    owner.send_signal(signal.SIGTERM)
    owner.communicate(timeout=20)


@pytest.mark.long("waits in queues")
def test_who_waits_too_long_ends_with_an_exit_code_and_who_holds_the_gpu(
    configured: tuple[DaemonProcess, Path],
) -> None:
    daemon, _ = configured
    daemon.start_nls("run", "--queue", "b", "--name", "holder", "--", "sleep", "600")
    daemon.wait_for("holder", phase="running")
    done = daemon.nls("run", "--queue", "b", "--max-wait", "0.3s", "--", "true")
    assert done.returncode == 124
    assert "nls: no GPU within 0.3 s: no room for 16 GiB on one GPU: GPU 0 is held by holder" in done.stderr
    assert "true was not run" in done.stderr
    assert [workload["name"] for workload in daemon.status()["workloads"]] == ["holder"]
    quick = daemon.nls("run", "--queue", "b", "--max-wait", "soon", "--", "true")
    assert (quick.returncode, "is not a duration" in quick.stderr) == (2, True)


def test_queues_that_contradict_each_other_change_nothing_at_a_reload(
    configured: tuple[DaemonProcess, Path],
) -> None:
    daemon, file = configured
    file.write_text("c.NlsScheduler.queues = {'a': {'parent': 'b'}, 'b': {'parent': 'a'}}\n")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    message = wait_until(lambda: daemon.status()["message"])
    assert message.startswith("The new configuration is refused and the old one stays: The queues go round in a circle")
    assert [queue["name"] for queue in daemon.status()["queues"]] == ["a", "b", "default"]
    file.write_text("import sys; sys.exit('it ends')\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.status()["message"].endswith("nls_config.py cannot be read: it ends Python (it ends)."))
    file.write_text("c.NlsScheduler.queues = {'c': {'quota': 2}}\n")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: [queue["name"] for queue in daemon.status()["queues"]] == ["c", "default"])
    assert "'default' are 2 GPUs together, and this node has 1" in daemon.status()["message"]


def test_only_its_user_and_administrators_have_a_workload_explained(daemon: DaemonProcess) -> None:
    code, problem = daemon.request("GET", "/v1/workloads/nobody/explanation")
    assert (code, problem["fault"]) == (404, "client")
    code, view = daemon.request("POST", "/v1/workloads", b'{"kind": "notebook", "priority": "train"}')
    assert (code, view["priority"], view["queue"]) == (201, 50, "default")
    code, told = daemon.request("GET", f"/v1/workloads/{view['id']}/explanation")
    assert (code, told["id"], told["queue"]) == (200, view["id"], None)
