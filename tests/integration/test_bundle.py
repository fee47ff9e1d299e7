"""`nls doctor --bundle`: everything that helps to understand a problem, and nobody's names."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import zipfile
from typing import TYPE_CHECKING, NamedTuple

import pytest

from daemon_process import NLS, DaemonProcess
from nls_scheduler.bundle.masking import Mask
from nls_scheduler.core.model.codec import decode, encode
from nls_scheduler.core.simulator import SimulatedNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Whatever of these is anywhere in a bundle is a leak. Some are words that our own sources have, too.
PEOPLE = ("Marguerite", "zbigniew", "alice", "status", "q7_salaries", "payroll-2026", "Hülsenbeck", "b0b.ipynb")
SECRETS = (
    "hunter2swordfish",
    "sk-proj-9f8A7b6C5d4E3f2A1b0C",
    "eyJhbGciOiJIUzI1NiJ9",
    "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
)
WORKLOAD = "Marguerite-payroll-2026.ipynb"


def test_what_is_known_as_a_name_is_replaced_wherever_it_stands() -> None:
    mask = Mask()
    mask.learn_from({"workloads": [{"name": "status", "queue": "alice"}], "missing": ["q7_salaries"]})
    told = mask.text("no room: status is held by alice's q7_salaries, statuses are not")
    assert not re.search(r"\b(status|alice|q7_salaries)\b", told)
    assert told.startswith("no room: name-")
    assert told.endswith("are not")


@pytest.mark.parametrize("secret", [*PEOPLE, *SECRETS])
def test_a_word_that_nobody_has_listed_stays_only_if_it_is_one_of_ours(secret: str) -> None:
    if secret == "status":
        return  # it is one of ours
    for text in (secret, f"token={secret}", f"/home/{secret}/x", f"https://user:{secret}@host/", f"the '{secret}'!"):
        assert secret not in Mask().text(text), text


def test_the_same_name_is_the_same_word_in_one_bundle_and_another_one_in_the_next() -> None:
    one, other = Mask(["zbigniew"]), Mask(["zbigniew"])
    assert one.text("zbigniew") == one.value({"name": "zbigniew"})["name"] == one.text("for zbigniew")[4:]
    assert one.text("zbigniew") != other.text("zbigniew")


def test_sentences_sizes_times_and_gpus_stay_readable() -> None:
    for kept in (
        "borrows GPU 1 to burst up to 16 GiB; its home is GPU 0",
        "2026-11-24 22:17:04,228 INFO the driver does not keep memory limits per cgroup",
        "GPU-51000000-53db-2a29-45c6-000000000000",
        "[Errno 13] Permission denied: '/run/nls/nls.sock'",
    ):
        assert Mask().text(kept) == kept


def test_a_masked_state_is_a_state_with_other_names() -> None:
    node = SimulatedNode.of()
    node.submit()
    node.submit()
    node.settle()
    mask = Mask()
    encoded = encode(node.state)
    mask.learn_from(encoded)
    masked = decode(mask.value(encoded))
    before, after = node.state.workloads.values(), masked.workloads.values()
    assert [w.spec.request_bytes for w in after] == [w.spec.request_bytes for w in before]
    assert masked.gpus.keys() == node.state.gpus.keys()
    assert not {w.spec.name for w in after} & {w.spec.name for w in before}


def nls(daemon: DaemonProcess, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    state = ["--state-dir", str(daemon.directory / "state")]
    return subprocess.run(
        [*NLS, *state, *arguments],
        env={**daemon.environment, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """Of a daemon in a folder of somebody's name, whose workload has come and gone, with a secret in its log."""
    home = tmp_path_factory.mktemp("home") / "zbigniew"
    home.mkdir()
    with DaemonProcess(home) as running:
        command = ["sh", "-c", f"exit 3 # {SECRETS[0]}"]
        nls(running, "run", "--name", WORKLOAD, "--", *command)
        (home / "nls.log").write_text(f"2026-11-24 22:17:02,722 INFO {WORKLOAD} of Hülsenbeck has {SECRETS[1]}\n")
        (home / "config").mkdir()
        queues = {"status": {"quota": 1, "groups": ["zbigniew"]}}
        (home / "config" / "nls_config.json").write_text(json.dumps({"NlsScheduler": {"queues": queues}}))
        about = {
            "JUPYTER_CONFIG_DIR": str(home / "config"),
            "NLS_REQUEST": "0.25",
            "NLS_QUEUE": "q7_salaries",
            "NLS_KEPT_FOLDER": "/home/Marguerite/kept",
        }
        file = home / "problem.zip"
        done = nls(running, "doctor", "--bundle", str(file), AWS_SECRET_ACCESS_KEY=SECRETS[2], **about)
        assert done.returncode == 0, done.stderr
        with zipfile.ZipFile(file) as archive:
            content = {name: archive.read(name) for name in archive.namelist()}
        (home / "excerpt.db").write_bytes(content["journal.db"])
        yield Bundle(running, file, content, done.stdout)


