"""`nls observe`: what was seen, its file, and what is made of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from daemon_process import NLS, nls_environment
from nls_scheduler.cli import main
from nls_scheduler.core.model.events import DaemonRestarted, TimerFired
from nls_scheduler.core.model.ids import ProcessId
from nls_scheduler.core.model.spec import Kind
from nls_scheduler.core.simulator import SimulatedNode
from nls_scheduler.what_if.observing.journals import Clock, JournalReader
from nls_scheduler.what_if.observing.observer import kernel_of, seen_of
from nls_scheduler.what_if.observing.record import Recorder, facts_of
from nls_scheduler.what_if.observing.rows import observed_rows
from nls_scheduler.what_if.observing.servers import Kernel, Server, kernels_of
from nls_scheduler.what_if.observing.watcher import Seen, Watcher
from nls_scheduler.what_if.workload_file.checking import Checker, checked
from nls_scheduler.what_if.workload_file.rows import Cell, Command, Session, WorkloadFileError
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


GIB = 2**30
# Where files may not grow: half of a compiled module would be taken for a whole one by all that come after.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
SESSIONS = [{"path": "work/a.ipynb", "kernel": {"id": "11111111-aaaa", "execution_state": "busy"}}]


ODD_HUBS: list[Any] = [[1], [None], [{"servers": [1]}], [{"servers": {"": None}}], {"items": []}]


class Answers(BaseHTTPRequestHandler):
    """A Jupyter Server's sessions, and a hub's users.

    Attributes:
        asked: how often somebody has asked, whatever for.
    """

    asked = 0

    def do_GET(self) -> None:
        Answers.asked += 1
        known = self.headers["Authorization"] == "token secret"
        pages: dict[str, Any] = {
            "/api/sessions": SESSIONS,
            "/hub/api/users?state=active": [{"name": "eve", "servers": {"": {"url": "/user/eve/"}}}],
            "/user/eve/api/sessions": SESSIONS,
            "/odd/api/sessions": {"message": "no"},
            "/hub2/hub/api/users?state=active": [
                {"name": "ann", "servers": {"": {"url": "/gone/"}}},
                {"name": "bob", "servers": {"": {"url": "/user/eve/"}}},
            ],
            **{f"/odd{number}/hub/api/users?state=active": odd for number, odd in enumerate(ODD_HUBS)},
            "/lone/api/sessions": [{"path": "\ud800", "kernel": {"id": "2", "execution_state": "idle"}}],
        }
        page = pages.get(self.path) if known else None
        body = json.dumps(page).encode()
        self.send_response(403 if page is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("nls_scheduler.what_if.observing.servers.TIMEOUT_S", 60.0)  # this machine may be busy
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_servers_and_hubs_tell_which_kernels_are_busy(url: str) -> None:
    servers = [Server(url, "secret"), Server.parse(f"{url}?token=secret", is_hub=True)]
    kernels, silent = asyncio.run(kernels_of(servers))
    assert [kernel.busy for kernel in kernels] == [True, True]
    assert [kernel.name for kernel in kernels] == [f"{url}work/a.ipynb", f"{url}user/eve/work/a.ipynb"]
    assert silent == []


def test_a_server_that_does_not_tell_is_named_and_the_others_are_asked(url: str) -> None:
    servers = [
        Server(url, "wrong"),
        Server("http://127.0.0.1:1/", ""),
        Server(f"{url}odd/", "secret"),
        Server(url, "secret"),
    ]
    kernels, silent = asyncio.run(kernels_of(servers))
    assert len(kernels) == 1
    assert len(silent) == 3
    assert "403" in silent[0]


def test_one_server_of_a_hub_that_does_not_tell_hides_nobody_else(url: str) -> None:
    kernels, silent = asyncio.run(kernels_of([Server(f"{url}hub2/", "secret", is_hub=True)]))
    assert [kernel.name for kernel in kernels] == [f"{url}user/eve/work/a.ipynb"]
    assert len(silent) == 1
    assert silent[0].startswith(f"{url}gone/ does not tell")


def test_whatever_a_server_answers_ends_no_observation(url: str) -> None:
    odd = [Server(f"{url}odd{number}/", "secret", is_hub=True) for number in range(len(ODD_HUBS))]
    kernels, silent = asyncio.run(kernels_of([*odd, Server(f"{url}lone/", "secret")]))
    assert len(silent) == len(ODD_HUBS)
    assert [kernel.name for kernel in kernels] == [f"{url}lone/?"]


def test_a_server_without_a_token_is_asked_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_TOKEN", "of another one")
    assert Server.parse("http://host:8888/?token=").token == ""
    assert Server.parse("http://host:8888/").token == "of another one"


@pytest.mark.parametrize("text", ["localhost:8888", "ftp://x/", "http://", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address of a Jupyter Server"):
        Server.parse(text)


@pytest.mark.parametrize(
    "text", ["http://host:99999/", "http://host:x/", "http://host:0/", "http://:8888/", "http://[::1/"]
)
def test_an_odd_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no address of a Jupyter Server"):
        Server.parse(text)


def test_no_secret_of_an_address_is_ever_told(url: str) -> None:
    server = Server.parse("https://eve:p%40ss@host:8443/lab?token=hush#more")
    assert (server.url, server.token, server.user) == ("https://host:8443/lab/", "hush", ("eve", "p@ss"))
    for text in (
        "ftp://eve:hush@host/",
        "eve:hush@host:1",
        "http://eve:hu/sh@host/",
        "x://h/?token=hush",
        "h#token=hush",
    ):
        with pytest.raises(ValueError, match="is no address") as caught:
            Server.parse(text)
        assert "hush" not in str(caught.value)
        assert "hu/sh" not in str(caught.value)
    with_user = url.replace("://", "://eve:hush@")
    kernels, silent = asyncio.run(
        kernels_of([Server.parse(f"{with_user}?token=secret"), Server.parse(f"{with_user}?token=x")])
    )
    assert [kernel.name for kernel in kernels] == [f"{url}work/a.ipynb"]
    assert [sentence.startswith(f"{url} does not tell") for sentence in silent] == [True]
    assert "hush" not in silent[0]


def test_why_a_server_is_silent_is_said_without_numbers_of_errors() -> None:
    _, (silent,) = asyncio.run(kernels_of([Server("http://127.0.0.1:1/", "")]))
    assert silent == "http://127.0.0.1:1/ does not tell its sessions: Connection refused"


def test_a_disk_that_is_full_ends_an_observation_with_a_sentence(url: str, tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    fact = {"command": "c", "begin": 1.0, "end": 2.0, "memory_bytes": 1}
    with Recorder(path, names=True) as recorder:
        while path.stat().st_size < 960:
            recorder.write(fact)
    command = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *NLS, "observe", "--to", str(path), "--names"]
    command += ["--server", url, "--every", "0.05s"]
    environment = nls_environment(JUPYTER_TOKEN="secret", **NO_BYTECODE)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    assert f"the observation ends, with what was recorded by then: {path}: File too large." in done.stderr
    assert "Traceback" not in done.stderr
    assert observed_rows(path, 0.5, 1.0)


def test_a_part_of_a_key_is_not_left_behind(tmp_path: Path) -> None:
    """On a disk on which nothing more fits."""
    command = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *NLS, "observe", "--to", str(tmp_path / "o.jsonl")]
    environment = nls_environment(**NO_BYTECODE)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"nls: {tmp_path / 'o.jsonl'}: File too large.\n"
    with Recorder(tmp_path / "o.jsonl", names=False) as recorder:
        assert recorder.name_of("a") != "a"


def test_a_key_that_is_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "o.jsonl.key")
    with pytest.raises(WorkloadFileError, match="is no file, and no key"):
        Recorder(tmp_path / "o.jsonl", names=False)


def test_time_that_was_observed_twice_counts_once(tmp_path: Path) -> None:
    """As after a clock was set back between two runs."""
    path = tmp_path / "o.jsonl"
    with Recorder(path, names=True) as recorder:
        for begin in (1000.0, 1050.0, 1060.0):
            recorder.write({"cell": "a", "begin": begin, "end": begin + 10, "memory_bytes": 5, "state_bytes": 1})
            recorder.write({"session": "a", "begin": begin, "end": begin + 100, "memory_bytes": 5})
    rows = observed_rows(path, 0.5, 1.0)
    assert [(row.begin_s, row.end_s) for row in rows if isinstance(row, Session)] == [(0, 100), (100, 150), (150, 160)]
    checker = Checker()
    for _ in checked(((None, row) for row in rows), checker):
        pass
    assert checker.extent().sessions == 3


def test_the_time_of_a_journal_is_one_that_nobody_sets() -> None:
    clock, told = Clock(), []
    for at, wall in ((10.0, 1000.0), (20.0, 400.0), (19.9, 401.0), (30.0, 410.0)):
        clock.pass_to(TimerFired(at), wall)
        told.append(clock.now)
    clock.pass_to(DaemonRestarted(40.0), 470.0)
    clock.pass_to(DaemonRestarted(5.0), 570.0)
    clock.pass_to(TimerFired(6.0), 571.0)
    assert told == [1000.0, 1010.0, 1010.0, 1020.0]
    assert clock.now == 1020.0 + 60 + 100 + 1


def test_a_command_of_a_journal_held_what_the_samples_showed_and_not_its_request() -> None:
    node, reader = SimulatedNode.of(), JournalReader()
    training = node.submit(kind=Kind.COMMAND, limit_bytes=8 * GIB)
    node.settle()
    for held in (2 * GIB, 3 * GIB, GIB):
        node.hold(training, held)
        reader.take(node.state, node.now)
        node.advance(10.0)
    context_bytes = node.of_workload(training).context_bytes
    (row,) = reader.rows(node.now)
    assert isinstance(row, Command)
    assert (row.request, row.memory_bytes) == (8 * GIB, 3 * GIB - context_bytes)


def test_processes_are_put_down_to_their_notebooks() -> None:
    kernels = [Kernel("k1", "http://x/a.ipynb", busy=True), Kernel("k2", "http://x/b.ipynb", busy=False)]
    held = {ProcessId(10, 1): 3 * GIB, ProcessId(11, 1): GIB, ProcessId(99, 7): None}
    of = {10: "k1", 11: "k1", 99: "k9"}
    seen = seen_of(kernels, held, {ProcessId(10, 1): 0.5}, of.get)
    assert seen["k1"] == Seen("http://x/a.ipynb#k1", is_notebook=True, busy=True, memory_bytes=4 * GIB, use=0.5)
    assert seen["k2"].memory_bytes == 0
    assert seen["process 99 of 7"] == Seen("process 99 of 7", is_notebook=False, busy=None, memory_bytes=None)


def test_a_kernel_is_known_by_its_connection_file() -> None:
    command = ["sleep", "60", "kernel-0a1b2c3d-4e5f.json"]
    with subprocess.Popen(["bash", "-c", 'exec -a "$0 $2" sleep "$1"', command[0], command[1], command[2]]) as process:
        try:
            wait_until(lambda: kernel_of(process.pid) == "0a1b2c3d-4e5f")
        finally:
            process.kill()


def notebook(name: str, memory_gib: int, *, busy: bool) -> Seen:
    return Seen(name, is_notebook=True, busy=busy, memory_bytes=memory_gib * GIB)


def watched(path: Path, *, names: bool = True) -> Path:
    with Recorder(path, names=names) as recorder:
        watcher = Watcher(recorder)
        watcher.take(1000.0, {"k": notebook("a", 0, busy=False)})
        watcher.take(1010.0, {"k": notebook("a", 3, busy=True)})
        watcher.take(1020.0, {"k": notebook("a", 5, busy=True), "p": Seen("p", False, None, GIB, 0.75)})
        watcher.take(1030.0, {"k": notebook("a", 2, busy=False), "p": Seen("p", False, None, GIB, 0.25)})
        watcher.take(1040.0, {"k": notebook("a", 2, busy=False)})
        watcher.end()
    return path


def test_what_was_seen_becomes_sessions_cells_and_commands(tmp_path: Path) -> None:
    assert observed_rows(watched(tmp_path / "o.jsonl"), 0.5, 1.0) == (
        Session("a", 0.0, 40.0, 0.5, 1.0),
        Cell("a", 10.0, 30.0, 5 * GIB, 2 * GIB),
        Command("p", 20.0, 30.0, 1.0, 1.0, memory_bytes=GIB),
    )


def test_what_was_seen_to_be_held_is_played_without_the_context_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = watched(tmp_path / "o.jsonl")
    assert observed_rows(path, 0.5, 1.0, 3 * GIB) == (
        Session("a", 0.0, 40.0, 0.5, 1.0),
        Cell("a", 10.0, 30.0, 2 * GIB, 0),
        Command("p", 20.0, 30.0, 1.0, 1.0, memory_bytes=0),
    )
    # All of its GPU was what a cell held with its context: so it fits.
    assert main(["simulate", str(path), "--node", "2x5GiB", "--policy", "nls", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["policies"]["nls"]
    assert figures["out_of_memory"] == 0


def test_names_are_hashed_the_same_way_after_a_stop_and_nobody_else_can_read_the_key(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    first = [row.name for row in observed_rows(watched(path, names=False), 0.5, 1.0)]
    assert "a" not in first
    assert '"a"' not in path.read_text()
    with Recorder(path, names=False) as recorder:
        assert recorder.name_of("a") == first[0]
    assert (tmp_path / "o.jsonl.key").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_stops_in_the_middle_loses_minutes_at_most_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    recorder = Recorder(path, names=True)
    watcher = Watcher(recorder)
    for at in range(1000, 1400, 10):
        watcher.take(float(at), {"k": notebook("a", 1, busy=False)})
    recorder.__exit__()
    with path.open("a") as file:
        file.write('{"cell":"a","beg')
    assert observed_rows(path, 0.5, 1.0) == (Session("a", 0.0, 300.0, 0.5, 1.0),)
    with Recorder(path, names=True) as again:
        again.write({"command": "p", "begin": 1400.0, "end": 1500.0, "memory_bytes": 5})
    assert len(observed_rows(path, 0.5, 1.0)) == 2


@pytest.mark.parametrize("ends", [False, True])
def test_a_long_cell_loses_minutes_at_most_and_counts_once(ends: bool, tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    with Recorder(path, names=True) as recorder:
        watcher = Watcher(recorder)
        for at in range(1000, 11000, 10):
            watcher.take(float(at), {"k": notebook("a", 1, busy=at >= 1600)})
        if ends:
            watcher.end()
    session, cell = observed_rows(path, 0.5, 1.0)
    assert isinstance(session, Session)
    assert isinstance(cell, Cell)
    assert (cell.begin_s, cell.end_s) == (600.0, session.end_s)
    assert session.end_s >= (9990.0 if ends else 9690.0)


def test_its_file_is_bounded_and_forgets_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    with Recorder(path, names=True, most_bytes=2**16) as recorder:
        for number in range(3000):
            recorder.write({"command": f"c{number}", "begin": number, "end": number + 1, "memory_bytes": 1})
            assert path.stat().st_size <= 2**16 + 200
    names = [row.name for row in observed_rows(path, 0.5, 1.0)]
    assert names[-1] == "c2999"
    assert "c0" not in names
    assert len(list(facts_of(path))) > 500


def test_what_has_the_name_of_the_file_that_takes_its_place_is_not_followed(tmp_path: Path) -> None:
    path, others = tmp_path / "o.jsonl", tmp_path / "others"
    others.write_text("theirs")
    path.with_name("o.jsonl.new").symlink_to(others)
    with Recorder(path, names=True, most_bytes=2**10) as recorder:
        for number in range(30):
            recorder.write({"command": f"c{number}", "begin": number, "end": number + 1, "memory_bytes": 1})
    assert others.read_text() == "theirs"
    assert [row.name for row in observed_rows(path, 0.5, 1.0)][-1] == "c29"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("dance\n", "Row 2: it is no line of an observation"),
        ("[]\n", "Row 2: it is no fact of an observation."),
        ('{"dance": 1}\n', "Row 2: it tells of no session"),
        ('{"session": "a", "begin": 1}\n', "Row 2: a session without a begin"),
        ('{"session": "a", "begin": 2, "end": 1, "memory_bytes": 0}\n', "Row 2: a session that ends before it begins."),
        ('{"session": "a", "begin": 1, "end": 1e999, "memory_bytes": 0}\n', "Row 2: a session with a time or a size"),
        ('{"session": "a", "begin": 1, "end": 2, "memory_bytes": 1e999}\n', "Row 2: a session without a begin"),
        (
            f'{{"cell": "a", "begin": 1, "end": 2, "memory_bytes": 1{"0" * 400}}}\n',
            "Row 2: a cell with a time or a size",
        ),
        ('{"session": "a", "begin": NaN, "end": 2, "memory_bytes": 0}\n', "Row 2: it is no line of an observation"),
        ('{"open": 3, "at": 1}\n', "Row 2: what was open is no list."),
        ("", "has seen nothing yet"),
    ],
)
def test_a_damaged_observation_is_said_with_its_row(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    path.write_text('{"nls-observation":1}\n' + line)
    with pytest.raises(WorkloadFileError) as caught:
        observed_rows(path, 0.5, 1.0)
    assert sentence in str(caught.value)


def test_another_file_is_never_written_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "diary.txt"
    path.write_text("dear diary")
    assert main(["observe", "--to", str(path)]) == 2
    assert "is no observation" in capsys.readouterr().err
    assert path.read_text() == "dear diary"
    assert list(tmp_path.iterdir()) == [path]


def test_only_one_observation_writes_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "o.jsonl"
    with Recorder(path, names=True):
        assert main(["observe", "--to", str(path)]) == 2
    assert "Another nls observe writes to" in capsys.readouterr().err
    with Recorder(path, names=True):
        pass


def test_a_node_is_observed_until_it_is_stopped_and_what_was_seen_is_played(url: str, tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    command = [*NLS, "observe", "--to", str(path), "--server", url, "--every", "0.05s"]
    environment = nls_environment(JUPYTER_TOKEN="secret")
    Answers.asked = 0
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: Answers.asked >= 4)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, told
    assert "names are hashed" in told
    (session, cell) = observed_rows(path, 0.5, 1.0)
    assert isinstance(session, Session)
    assert isinstance(cell, Cell)
    assert "ipynb" not in path.read_text()
