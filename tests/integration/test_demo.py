"""`nls demo` as people start it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import TypeAlias

import pytest

from daemon_process import NLS, nls_environment
from leftovers import marked_processes, wait_until_none
from waiting import wait_until

PATIENCE_S = 400.0
IN_A_FOLDER_THAT_IS_GONE = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh")

Demo: TypeAlias = subprocess.Popen[str]


def traces() -> set[Path]:
    """Of demos; other tests, and people, have things of their own there."""
    return {path for where in ("/tmp", "/dev/shm") for path in Path(where).glob("nls-demo-*")}


def start_demo(mark: str, *arguments: str, before: tuple[str, ...] = (), where: Path | None = None) -> Demo:
    environment = nls_environment(NLS_TEST_MARK=mark)
    command = [*before, *NLS, "demo", "--json", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=where, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.long("the demo in full: `make demo` plays it")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("gpus", [1, 2])
def test_the_demo_plays_the_whole_story_and_leaves_nothing(mark: str, tmp_path: Path, gpus: int) -> None:
    before = traces()
    gone = tmp_path / "gone"
    gone.mkdir()
    words = ("--gpus", str(gpus), "--keep", str(tmp_path / "kept"))
    with start_demo(mark, *words, before=IN_A_FOLDER_THAT_IS_GONE, where=gone) as demo:
        output, errors = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == 0, output + errors
    assert errors == ""
    lines = [json.loads(line) for line in output.splitlines()]
    assert "SIMULATED" in lines[0]["text"] or f"plays on {('one', 'two')[gpus - 1]} of them" in lines[0]["text"]
    told = [(line["name"], line["event"]) for line in lines if line["type"] == "event"]
    for event in (("training", "started"), ("alice.ipynb", "resumed"), ("alice.ipynb", "suspended")):
        assert event in told
    left = [line for line in lines if line.get("event") == ("suspended" if gpus == 1 else "moved")]
    assert any("training needs GPU" in line["reason"] and line["bytes"] and line["seconds"] > 0 for line in left)
    assert [line["type"] for line in lines].count("checked") >= (11 if gpus == 1 else 12)
    assert lines[-1]["text"].startswith("The end. Nothing is left running.")
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"alice.ipynb", "bob.ipynb"}
    assert not marked_processes(mark)
    wait_until(lambda: traces() <= before, 60)  # of a demo that another test plays beside this one, too


@pytest.mark.long("the demo, played and stopped")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_either(mark: str, number: signal.Signals) -> None:
    before = traces()
    with start_demo(mark, "--gpus", "1" if number == signal.SIGINT else "2") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if '"event": "started"' in line:
                break
        os.kill(demo.pid, number)
        os.kill(demo.pid, number)
        _, errors = demo.communicate(timeout=60)
    assert (demo.returncode, errors) == (128 + number, "")
    wait_until_none("processes", lambda: marked_processes(mark))
    wait_until(lambda: traces() <= before, 60)  # of a demo that another test plays beside this one, too


@pytest.mark.long("a demo that is killed")
def test_a_demo_that_is_killed_leaves_no_process(mark: str) -> None:
    with start_demo(mark, "--gpus", "1") as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if '"event": "started"' in line:
                break
        folders = set(re.findall(r"/tmp/nls-demo-\w+", " ".join(marked_processes(mark).values())))
        demo.kill()
        demo.communicate(timeout=60)
    wait_until_none("processes", lambda: marked_processes(mark))
    (folder,) = folders
    shutil.rmtree(folder)
