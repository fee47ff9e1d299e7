from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from nls_jupyter.notebook.options import of_request
from nls_scheduler.core.model.gpu import Gpu
from nls_scheduler.core.model.ids import GpuUuid, WorkloadId
from nls_scheduler.core.model.policy import Policy
from nls_scheduler.core.model.pools import Pool
from nls_scheduler.core.model.reasons import Reason, Why
from nls_scheduler.core.model.workload import Phase, Workload
from nls_scheduler.requests import joining
from nls_scheduler.requests.submission import Defaults, check_count, check_saved, no_gpu, respecification, submission
from nls_scheduler.views.sentences import Names, sentence
from nls_scheduler.wire.errors import Problem
from openapi_contract import SPEC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nls_scheduler.core.model.spec import WorkloadSpec

GIB = 2**30
GPUS = [Gpu(GpuUuid("a"), 0, "Small", 8 * GIB), Gpu(GpuUuid("b"), 1, "Large", 16 * GIB)]


def submit(there: Sequence[Gpu] = GPUS, policy: Policy | None = None, **body: Any) -> WorkloadSpec:
    return submission(body, 1000, there, Defaults(), {"notebook-1"}, policy or Policy())


def test_fractions_are_of_the_largest_gpu_and_a_notebook_has_defaults() -> None:
    spec = submit(kind="notebook")
    assert (spec.name, spec.owner, spec.request_bytes, spec.limit_bytes) == ("notebook-2", 1000, 8 * GIB, 16 * GIB)
    assert spec.burstable


def test_a_command_gets_a_whole_gpu_and_no_burst() -> None:
    spec = submit(kind="command")
    assert (spec.name, spec.request_bytes, spec.limit_bytes) == ("command-1", 16 * GIB, 16 * GIB)


@pytest.mark.parametrize(
    ("body", "request_gib", "limit_gib"),
    [
        ({"kind": "notebook", "request": "4GiB"}, 4, 16),
        ({"kind": "notebook", "request": 0.25, "limit": "6GiB"}, 4, 6),
        ({"kind": "notebook", "limit": "4GiB"}, 4, 4),
        ({"kind": "command", "request": "0.25"}, 4, 4),
        ({"kind": "command", "limit": "4GiB"}, 4, 4),
        ({"kind": "command", "request": 1}, 16, 16),
    ],
)
def test_what_was_not_given_follows_what_was(body: dict[str, Any], request_gib: int, limit_gib: int) -> None:
    spec = submit(**body)
    assert (spec.request_bytes, spec.limit_bytes) == (request_gib * GIB, limit_gib * GIB)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"gpus": 2, "request": "12GiB"}, "Only 1 usable GPU of this node have 12 GiB, not 2"),
        ({"gpus": 3}, "2 usable GPUs, not 3"),
        ({"request": "20GiB"}, "the largest is GPU 1 (Large) with 16 GiB"),
        ({"request": "6GiB", "limit": "5GiB"}, "The request (6 GiB) is above the limit (5 GiB)"),
        ({"request": "x\ny"}, "is not a size"),
        ({"name": "\x1b"}, "A name is"),
        ({"name": "x" * 256}, "A name is"),
        ({"request": float("inf")}, "is not a size"),
        ({"request": 10**400}, "more than 0 and at most 1"),
        ({"kind": "command", "gpus": 2, "gpus_max": 1}, "The most GPUs (1) are fewer than the fewest (2)"),
        ({"gpus": 1, "gpus_max": 2}, "Only commands (nls run) can be elastic"),
        ({"gang": "g", "gang_size": 2}, "Only commands (nls run) can be elastic or in a gang"),
        ({"kind": "command", "gang": "g"}, "go together"),
        ({"kind": "command", "gang_size": 2}, "go together"),
        ({"kind": "command", "gang": "g", "gang_size": 0}, "'gang_size' is a whole number"),
        ({"kind": "command", "gang": "\x1b", "gang_size": 2}, "A gang's name is"),
        ({"kind": "command", "gang": "g", "gang_size": 2, "gpus": 1, "gpus_max": 2}, "fixed number of GPUs each"),
        ({"priority": 10**12}, "'priority' is a whole number"),
    ],
)
def test_what_no_gpu_could_honour_is_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(Problem) as caught:
        submit(**{"kind": "notebook", **body})
    assert says in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_pool_that_is_off_or_has_no_gpu_is_refused_at_once() -> None:
    policy = Policy(pools=(Pool("off", ("0",), enabled=False), Pool("empty", ("7",))))
    is_off, none_there = "was turned off by an administrator", "has no GPU in service on this node"
    for pools, told in (
        ("off", f"The pool 'off' {is_off}: name another pool, of default (1 usable GPU), or wait until it is on."),
        ("empty", f"The pool 'empty' {none_there}: name another pool, of default (1 usable GPU), or wait for one."),
        ("empty,off", f"The pool 'empty' or 'off' {none_there}: name another pool, of default (1 usable GPU), or wait"),
    ):
        body = {"kind": "notebook", "pools": pools}
        with pytest.raises(Problem, match=re.escape(told)):
            submission(body, 1000, GPUS, Defaults(), set(), policy)


