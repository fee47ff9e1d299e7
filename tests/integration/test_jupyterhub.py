"""Users of a real JupyterHub under one system daemon: their notebooks, its restarts, its culler, and our page there."""

from __future__ import annotations

import contextlib
import json
import pwd
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import DaemonProcess
from jupyterhub_process import ADMIN, MISSING, PATIENCE_S, USERS, HubProcess
from waiting import has_ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ANNA, BERT = USERS
pytestmark = [
    pytest.mark.long("a hub with its proxy and servers"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(400),
]
PID = "%%gpu\nimport os; os.getpid()"


@pytest.fixture(scope="module")
def open_directory() -> Iterator[Path]:
    """Where other users may look: pytest keeps its own to itself, anew with each run that starts on the machine."""
    directory = Path(tempfile.mkdtemp(prefix="hub-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def daemon_of_all(open_directory: Path) -> Iterator[DaemonProcess]:
    directory = open_directory / "d"
    directory.mkdir()
    arguments = ("--context-memory", "16MiB", "--set", "show_names=admins")
    with DaemonProcess(directory, "2x1GiB", *arguments) as daemon:
        daemon.open_to_everybody()
        yield daemon


@contextlib.contextmanager
def started(directory: Path, daemon: DaemonProcess, **more: int) -> Iterator[HubProcess]:
    directory.mkdir()
    with HubProcess(directory, daemon, **more) as running:
        yield running


@pytest.fixture(scope="module")
def hub_of_all(open_directory: Path, daemon_of_all: DaemonProcess) -> Iterator[HubProcess]:
    with started(open_directory / "h", daemon_of_all) as running:
        yield running


@pytest.fixture
def hub(hub_of_all: HubProcess) -> Iterator[HubProcess]:
    """One for several tests, as one starts for seconds; each of them ends what its users have begun."""
    yield hub_of_all
    print(hub_of_all.log[-20000:])  # shown of a test that has failed
    hub_of_all.end_servers()
    wait_until(lambda: not hub_of_all.daemon.status()["workloads"], PATIENCE_S)


def owner(hub: HubProcess, name: str, **fields: object) -> str:
    """Whose workload of that name it is."""
    return pwd.getpwuid(hub.daemon.wait_for(name, PATIENCE_S, **fields)["owner"]).pw_name


def test_each_users_notebooks_are_theirs_and_named_servers_too(hub: HubProcess) -> None:
    hers = hub.open(hub.server(ANNA), "hers.ipynb")
    second = hub.open(hub.server(ANNA, "second"), "second.ipynb")
    his = hub.open(hub.server(BERT), "his.ipynb")
    pids = [int(hub.run(notebook, PID) or 0) for notebook in (hers, second, his)]
    assert [owner(hub, name) for name in ("hers.ipynb", "second.ipynb", "his.ipynb")] == [ANNA, ANNA, BERT]
    assert [pwd.getpwuid(Path(f"/proc/{pid}").stat().st_uid).pw_name for pid in pids] == [ANNA, ANNA, BERT]
    hub.stop_server(ANNA, "second")
    wait_until(lambda: hub.daemon.workload("second.ipynb") is None, PATIENCE_S)
    assert has_ended(pids[1])
    assert hub.run(hers, PID) == str(pids[0])
    assert hub.run(his, PID) == str(pids[2])


def test_a_hub_that_is_started_anew_disturbs_no_gpu_process(open_directory: Path, daemon_of_all: DaemonProcess) -> None:
    with started(open_directory / "a", daemon_of_all) as hub:
        notebook = hub.open(hub.server(ANNA), "hers.ipynb")
        hub.run(notebook, "%%gpu\nx = 41")
        pid = hub.run(notebook, PID)
        for ends in (hub.stop, hub.kill):
            ends()
            assert not has_ended(int(pid or 0))
            hub.start()
            notebook.close()  # the hub has started its proxy anew: pages connect again
            assert hub.run(notebook, PID) == pid
            assert hub.run(notebook, "%%gpu\nx + 1") == "42"
            assert owner(hub, "hers.ipynb") == ANNA


def test_a_server_that_is_culled_leaves_no_gpu_process(open_directory: Path, daemon_of_all: DaemonProcess) -> None:
    with started(open_directory / "c", daemon_of_all, cull_after_s=20) as hub:
        notebook = hub.open(hub.server(ANNA), "hers.ipynb")
        pid = int(hub.run(notebook, PID) or 0)
        notebook.close()
        wait_until(lambda: has_ended(pid), 3 * PATIENCE_S)
        wait_until(lambda: hub.daemon.workload("hers.ipynb") is None, PATIENCE_S)
        # Nobody else has asked for its end.
        wait_until(lambda: hub.ask("GET", f"users/{ANNA}")["servers"] == {}, PATIENCE_S)
        again = hub.open(hub.server(ANNA), "again.ipynb")
        assert int(hub.run(again, PID) or 0) != pid


def test_the_page_shows_all_to_administrators_and_to_users_what_is_theirs(hub: HubProcess) -> None:
    for user, name in ((ANNA, "hers.ipynb"), (BERT, "<b>his.ipynb")):
        hub.run(hub.open(hub.server(user), name), PID)

    def told(user: str) -> tuple[str, list[str]]:
        token = hub.token_of(user)
        shown = hub.fetch("GET", "/services/gpus/", token=token)
        assert shown.code == 200, (shown.body, hub.log[-3000:])
        assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
        status: Any = json.loads(hub.fetch("GET", "/services/gpus/api/status", token=token).body)
        return shown.body.decode(), [workload["name"] for workload in status["workloads"]]

    text, names = told(ADMIN)
    assert names == ["hers.ipynb", "<b>his.ipynb"]
    assert all(word in text for word in (ANNA, BERT, "hers.ipynb", "&lt;b&gt;his.ipynb", "What happened"))
    assert "<b>his" not in text
    text, names = told(ANNA)
    assert names == ["hers.ipynb"]
    assert "his.ipynb" not in text
    assert "another user&#x27;s notebook" in text  # a piece of a bar
    assert told(BERT)[1] == ["<b>his.ipynb"]
    assert hub.fetch("GET", "/services/gpus/", token="none").code == 302  # to the hub, to log in
    hub.daemon.stop()
    token = hub.token_of(BERT)
    # An answer is given again for two seconds.
    wait_until(lambda: hub.fetch("GET", "/services/gpus/", token=token).code == 503, PATIENCE_S)
    assert b"No daemon answers at" in hub.fetch("GET", "/services/gpus/", token=token).body
    hub.daemon.start()
