"""Freezing by NVIDIA's driver through the real cuda-core, on a library that the tests build and script.

No GPU is needed, and nothing here says what a real driver does: that is `tests/gpu`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nls_scheduler.processes.proc import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nls_scheduler.core.model.ids import ProcessId

LONG = pytest.mark.long("errors of the CUDA driver, each told to a helper of its own: some of them are told here")
OUT_OF_MEMORY, NOT_PERMITTED, NOT_SUPPORTED, NOT_READY = 2, 800, 801, 600


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub, compiled."""
    compiler = shutil.which("gcc")
    lacks = [name for name in ("cuda.core", "cuda.bindings") if not _is_there(name)] + ([] if compiler else ["gcc"])
    if lacks or compiler is None:
        assert os.environ.get("CI") != "true", f"{lacks} are needed for the stub of the CUDA driver"
        pytest.skip(f"{', '.join(lacks)} are needed for the stub of the CUDA driver")
    path = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(
        [compiler, *flags, "-o", str(path), str(Path(__file__).with_name("cuda_checkpoint_stub.c")), "-ldl"], check=True
    )
    return path.parent


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


class Asked:
    """The helper, which gets orders for a process that only waits."""

    def __init__(self, script: Path, environment: dict[str, str], process: ProcessId) -> None:
        self.script = script
        self.process = process
        self._helper = subprocess.Popen(
            [sys.executable, "-m", "nls_scheduler.drivers.checkpoint_helper"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip

    def told(self, do: str, **more: object) -> dict[str, Any]:
        """What it answers."""
        order = {"do": do, "pid": self.process.pid, "start_time": self.process.start_time, **more}
        assert self._helper.stdin is not None
        assert self._helper.stdout is not None
        self._helper.stdin.write(json.dumps(order) + "\n")
        self._helper.stdin.flush()
        answer: dict[str, Any] = json.loads(self._helper.stdout.readline())
        return answer

    def calls(self) -> list[str]:
        """Of the driver so far, for the process."""
        lines = (line.split() for line in self.script.read_text().splitlines() if line.startswith("#"))
        return [name for _, name, pid in lines if name != "GetState" and int(pid) == self.process.pid]

    def close(self) -> None:
        """Its supervisor ends."""
        assert self._helper.stdin is not None
        self._helper.stdin.close()
        assert self._helper.wait(15) == 0
        assert self._helper.stdout is not None
        self._helper.stdout.close()


@pytest.fixture
def asked(library: Path, tmp_path: Path) -> Iterator[Callable[..., Asked]]:
    """A helper, once for each test; its script begins as given."""
    made: list[Asked] = []
    script = tmp_path / "cuda.txt"
    (tmp_path / "mps").mkdir()
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "mps")}
    ) as subject:
        record = look_up(subject.pid)
        assert record is not None

        def make(text: str = "") -> Asked:
            script.write_text(text)
            environment = {
                **os.environ,
                "LD_LIBRARY_PATH": str(library),
                "NLS_CUDA_STUB_SCRIPT": str(script),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
            }
            made.append(Asked(script, environment, record.id))
            return made[-1]

        yield make
        for each in made:
            each.close()
        subject.kill()


def test_the_driver_is_asked_in_its_order_and_in_place(asked: Callable[..., Asked]) -> None:
    helper = asked()
    assert helper.told("freeze", timeout_s=5.0) == {"ok": True, "bytes": None}
    assert helper.calls() == ["Lock", "Checkpoint"]
    assert helper.told("thaw") == {"ok": True}
    assert helper.calls() == ["Lock", "Checkpoint", "Restore", "Unlock"]


@pytest.mark.parametrize(
    ("script", "why", "calls"),
    [
        pytest.param(f"fail Lock {NOT_READY}", "CUDA_ERROR_NOT_READY", ["Lock"], marks=LONG),
        (f"fail Checkpoint {OUT_OF_MEMORY}", "OUT_OF_MEMORY", ["Lock", "Checkpoint", "Unlock"]),
        pytest.param(
            f"fail Checkpoint {NOT_SUPPORTED}",
            "managed memory, for example",
            ["Lock", "Checkpoint", "Unlock"],
            marks=LONG,
        ),
    ],
)
def test_what_fails_while_it_is_frozen_leaves_it_unlocked(
    script: str, why: str, calls: list[str], asked: Callable[..., Asked]
) -> None:
    helper = asked(script + "\n")
    answer = helper.told("freeze", timeout_s=5.0)
    assert (answer["ok"], answer["error"]) == (False, "not_frozen")
    assert why in answer["why"] or "CUDA_ERROR_OF_THE_STUB" in answer["why"]
    assert helper.calls() == calls
    assert helper.told("unlock") == {"ok": True, "state": "running"}