def test_who_names_no_pool_where_pools_name_all_gpus_reads_which_there_are() -> None:
    policy = Policy(pools=(Pool("x", ("0",)), Pool("y", ("1",))))
    with pytest.raises(Problem) as caught:
        submission({"kind": "command"}, 1000, GPUS, Defaults(), set(), policy)
    assert "name another pool, of x (1 usable GPU), y (1 usable GPU), or wait for one." in caught.value.detail


def test_more_gpus_than_any_pool_has_are_refused_at_once_unless_fewer_will_do() -> None:
    policy = Policy(pools=(Pool("x", ("0",)), Pool("y", ("1",))))
    body = {"kind": "command", "pools": "x,y", "request": "4GiB"}
    with pytest.raises(Problem, match=r"No pool of x, y has more than 1 usable GPU for that.*or for 1\.\.2\."):
        submission({**body, "gpus": 2}, 1000, GPUS, Defaults(), set(), policy)
    with pytest.raises(Problem, match=r"and the fewest come from one pool: ask for fewer than 2, or for 1\.\.3\."):
        submission({**body, "gpus": 2, "gpus_max": 3}, 1000, GPUS, Defaults(), set(), policy)
    assert submission({**body, "gpus": 1, "gpus_max": 2}, 1000, GPUS, Defaults(), set(), policy).elastic
    assert submission({**body, "gpus": 2, "pools": "default"}, 1000, GPUS, Defaults(), set(), Policy()).gpu_count == 2


def test_an_elastic_command_says_its_fewest_and_its_most() -> None:
    spec = submit(kind="command", request="4GiB", gpus=1, gpus_max=8)
    assert (spec.gpu_count, spec.gpu_count_max, spec.elastic) == (1, 8, True)
    assert respecification({"priority": 1}, spec, GPUS, Policy()).gpu_count_max == 8
    assert not respecification({"gpus": 2}, spec, GPUS, Policy()).elastic


def test_several_gpus_are_never_slices() -> None:
    slices = [Gpu(GpuUuid(f"MIG-{n}"), n, "Slice", 8 * GIB, parent=GpuUuid("GPU-a")) for n in range(2)]
    body = {"kind": "command", "request": "4GiB", "gpus": 2}
    with pytest.raises(Problem, match="a process sees one slice at most"):
        submission(body, 1000, slices, Defaults(), set(), Policy())


