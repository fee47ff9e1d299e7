"""What a daemon that starts takes for claimed, before anybody has told which pods there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nls_scheduler.core.model import events as ev
from nls_scheduler.core.model.gpu import Claims, Owner
from nls_scheduler.core.model.ids import GpuUuid
from nls_scheduler.core.simulator import GIB, SimulatedNode
from nls_scheduler.kubernetes_driver.first_list import UNKNOWN, held_back, remembered

if TYPE_CHECKING:
    from nls_scheduler.core.model.state import NodeState

ZERO, ONE = GpuUuid("GPU-0"), GpuUuid("GPU-1")
TRAIN = Owner("allocated:default/train", "default/train", (ONE,))


def node(claims: Claims) -> NodeState:
    """Two Gpus; one notebook at home on GPU 0 borrows GPU 1."""
    simulated = SimulatedNode.of(2, 16 * GIB)
    for _ in range(2):
        simulated.submit(request_bytes=8 * GIB, limit_bytes=16 * GIB, given_home=(ZERO,))
    simulated.settle()
    simulated.advance(60)
    assert {uuid for w in simulated.state.workloads.values() for uuid in w.current} == {ZERO, ONE}
    simulated.tell(ev.GpusClaimed(simulated.now, claims))
    return simulated.state


@pytest.mark.parametrize(
    ("before", "allocations", "owners"),
    [
        (Claims(), None, ()),
        (Claims(), {"default/train": (ONE,)}, (TRAIN,)),
        (Claims(), {"kai-resource-reservation/gpu-reservation-a": (ZERO,)}, ()),
        (Claims(allocated=frozenset({ONE})), {"default/ours": (ONE,)}, ()),
        (Claims((Owner("uid", "default/train", (ONE,)),)), {"default/train": (ONE,)}, ("uid",)),
        (Claims((Owner("uid", "monitoring/exporter"),)), {"monitoring/exporter": (ONE,)}, ("uid",)),
        (Claims((Owner(UNKNOWN, "", (ONE,)),)), None, ()),
        (Claims(), {"default/train": ("GPU-of-somebody-else",)}, ()),
    ],
    ids=[
        "nobody was there and the kubelet does not answer",
        "the kubelet gave a borrowed GPU to a stranger",
        "a device that is somebody's home may be its reservation",
        "a device that somebody had may be one of ours",
        "an owner that was known stays under its name",
        "who owned nothing only looks at what the kubelet gave it",
        "what was kept back only for want of knowledge is nobody's",
        "a device that is not ours",
    ],
)
def test_what_is_claimed_before_the_first_list(
    before: Claims, allocations: dict[str, tuple[str, ...]] | None, owners: tuple[object, ...]
) -> None:
    found = remembered(node(before), allocations).owners
    assert tuple(o if isinstance(w, Owner) else o.id for o, w in zip(found, owners, strict=True)) == owners


def test_nobody_s_gpu_is_held_back_and_a_borrowed_one_is_not_taken_away() -> None:
    assert held_back(Claims(), node(Claims())) == Claims()
    empty = SimulatedNode.of(2, 16 * GIB).state
    assert [owner.gpus for owner in held_back(Claims((TRAIN,)), empty).owners] == [(ONE,), (ZERO,)]
