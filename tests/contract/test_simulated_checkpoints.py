"""Freezing on simulated Gpus passes the contract, and the order of steps holds whatever fails on the way."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from checkpoint_contract import LONG, CheckpointContract, Subject

from nls_scheduler.drivers import checkpoints
from nls_scheduler.drivers.checkpoints import NotFrozen, NotThawed, ProcessLost, State, freeze, thaw
from nls_scheduler.drivers.simulated import SimulatedDriver, SimulationSpec
from nls_scheduler.drivers.simulated_checkpoints import FAULT_FILE, SimulatedCheckpoints
from nls_scheduler.processes.proc import look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from nls_scheduler.core.model.ids import ProcessId

GIB = 2**30
SUBJECT = """
import os, sys
from nls_scheduler.drivers.simulated import SimulatedGpu
gpu = SimulatedGpu.from_environment(os.environ)
gpu.allocate(2 << 30)
os.write(1, b"ready\\n")  # whole, also where a child writes at the same time
while sys.stdin.readline():
    print("same" if gpu.used_bytes() == (2 << 30) + (256 << 20) else "changed", flush=True)
"""


class TestSimulatedCheckpoints(CheckpointContract):
    """One simulated Gpu of 4 GiB."""

    @pytest.fixture
    def node(self, tmp_path: Path) -> Iterator[SimulatedDriver]:
        driver = SimulatedDriver(tmp_path / "simulation", SimulationSpec(1, 4 * GIB), 256 << 20)
        yield driver
        driver.close()

    @pytest.fixture
    def driver(self, tmp_path: Path) -> SimulatedCheckpoints:
        return SimulatedCheckpoints(tmp_path / "simulation")

    @pytest.fixture
    def subject_code(self) -> str:
        return SUBJECT

    @pytest.fixture
    def environment(self, node: SimulatedDriver) -> Mapping[str, str]:
        return {**os.environ, **node.environment([info.uuid for info in node.discover()])}

    @pytest.fixture
    def held_by(self, node: SimulatedDriver) -> Callable[[ProcessId], int]:
        def held(process: ProcessId) -> int:
            return sum((sample.processes or {}).get(process, 0) or 0 for sample in node.sample().values())

        return held

    @pytest.fixture
    def fails_at(self, tmp_path: Path) -> Callable[[str], None]:
        return lambda step: (tmp_path / "simulation" / FAULT_FILE).write_text(step)

    @pytest.mark.parametrize("step", [pytest.param("lock", marks=LONG), "checkpoint"])
    def test_what_fails_on_the_way_leaves_it_running(
        self, step: str, driver: SimulatedCheckpoints, subject: Subject, fails_at: Callable[[str], None]
    ) -> None:
        fails_at(step)
        with pytest.raises(NotFrozen, match=f"told to fail at {step}"):
            freeze(driver, subject.process, 10.0)
        subject.asks()
        assert subject.answers() == "same"

    @LONG
    def test_what_comes_too_late_goes_on_again(self, driver: SimulatedCheckpoints, subject: Subject) -> None:
        times = iter([0.0, 11.0])
        with pytest.raises(NotFrozen, match=r"longer than 10\.0 s"):
            freeze(driver, subject.process, 10.0, clock=lambda: next(times))
        assert driver.state(subject.process) is State.RUNNING
        subject.asks()
        assert subject.answers() == "same"

    def test_without_room_it_stands_still_as_before(
        self, driver: SimulatedCheckpoints, subject: Subject, environment: Mapping[str, str]
    ) -> None:
        freeze(driver, subject.process, 10.0)
        with subprocess.Popen(
            [sys.executable, "-c", SUBJECT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment)
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"ready\n"
            with pytest.raises(NotThawed, match="out of memory"):
                thaw(driver, subject.process)
            assert driver.state(subject.process) is State.CHECKPOINTED
            other.kill()
        thaw(driver, subject.process)
        subject.asks()
        assert subject.answers() == "same"

    def test_one_that_stays_locked_is_not_lost_and_goes_on_when_the_driver_lets_it(
        self, driver: SimulatedCheckpoints, subject: Subject, fails_at: Callable[[str], None]
    ) -> None:
        freeze(driver, subject.process, 10.0)
        fails_at("unlock")
        with pytest.raises(NotThawed):
            thaw(driver, subject.process)
        assert driver.state(subject.process) is State.LOCKED
        fails_at("nothing")
        thaw(driver, subject.process)
        subject.asks()
        assert subject.answers() == "same"

    def test_a_process_whose_child_uses_the_gpu_is_not_frozen(
        self, driver: SimulatedCheckpoints, environment: Mapping[str, str]
    ) -> None:
        child = SUBJECT.replace("gpu.allocate", "os.fork(); gpu.allocate", 1).replace("2 << 30", "1 << 28")
        with subprocess.Popen(
            [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(environment)
        ) as parent:
            assert parent.stdout is not None
            assert [parent.stdout.readline() for _ in range(2)] == [b"ready\n", b"ready\n"]
            record = look_up(parent.pid)
            assert record is not None
            with pytest.raises(NotFrozen, match="which it started, uses the GPU as well"):
                freeze(driver, record.id, 10.0)
            assert parent.stdin is not None
            parent.stdin.close()

    def test_a_helper_that_loses_its_supervisor_unlocks_what_it_locked(
        self, driver: SimulatedCheckpoints, subject: Subject, fails_at: Callable[[str], None], tmp_path: Path
    ) -> None:
        order = f'{{"do": "freeze", "pid": {subject.process.pid}, "start_time": {subject.process.start_time}, '
        fails_at("late")
        said = subprocess.run(
            [sys.executable, "-m", "nls_scheduler.drivers.checkpoint_helper", "--simulation", tmp_path / "simulation"],
            input=order + '"timeout_s": 0.2}\n', capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert "not_frozen" in said
        assert driver.state(subject.process) is State.RUNNING


def test_a_failed_process_is_lost_and_nothing_is_done_with_it() -> None:
    class Failed:
        def state(self, _: object) -> State:
            return State.FAILED

    with pytest.raises(ProcessLost, match="given the process up"):
        thaw(Failed(), None)  # type: ignore[arg-type]
    assert checkpoints.unlock_only(Failed(), None) is State.FAILED  # type: ignore[arg-type]