@pytest.mark.parametrize(
    ("size", "request_gib", "there", "says"),
    [
        (3, 8, 0, None),
        (4, 8, 0, "can never fit: its 4 members ask for 4 shares of a GPU at once, and this node has at most 3"),
        (2, 9, 0, "can never fit: its 2 members ask for 2 shares of a GPU at once, and this node has at most 1"),
        (2, 8, 1, None),
        (2, 8, 2, "has its 2 members already"),
        (3, 8, 1, None),
    ],
)
def test_a_gang_that_can_never_fit_is_refused_at_once(
    size: int, request_gib: int, there: int, says: str | None
) -> None:
    spec = submit(kind="command", request=f"{request_gib}GiB", gang="g", gang_size=size)
    members = [Workload(WorkloadId(str(n)), spec, 0.0) for n in range(there)]
    refused = joining.refusal(spec, members, GPUS, Policy())
    assert says in refused if says and refused else refused == says


def test_a_gang_that_asks_for_more_than_the_node_has_in_all_is_refused() -> None:
    large = [submit(kind="command", request=f"{size}GiB", gang="g", gang_size=3) for size in (12, 12)]
    members = [Workload(WorkloadId(str(n)), spec, 0.0) for n, spec in enumerate(large)]
    small = submit(kind="command", request="1GiB", gang="g", gang_size=3)
    refused = joining.refusal(small, members, GPUS, Policy())
    assert refused is not None
    assert "can never fit" in refused


@pytest.mark.parametrize(
    ("sizes", "pools", "says"),
    [
        ((9, 9), {"small": ("2",)}, "its pool has at most 1 of that size"),
        ((8, 8), {"small": ("2",)}, None),
        ((5, 12), {"small": ("2",)}, "even while nobody else is here, its 2 members find no room"),
        ((5, 11), {"small": ("2",)}, None),
        ((5, 12), {}, None),
        ((11, 12), {}, "this node has at most 1 of that size"),
    ],
)
def test_a_gang_has_to_fit_in_its_pool_and_each_member_on_a_gpu(
    sizes: tuple[int, int], pools: dict[str, tuple[str, ...]], says: str | None
) -> None:
    """Of Gpus with 10, 4 and 16 GiB the last one is a pool."""
    gpus = [Gpu(GpuUuid(f"GPU-{n}"), n, "X", size * GIB) for n, size in enumerate((10, 4, 16))]
    policy = Policy(pools=tuple(Pool(name, gpus=of) for name, of in pools.items()))
    asks = {"kind": "command", "gang": "g", "gang_size": 2, **({"pools": "small"} if pools else {})}
    first, second = (submit(request=f"{size}GiB", policy=policy, there=gpus, **asks) for size in sizes)
    refused = joining.refusal(second, [Workload(WorkloadId("first"), first, 0.0)], gpus, policy)
    assert says in refused if says and refused else refused == says


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"gang_size": 3}, "the size 2, not 3"),
        ({"queue": "b"}, "the queue default, not b"),
        ({"priority": 75}, "the priority 0, not 75"),
        ({"requeue": True}, "the --on-evict rule none, not requeue"),
    ],
)
def test_members_that_differ_in_what_their_gang_has_as_a_whole_are_refused(other: dict[str, Any], differs: str) -> None:
    first = Workload(WorkloadId("a"), submit(kind="command", request="4GiB", gang="g", gang_size=2), 0.0)
    told = f"Gang g has {differs}: say the same for all of its members."
    assert joining.refusal(replace(first.spec, **other), [first], GPUS, Policy()) == told


def test_a_change_keeps_what_it_does_not_name_and_a_guarantee_stays_one() -> None:
    command = submit(kind="command", request="4GiB", name="train")
    bigger = respecification({"request": "6GiB"}, command, GPUS, Policy())
    assert (bigger.name, bigger.request_bytes, bigger.limit_bytes) == ("train", 6 * GIB, 6 * GIB)
    notebook = submit(kind="notebook", limit="12GiB")
    assert respecification({"request": "2GiB"}, notebook, GPUS, Policy()).limit_bytes == 12 * GIB
    with pytest.raises(Problem, match="above the limit"):
        respecification({"request": "14GiB"}, notebook, GPUS, Policy())