class Bundle(NamedTuple):
    daemon: DaemonProcess
    file: Path
    content: dict[str, bytes]
    told: str


def test_a_bundle_has_what_helps_and_says_so(bundle: Bundle) -> None:
    assert stat.S_IMODE(bundle.file.stat().st_mode) == 0o600
    content, told = bundle.content, bundle.content["README.txt"].decode()
    assert told in bundle.told
    parts = ["doctor.json", "versions.json", "settings.json", "status.json", "history.json", "journal.db", "nls.log"]
    assert sorted(content) == sorted([*parts, "README.txt"])
    assert [part for part in parts if f"- {part}: " not in told] == []
    assert json.loads(content["settings.json"])["NLS_REQUEST"] == "0.25"
    assert json.loads(content["status.json"])["simulated"] is True
    ((queue, rules),) = json.loads(content["settings.json"])["NlsScheduler"]["queues"].items()
    assert (queue[:5], rules["quota"], rules["groups"][0][:5]) == ("name-", 1, "name-")
    assert "INFO" in content["nls.log"].decode()
    assert {entry["event"] for entry in json.loads(content["history.json"])} >= {"started", "exited"}


def test_its_journal_can_be_replayed(bundle: Bundle) -> None:
    played = nls(bundle.daemon, "replay", str(bundle.file.with_name("excerpt.db")))
    assert played.returncode == 0, played.stderr
    assert played.stdout.splitlines()[-1].endswith("all decided as they were then.")
    assert "ProcessExited" in played.stdout


def test_nothing_of_anybody_is_anywhere_in_it(bundle: Bundle) -> None:
    everything = b"\n".join(bundle.content.values()) + bundle.told.encode()
    everything += nls(bundle.daemon, "replay", "--json", str(bundle.file.with_name("excerpt.db"))).stdout.encode()
    key = (bundle.daemon.directory / "state" / "adoption.key").read_bytes()
    leaks = [*(name for name in PEOPLE if name not in ("status", "alice")), *SECRETS]
    assert [leak for leak in leaks if leak.encode() in everything] == []
    texts = everything.replace(bundle.content["journal.db"], b"")  # where two letters that a node is called may stand
    assert re.search(rf"\b{re.escape(os.uname().nodename)}\b".encode(), texts) is None
    assert key not in everything
    assert key.hex().encode() not in everything


@pytest.mark.long("what a bundle cannot have")
def test_a_file_that_is_there_is_not_written_over(bundle: Bundle, tmp_path: Path) -> None:
    file = tmp_path / "mine.zip"
    file.write_text("mine")
    done = nls(bundle.daemon, "doctor", "--bundle", str(file))
    assert (done.returncode, file.read_text()) == (2, "mine")
    assert "is there already" in done.stderr


@pytest.mark.long("what a bundle cannot have")
def test_without_a_daemon_it_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "problem.zip"
    nowhere = DaemonProcess(tmp_path / "nowhere")
    done = nls(nowhere, "doctor", "--bundle", str(file))
    assert done.returncode == 0, done.stderr
    assert "- no journal.db: " in done.stdout
