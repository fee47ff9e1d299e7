"""The order of a GPU process that was started ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nls_jupyter.between import ahead, lane
from nls_jupyter.supervisor.ahead import Ahead
from nls_jupyter.supervisor.standby_settings import StandbySettings

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def kernels_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[lane.Lane]:
    own, inherited = lane.Lane.pair()
    monkeypatch.setenv(lane.VARIABLE, str(inherited.fileno()))
    yield own
    own.close()
    inherited.close()


def test_the_process_gets_what_the_kernel_gives(kernels_end: lane.Lane) -> None:
    environment = {"MASK": "GPU-1", "GONE": None}
    ahead.give_order(kernels_end, environment, "/here")
    assert ahead.await_order() == (environment, "/here")


def test_without_a_kernel_there_is_no_order(kernels_end: lane.Lane) -> None:
    kernels_end.close()
    with pytest.raises(OSError, match="is gone"):
        ahead.await_order()


def test_the_first_environment_shows_the_new_variables_in_place_of_the_room() -> None:
    whole = f"A=1\0{ahead.VARIABLE}=".encode() + ahead.as_first_environment({"MASK": "GPU-1", "GONE": None}) + b"\0B=2"
    assert len(whole) == len(f"A=1\0{ahead.VARIABLE}={' ' * ahead.ROOM_BYTES}\0B=2")
    shown = [variable.rstrip(b" ") for variable in whole.split(b"\0")]
    assert shown == [b"A=1", b"NLS_AHEAD=", b"MASK=GPU-1", b"NLS_AHEAD=", b"B=2"]


def test_what_has_no_room_is_not_given(kernels_end: lane.Lane) -> None:
    with pytest.raises(OSError, match="bytes, more than 4096"):
        ahead.give_order(kernels_end, {"MASK": "G" * 4096}, "/here")
    kernels_end.close()
    with pytest.raises(OSError, match="is gone"):
        ahead.await_order()


@pytest.mark.parametrize("left", [0, OSError("/proc cannot be read")])
def test_where_nothing_can_be_started_ahead_the_first_process_starts_cold(
    monkeypatch: pytest.MonkeyPatch, left: int | OSError
) -> None:
    def budget_bytes(_: StandbySettings) -> int:
        if isinstance(left, OSError):
            raise left
        return left

    monkeypatch.setattr(StandbySettings, "budget_bytes", budget_bytes)
    none = Ahead(StandbySettings(0.05))
    try:
        assert none.thread.call(none.take({}), 10) is None
        none.thread.call(none.end(), 10)
    finally:
        none.thread.stop()