def test_a_restore_without_memory_leaves_it_as_it_was(asked: Callable[..., Asked]) -> None:
    helper = asked(f"fail Restore {OUT_OF_MEMORY}\n")
    helper.told("freeze", timeout_s=5.0)
    assert helper.told("thaw")["error"] == "not_thawed"
    helper.script.write_text("")
    assert helper.told("thaw") == {"ok": True}


@LONG
@pytest.mark.parametrize("function", ["Restore", "Unlock"])
def test_a_process_that_the_driver_gives_up_is_lost(function: str, asked: Callable[..., Asked]) -> None:
    helper = asked(f"breaks {function} {OUT_OF_MEMORY}\n")
    helper.told("freeze", timeout_s=5.0)
    assert helper.told("thaw")["error"] == "lost"
    assert helper.told("unlock") == {"ok": True, "state": "failed"}


@pytest.mark.parametrize(
    "script",
    [
        # Taking it to host memory, and bringing it back, as CUDA 13 numbers them; cuda-core 1.2 has no names for these.
        "state 4",
        pytest.param("state 5", marks=LONG),
        pytest.param(f"fail GetState {NOT_READY}", marks=LONG),
    ],
)
def test_a_process_of_which_the_driver_does_not_say_how_it_is_is_not_lost(
    script: str, asked: Callable[..., Asked]
) -> None:
    helper = asked()
    helper.told("freeze", timeout_s=5.0)
    helper.script.write_text(f"{script}\n")
    assert helper.told("thaw")["error"] == "not_thawed"
    assert helper.told("unlock") == {"ok": True, "state": None}
    helper.script.write_text("")
    assert helper.told("thaw") == {"ok": True}


def test_a_process_that_has_ended_is_lost(asked: Callable[..., Asked]) -> None:
    helper = asked()
    helper.process = replace(helper.process, start_time=1)
    assert helper.told("freeze", timeout_s=5.0)["error"] == "lost"
    assert helper.told("thaw")["error"] == "lost"


@LONG
def test_a_locked_process_is_unlocked_when_the_helper_s_supervisor_ends(asked: Callable[..., Asked]) -> None:
    helper = asked(f"fail Checkpoint {OUT_OF_MEMORY}\nfail Unlock {NOT_PERMITTED}\n")
    assert helper.told("freeze", timeout_s=5.0)["error"] == "not_thawed"
    helper.script.write_text("")
    helper.close()
    assert helper.calls() == ["Unlock"]


@LONG
@pytest.mark.parametrize(
    ("script", "refusal"),
    [
        ("version 12070", "the GPU driver is older than 570"),
        (f"fail cuInit {NOT_PERMITTED}", "CUDA cannot be initialised: CUDA_ERROR_NOT_PERMITTED"),
    ],
)
def test_an_old_or_broken_driver_freezes_nothing(script: str, refusal: str, asked: Callable[..., Asked]) -> None:
    helper = asked(script + "\n")
    assert helper.told("test") == {"ok": True, "refusal": refusal}
    assert helper.told("freeze", timeout_s=5.0)["why"] == refusal
    assert helper.calls() == []


@LONG
def test_a_process_under_mps_is_not_frozen(asked: Callable[..., Asked], tmp_path: Path) -> None:
    helper = asked()
    (tmp_path / "mps" / "control").touch()
    assert helper.told("freeze", timeout_s=5.0)["why"] == "its GPU is shared by MPS"


@pytest.mark.parametrize(
    ("script", "fails"),
    [
        ("", None),
        pytest.param("fail DtoH 1", "its memory came back changed", marks=LONG),
        pytest.param(f"fail Lock {NOT_SUPPORTED}", "managed memory, for example", marks=LONG),
        pytest.param(f"fail DeviceGet {NOT_PERMITTED}", "its process could not use the GPU", marks=LONG),
    ],
)
def test_the_trial_on_a_node_s_driver_says_whether_it_can_be_relied_on(
    script: str, fails: str | None, asked: Callable[..., Asked]
) -> None:
    refusal = asked(script + "\n").told("test")["refusal"]
    assert refusal is None if fails is None else fails in refusal
