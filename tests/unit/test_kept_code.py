"""Hidden code of frontends, with a GPU process made of promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.supervisor import kept_code
from nls_jupyter.supervisor.kept_code import KeptCode
from nls_jupyter.supervisor.launch import ExitStatus, GpuProcessDied
from nls_jupyter.supervisor.notices import NoticeLog

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeProcess:
    """Notes what it is to run, and does `happens` with it."""

    def __init__(self, happens: Callable[[str], Any] | None = None) -> None:
        self.ran: list[str] = []
        self.interrupts = 0
        self._happens = happens

    async def execute(self, code: str, **_: Any) -> Any:
        self.ran.append(code)
        if self._happens is not None and (waits := self._happens(code)) is not None:
            await waits
        return {"content": {"status": "ok"}}

    def interrupt(self) -> None:
        self.interrupts += 1


def ran_in(kept: KeptCode, process: FakeProcess) -> list[str]:
    asyncio.run(kept.run_in(process))  # type: ignore[arg-type]
    return process.ran


def test_it_is_kept_in_order_and_once_and_runs_in_each_process() -> None:
    kept = KeptCode(NoticeLog())
    assert all(kept.take(code) for code in ("a", "b", "a"))
    assert ran_in(kept, FakeProcess()) == ["a", "b"]
    assert ran_in(kept, FakeProcess()) == ["a", "b"]


def test_what_comes_while_it_runs_runs_too_and_what_comes_later_is_not_kept() -> None:
    kept = KeptCode(NoticeLog())
    kept.take("a")
    assert ran_in(kept, FakeProcess(lambda code: kept.take("b") and None)) == ["a", "b"]
    assert not kept.take("c")
    assert not kept.take("a")


def test_code_that_ends_the_process_is_told_and_not_run_again() -> None:
    log = NoticeLog()
    kept = KeptCode(log)
    kept.take("a")
    kept.take("deadly")
    kept.take("b")

    def dies(code: str) -> None:
        if code == "deadly":
            raise GpuProcessDied(ExitStatus(returncode=3, signal=None))

    with pytest.raises(GpuProcessDied):
        ran_in(kept, FakeProcess(dies))
    assert "ended the GPU process, which exited with code 3" in log.as_text()
    assert kept.take("c")
    assert ran_in(kept, FakeProcess(dies)) == ["a", "b", "c"]


def test_code_that_does_not_end_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "_WITHIN_S", 0.01)
    log = NoticeLog()
    kept = KeptCode(log)
    kept.take("endless")
    process = FakeProcess(lambda _: asyncio.Event().wait())
    ran_in(kept, process)
    assert process.interrupts == 1
    assert "was interrupted in the GPU process after 0.01 s" in log.as_text()


@pytest.mark.parametrize(("bound", "most"), [("_MOST_REQUESTS", 2), ("_MOST_BYTES", 2)])
def test_what_is_kept_is_bounded_and_the_first_that_is_not_is_told(
    monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(kept_code, bound, most)
    log = NoticeLog()
    kept = KeptCode(log)
    assert all(kept.take(code) for code in "ab cda")
    assert ran_in(kept, FakeProcess()) == ["a", "b"]
    assert log.as_text().count("ran in the notebook's kernel alone") == 1
