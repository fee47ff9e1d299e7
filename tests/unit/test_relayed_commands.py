from __future__ import annotations

import pytest

from nls_jupyter.between.errors import GpuUnavailable
from nls_jupyter.notebook.relayed_commands import carry_out
from nls_jupyter.notebook.status_view import GpuStatus

STATUS = GpuStatus({"gpus": [], "workloads": [], "simulated": False, "message": "No GPU."}, None)


def test_what_it_prints_and_returns_is_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    def command(line: str) -> GpuStatus:
        print("said of", line)
        return STATUS

    answer = carry_out(command, "status")
    assert answer["printed"] == "said of status\n"
    assert answer["data"]["text/plain"].startswith("No GPU.")
    assert capsys.readouterr().out == ""
    assert carry_out(lambda _: None, "log") == {"printed": ""}


@pytest.mark.parametrize("name", ["forget", "recompute", "release", "restart", "resume", "save", "suspend"])
def test_what_would_wait_for_the_cell_is_not_even_tried(name: str) -> None:
    def command(line: str) -> None:
        raise AssertionError(line)

    answer = carry_out(command, f" {name} now")
    assert answer["ename"] == "GpuUsageError"
    assert f"%gpu {name} would wait" in answer["evalue"]


def test_a_failure_is_an_answer_with_what_was_printed_before() -> None:
    def command(line: str) -> None:
        print("tried")
        raise GpuUnavailable("no daemon.")

    assert carry_out(command, "") == {"printed": "tried\n", "ename": "GpuUnavailable", "evalue": "no daemon."}
