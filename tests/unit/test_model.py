"""What a workload is by its spec and its record: who may be moved, what it counts with, which Gpu is in which pool."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nls_scheduler.core.model.commands import StartProcess
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.spec import Kind, WorkloadSpec
from nls_scheduler.core.model.transitions import IllegalTransitionError, transition
from nls_scheduler.core.model.workload import Phase, Workload
from nls_scheduler.core.simulator import GIB

BOOK = WorkloadSpec("book", Kind.NOTEBOOK, 1000, 4 * GIB, 8 * GIB)
RUN = replace(BOOK, kind=Kind.COMMAND)


@pytest.mark.parametrize(
    ("spec", "movable", "may_borrow", "can_take_turns"),
    [
        (BOOK, True, True, True),
        (replace(BOOK, limit_bytes=4 * GIB), True, False, True),
        (RUN, False, False, False),
        (replace(RUN, requeue=True), True, True, False),
        (replace(RUN, requeue=True, limit_bytes=4 * GIB), True, False, False),
        (replace(RUN, requeue=True, gpu_count=2), False, False, False),
        (replace(RUN, requeue=True, gpu_count_max=2), False, False, False),
        (replace(RUN, requeue=True, gang="g", gang_size=2), False, False, False),
    ],
)
def test_who_may_be_moved_who_may_borrow_and_who_takes_turns(
    spec: WorkloadSpec, *, movable: bool, may_borrow: bool, can_take_turns: bool
) -> None:
    assert (spec.movable, spec.may_borrow, spec.can_take_turns) == (movable, may_borrow, can_take_turns)


@pytest.mark.parametrize(
    "impossible",
    [
        {"request_bytes": 0},
        {"request_bytes": 9 * GIB},
        {"gpu_count": 0},
        {"gpu_count": 2, "gpu_count_max": 1},
        {"gang_size": 0},
        {"pools": ()},
    ],
)
def test_what_no_gpu_could_ever_honour_is_no_spec(impossible: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        replace(BOOK, **impossible)  # type: ignore[arg-type]


def test_who_comes_back_needs_its_saved_state_and_its_context() -> None:
    book = Workload(WorkloadId("w"), BOOK, 0.0, phase=Phase.SUSPENDED, context_bytes=GIB, saved_bytes=4 * GIB)
    assert book.return_bytes == 5 * GIB
    assert replace(book, saved_bytes=GIB).return_bytes == 4 * GIB
    assert replace(book, spec=RUN).return_bytes == 4 * GIB


def test_a_pool_names_gpus_by_uuid_index_or_product_and_slices_by_the_gpu_that_they_are_of() -> None:
    gpu = Gpu(GpuUuid("GPU-a"), 3, "NVIDIA A100-SXM4", GIB)
    piece = replace(gpu, uuid=GpuUuid("MIG-1"), index=4, name="MIG 1g", parent=gpu.uuid)
    by_name = {
        word: [Pool("p", (word,)).names(g) for g in (gpu, piece)] for word in ("GPU-a", "3", "NVIDIA A100*", "1")
    }
    expected = {"GPU-a": [True, True], "3": [True, False], "NVIDIA A100*": [True, False], "1": [False, False]}
    assert by_name == expected


def test_of_two_pools_that_name_a_gpu_the_first_has_it() -> None:
    policy = Policy(pools=(Pool("first", ("0",)), Pool("second", ("0", "1"))))
    gpus = [Gpu(GpuUuid(str(n)), n, "Gpu", GIB) for n in range(3)]
    assert [policy.pool_of(gpu).name for gpu in gpus] == ["first", "second", "default"]


def test_an_illegal_transition_is_told_with_the_record() -> None:
    book = Workload(WorkloadId("w7"), BOOK, 0.0, phase=Phase.RUNNING)
    with pytest.raises(IllegalTransitionError, match=r"StartProcess cannot lead from running to starting: .*w7"):
        transition(book, StartProcess, Phase.STARTING)
