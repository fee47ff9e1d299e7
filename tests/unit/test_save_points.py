from __future__ import annotations

import pickle
import signal
import threading

import pytest

import nls_jupyter
from nls_jupyter.between.held_signals import RECLAIM
from nls_jupyter.gpu_process.reclaim import Reclaims
from nls_jupyter.gpu_process.save_points import SavePointBudget


def test_outside_of_a_gpu_process_a_save_point_does_nothing() -> None:
    assert nls_jupyter.save_point() is False


def test_the_first_save_point_of_a_cell_is_free_up_to_50_ms() -> None:
    budget = SavePointBudget()
    budget.cell_began(100.0)
    assert budget.allows(100.0)
    budget.saved(0.0, 0.05)
    budget.cell_began(101.0)
    assert budget.allows(101.0)
    budget.saved(0.0, 0.06)
    budget.cell_began(102.0)
    assert not budget.allows(102.0)
    assert budget.allows(103.3)


def test_later_ones_may_cost_a_twentieth_of_the_run_time_since_the_last() -> None:
    budget = SavePointBudget()
    budget.cell_began(0.0)
    budget.saved(100.0, 110.0)
    assert not budget.allows(309.0)
    assert budget.allows(310.0)


def test_time_between_cells_is_not_run_time() -> None:
    budget = SavePointBudget()
    budget.cell_began(0.0)
    budget.saved(100.0, 110.0)
    budget.cell_began(9000.0)
    assert not budget.allows(9001.0)


def test_a_tight_loop_spends_at_most_a_twentieth_on_save_points() -> None:
    budget, now, saving = SavePointBudget(), 0.0, 0.0
    budget.cell_began(now)
    while now < 100.0:
        now += 0.001
        if budget.allows(now):
            budget.saved(now, now + 0.04)
            now, saving = now + 0.04, saving + 0.04
    assert 3.0 < saving < 5.0 + 0.05


def test_what_was_asked_of_a_cell_that_is_over_touches_nobody() -> None:
    reclaims = Reclaims()
    assert not reclaims.ask("bob needs GPU 0", 1.0)
    with reclaims.cell():
        reclaims._asked = nls_jupyter.GpuReclaimed("bob needs GPU 0", 1.0)  # asked while the cell was ending
    reclaims._on_signal(0, None)
    assert reclaims.take() is None


def test_a_signal_that_ended_no_wait_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reclaims, sent = Reclaims(), []
    monkeypatch.setattr(signal, "pthread_kill", lambda *to: sent.append(to))  # lost, as just before a sleep
    with reclaims.cell():
        assert reclaims.ask("bob needs GPU 0", 1.0)
        assert reclaims.ask_again()
        assert sent == [(threading.get_ident(), RECLAIM)] * 2
        with pytest.raises(nls_jupyter.GpuReclaimed):
            reclaims._on_signal(RECLAIM, None)
        assert not reclaims.ask_again()
        assert reclaims.ask("bob needs GPU 0", 1.0)
    assert not reclaims.ask_again()
    assert len(sent) == 3


def test_gpu_reclaimed_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(nls_jupyter.GpuReclaimed("bob needs GPU 0", 2.0)))
    assert (error.reason, error.grace_s) == ("bob needs GPU 0", 2.0)
    assert str(error).startswith("the GPU was taken back: bob needs GPU 0.")
