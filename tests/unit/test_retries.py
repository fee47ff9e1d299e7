from __future__ import annotations

import pytest

from nls_jupyter.between.errors import GpuEvicted, GpuProcessDied, GpuReclaimed
from nls_jupyter.notebook.relay import remote_error
from nls_jupyter.notebook.retry import Retries
from nls_jupyter.saved_state import Manifest
from nls_jupyter.supervisor.kept_state import SavedState

SAVED = SavedState(-1, Manifest(1, (), (), "[4]"))


def evicted() -> GpuEvicted:
    error = GpuEvicted("a long sentence")
    error.what = "the GPU was taken back: bob needs GPU 0"
    return error


def test_a_cell_that_others_drove_out_is_run_again_three_times() -> None:
    retries = Retries()
    assert [retries.again(evicted()) for _ in range(4)] == [True, True, True, False]


def test_a_cell_under_which_the_process_crashed_twice_is_not_run_again() -> None:
    retries = Retries()
    assert [retries.again(GpuProcessDied("it died")) for _ in range(2)] == [True, False]


def test_a_crash_does_not_use_up_the_tries_after_evictions() -> None:
    retries = Retries()
    errors = [evicted(), GpuProcessDied("it died"), evicted(), evicted()]
    assert [retries.again(error) for error in errors] == [True, True, True, True]


def test_a_cell_that_raised_by_itself_is_never_run_again() -> None:
    assert not Retries().again(ValueError("mine"))
    assert not Retries().again(KeyboardInterrupt())


def test_the_line_says_what_happened_and_what_the_next_attempt_begins_with() -> None:
    retries = Retries()
    retries.again(evicted())
    assert retries.line(evicted(), SAVED) == (
        "the GPU was taken back: bob needs GPU 0; running the cell again on the variables of cell [4] (attempt 2)"
    )
    assert "again on no variables, as none were saved (attempt 2)" in retries.line(evicted(), None)


@pytest.mark.parametrize("remote", [True, False])
def test_a_reclaimed_cell_goes_on_with_what_it_left(remote: bool) -> None:
    error: BaseException = GpuReclaimed("bob needs GPU 0", 20.0)
    if remote:
        error = remote_error({"ename": "GpuReclaimed", "evalue": str(error)})
        assert isinstance(error, GpuReclaimed)
        assert isinstance(error, KeyboardInterrupt)
    retries = Retries()
    assert retries.again(error)
    assert retries.line(error, SAVED) == (
        "the GPU was taken back: bob needs GPU 0; running the cell again on its variables as they were then (attempt 2)"
    )
