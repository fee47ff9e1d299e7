"""What every driver that freezes processes has to keep to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model.ids import ProcessId
from nls_scheduler.drivers.checkpoints import CheckpointFailed, NotFrozen, State, freeze, thaw, unlock_only
from nls_scheduler.processes.proc import look_up
from waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nls_scheduler.drivers.checkpoints import Checkpoints


LONG = pytest.mark.long("a process each that is frozen and thawed: some of them are here")


@dataclass
class Subject:
    """A process with GPU memory that says `same` for each line, as long as its memory is what it was."""

    popen: subprocess.Popen[str]
    process: ProcessId

    def asks(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write("\n")
        self.popen.stdin.flush()

    def answers(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


class CheckpointContract:
    """Tests that need `driver`, `subject_code` and `environment` from fixtures of the class that inherits them."""

    @pytest.fixture
    def subject(self, subject_code: str, environment: Mapping[str, str]) -> Iterator[Subject]:
        command = [sys.executable, "-c", subject_code]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
        ) as popen:
            assert popen.stdout is not None
            assert popen.stdout.readline().strip() == "ready"
            record = look_up(popen.pid)
            assert record is not None
            try:
                yield Subject(popen, record.id)
            finally:
                popen.kill()

    def test_a_frozen_process_holds_nothing_and_goes_on_with_all_that_it_had(
        self, driver: Checkpoints, subject: Subject, held_by
    ) -> None:
        before = held_by(subject.process)
        assert before > 0
        assert driver.refusal(subject.process) is None
        freeze(driver, subject.process, 10.0)
        assert driver.state(subject.process) is State.CHECKPOINTED
        wait_until(lambda: held_by(subject.process) == 0)
        subject.asks()
        thaw(driver, subject.process)
        assert subject.answers() == "same"
        assert driver.state(subject.process) is State.RUNNING
        assert held_by(subject.process) == before

    @LONG
    def test_it_can_be_frozen_again(self, driver: Checkpoints, subject: Subject) -> None:
        for _ in range(2):
            freeze(driver, subject.process, 10.0)
            thaw(driver, subject.process)
        subject.asks()
        assert subject.answers() == "same"

    def test_a_locked_process_is_unlocked_for_who_ends_it_and_a_frozen_one_is_left(
        self, driver: Checkpoints, subject: Subject
    ) -> None:
        driver.lock(subject.process, 10.0)
        assert driver.state(subject.process) is State.LOCKED
        assert unlock_only(driver, subject.process) is State.RUNNING
        freeze(driver, subject.process, 10.0)
        assert unlock_only(driver, subject.process) is State.CHECKPOINTED
        thaw(driver, subject.process)
        subject.asks()
        assert subject.answers() == "same"

    @LONG
    def test_steps_out_of_their_order_are_refused_and_change_nothing(
        self, driver: Checkpoints, subject: Subject
    ) -> None:
        for step in (driver.checkpoint, driver.restore, driver.unlock):
            with pytest.raises(CheckpointFailed):
                step(subject.process)
        assert driver.state(subject.process) is State.RUNNING
        subject.asks()
        assert subject.answers() == "same"

    def test_a_process_that_uses_no_gpu_is_not_frozen_and_goes_on(self, driver: Checkpoints) -> None:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as popen:
            record = look_up(popen.pid)
            assert record is not None
            with pytest.raises(NotFrozen):
                freeze(driver, record.id, 5.0)
            said, _ = popen.communicate("here\n", timeout=15)
        assert said == "here\n"

    def test_of_a_process_that_has_ended_nothing_can_be_said(self, driver: Checkpoints, subject: Subject) -> None:
        subject.popen.kill()
        subject.popen.wait()
        with pytest.raises(CheckpointFailed, match="ended"):
            driver.state(subject.process)

    @LONG
    def test_a_pid_that_was_given_out_again_is_another_process(self, driver: Checkpoints, subject: Subject) -> None:
        other = ProcessId(subject.process.pid, subject.process.start_time + 1)
        with pytest.raises(CheckpointFailed):
            driver.lock(other, 1.0)
        assert driver.state(subject.process) is State.RUNNING