@pytest.mark.parametrize("limit", ["2GiB", "4GiB"])
def test_the_command_that_a_sentence_about_a_limit_names_is_taken(limit: str) -> None:
    """Whether the request is below the limit or is all of it."""
    notebook = submit(kind="notebook", request="2GiB", limit=limit)
    why = Why(Reason.BEYOND_LIMIT, bytes=(4 * GIB + 4096, notebook.limit_bytes))
    told = sentence(why, Names(lambda gpus: gpus[0]))
    command = told[told.index("%gpu request") : told.index(" raises")].split()
    changed = respecification(of_request(command[2:]), notebook, GPUS, Policy())
    assert (changed.request_bytes, changed.limit_bytes > 4 * GIB) == (2 * GIB, True)


def test_without_a_gpu_the_refusal_says_why_and_names_the_simulation() -> None:
    problem = no_gpu("The driver is asleep.")
    assert problem.fault == "node"
    assert problem.detail.startswith("The driver is asleep. ")
    assert "nls up --simulate 2x16GiB" in problem.detail


def test_where_every_gpu_is_out_of_service_the_refusal_says_how_one_returns() -> None:
    gpus = [Gpu(GpuUuid(name), number, name, 1, healthy=False) for number, name in enumerate("ab")]
    assert no_gpu("The ledgers are gone: start the daemon again.", simulated=True).detail == (
        "The ledgers are gone: start the daemon again."
    )
    problem = no_gpu(None, gpus)
    assert "out of service: 0, 1" in problem.detail
    assert problem.detail.endswith("nls gpu return 0")


def test_who_runs_keeps_the_number_of_gpus_and_who_waits_may_change_it() -> None:
    spec = submit(kind="command", gpus=1, request="4GiB")
    waiting = Workload(WorkloadId("w1"), spec, 0.0)
    running = replace(waiting, phase=Phase.RUNNING, current=(GpuUuid("b"),))
    for body, refused in (({"gpus": 2}, True), ({"gpus": 1, "gpus_max": 2}, False), ({"priority": 3}, False)):
        changed = respecification(body, spec, GPUS, Policy())
        check_count(waiting, changed)
        if refused:
            with pytest.raises(Problem, match="It runs on 1 GPU, and a process keeps"):
                check_count(running, changed)
        else:
            check_count(running, changed)


@pytest.mark.parametrize(("limit", "unsaved"), [(5, False), (3, True), (3, False)])
def test_no_limit_may_be_below_what_has_to_come_back_within_it(limit: int, *, unsaved: bool) -> None:
    spec = submit(kind="notebook", request="2GiB", limit="12GiB")
    workload = Workload(WorkloadId("w1"), spec, 0.0, saved_bytes=5 * GIB, unsaved=unsaved)
    changed = replace(spec, limit_bytes=limit * GIB)
    if limit == 5 or unsaved:
        check_saved(workload, changed)
    else:
        with pytest.raises(Problem, match="saved state of 5 GiB would not come back within a limit of 3 GiB"):
            check_saved(workload, changed)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("gpus", "a whole number from 1 to {}"),
        ("gang_size", "a whole number from 1 to {}"),
        ("priority", "a whole number from -1000000000 to {}"),
    ],
)
def test_the_largest_number_that_is_taken_is_the_contract_s(field: str, said: str) -> None:
    promised = SPEC["components"]["schemas"]["Submission"]["properties"][field]
    most = next(way["maximum"] for way in (promised, *promised.get("oneOf", ())) if "maximum" in way)
    with pytest.raises(Problem, match=said.format(most)):
        submit(**{"kind": "command", "gang": "g", "gang_size": 2, field: most + 1})


def test_a_number_that_the_contract_takes_for_a_size_is_a_fraction() -> None:
    (number,) = (way for way in SPEC["components"]["schemas"]["Size"]["oneOf"] if way["type"] == "number")
    assert submit(kind="command", request=number["maximum"]).request_bytes == 16 * GIB
    with pytest.raises(Problem, match="at most 1"):
        submit(kind="command", request=4096)
